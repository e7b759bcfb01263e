import io
import time

import pytest
from tqdm import tqdm

from sbi_colt.sampling.messages import Estimate


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_run_that_will_not_end_in_time_is_announced_once(clock):
    estimate = Estimate(1000, 500, 240.0, tqdm(disable=True), grows_with_draws=True)
    clock[0] = 1.0
    estimate.update(1)  # too early to tell
    clock[0] = 23.2
    with pytest.warns(UserWarning, match="max_sampling_time") as caught:
        estimate.update(9)
    estimate.update(10)  # a second warning would be an error here
    assert [str(warning.message) for warning in caught] == [
        "max_sampling_time: 1000 xs × 500 draws will take about 43 min; in 240 s about "
        "93 xs will be done; 100 draws per x would take about 9 min."
    ]


def test_fewer_draws_are_not_advised_where_they_save_nothing(clock):
    estimate = Estimate(1000, 500, 240.0, tqdm(disable=True), grows_with_draws=False)
    clock[0] = 23.2
    with pytest.warns(UserWarning, match="about 93 xs will be done.$"):
        estimate.update(9)


def test_a_run_that_will_end_in_time_says_nothing(clock):
    estimate = Estimate(100, 500, 240.0, tqdm(disable=True), grows_with_draws=True)
    clock[0] = 23.2
    estimate.update(10)  # a warning would be an error here


@pytest.mark.parametrize(("num_xs", "said"), [(1000, "about 43 min in all"), (20, "")])
def test_a_long_run_without_a_limit_is_announced_in_the_progress_bar(
    clock, num_xs, said
):
    progress = tqdm(total=num_xs, file=io.StringIO())
    estimate = Estimate(num_xs, 500, None, progress, grows_with_draws=False)
    clock[0] = 23.2
    estimate.update(9)
    assert (progress.postfix or "") == said
