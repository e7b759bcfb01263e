"""Leakage, limits of time, and draws that cannot be had."""

import time

import numpy as np
import pytest
import torch
from configs import make_config
from sbi.inference.posteriors import DirectPosterior
from sbi.utils import BoxUniform
from stand_ins import Gaussian, numpy_posterior, sample

from sbi_colt import CoLTConfig
from sbi_colt.baselines import sbc
from sbi_colt.benchmark.posterior_zoo import exhibit
from sbi_colt.sampling.at_xs import sample_posterior
from sbi_colt.sampling.draw import draw_at_pairs
from sbi_colt.sampling.pool import SamplingError


def leaky(low=-1.5, high=1.5):
    """An NPE whose prior is a box: at xs far from it nearly all draws lie outside."""
    estimator = exhibit("npe-mdn").posterior.posterior_estimator
    return DirectPosterior(
        estimator, BoxUniform(low * torch.ones(2), high * torch.ones(2))
    )


def test_draws_are_those_of_sbi_under_mild_leakage(generator):
    xs = 0.5 * exhibit("npe-mdn").observe(5, generator)
    posterior = leaky()
    ours = sample(posterior, xs, 2000)
    assert ours.abs().max() <= 1.5
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = posterior.sample_batched((2000,), xs, show_progress_bars=False)
    torch.testing.assert_close(ours.mean(0), theirs.mean(0), atol=0.1, rtol=0)
    torch.testing.assert_close(ours.std(0), theirs.std(0), atol=0.06, rtol=0)


def test_a_hopeless_x_is_reported_and_the_others_are_kept(generator):
    xs = 0.5 * exhibit("npe-mdn").observe(20, generator)
    xs[7] = 30.0
    with pytest.warns(UserWarning, match=r"1 of 20 xs could not be sampled.*7 \(0\)"):
        result = sample_posterior(leaky(), xs, 50, seed=0, show_progress_bar=False)
    assert result.mask.tolist() == [i != 7 for i in range(20)]
    assert result.acceptance[7] == 0
    assert result.acceptance[result.mask].min() > 0.05
    assert result.samples[:, 7].isnan().all()
    assert result.samples[:, result.mask].isfinite().all()


def test_too_many_hopeless_xs_are_an_error():
    with pytest.raises(SamplingError, match=r"more than max_lost = 0\.1.*leaks"):
        sample(leaky(), torch.full((10, 2), 30.0), 50)


def test_time_bounds_the_whole_call():
    start = time.monotonic()
    with pytest.raises(SamplingError, match="0 of 10 xs were completed"):
        sample(
            leaky(),
            torch.full((10, 2), 30.0),
            1000,
            max_sampling_time=1.0,
            min_acceptance=1e-12,
        )
    assert time.monotonic() - start < 20


class Slow:
    """N(x, I) in blocks of two xs, each of which takes a while."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, xs, num):
        time.sleep(self.seconds)
        return xs + torch.randn(num, *xs.shape)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.filterwarnings("ignore:max_sampling_time. 400 xs:UserWarning")
def test_what_is_complete_when_time_runs_out_is_kept(batched):
    num = 2**15 if batched else 5
    xs = torch.zeros(400, 1)
    posterior = Slow(0.02) if batched else Gaussian(seconds=0.02)
    with pytest.warns(
        UserWarning, match=r"of 400 xs were completed.*All of them would"
    ):
        result = sample_posterior(
            posterior, xs, num, seed=0, max_sampling_time=2.0, show_progress_bar=False
        )
    complete = int(result.mask.sum())
    assert 20 <= complete < 400
    assert not result.mask[:complete].all()  # which are left is random
    assert not result.given_up.any()
    assert result.samples[:, result.mask].isfinite().all()


@pytest.mark.filterwarnings("ignore:max_sampling_time. 200 xs:UserWarning")
def test_fewer_than_twenty_complete_xs_are_an_error_that_carries_them():
    with pytest.raises(SamplingError, match="at least 20 are needed") as caught:
        sample(
            Gaussian(seconds=0.1),
            torch.zeros(200, 2),
            5,
            max_sampling_time=0.5,
        )
    assert "leak" not in str(caught.value)
    assert 1 <= caught.value.partial.mask.sum() < 20


def test_leaking_xs_are_completed_before_the_next_block_is_begun(monkeypatch):
    """Time runs out after a few blocks: every x that was reached is complete."""
    posterior = leaky()
    original = DirectPosterior.sample_batched

    def slow(self, shape, x, **options):
        time.sleep(0.02)
        return original(self, shape, x, **options)

    monkeypatch.setattr(DirectPosterior, "sample_batched", slow)
    monkeypatch.setattr("sbi_colt.sampling.posteriors.BLOCK_DRAWS", 2000)
    with pytest.warns(UserWarning, match="max_sampling_time"):
        result = sample_posterior(
            posterior,
            torch.full((600, 2), 0.5),
            200,
            seed=0,
            max_sampling_time=1.5,
            show_progress_bar=False,
        )
    complete = int(result.mask.sum())
    reached = int(result.acceptance.isfinite().sum())
    assert 20 <= complete < 600
    assert reached - complete <= 10  # no more than the last block


def test_run_colt_tests_what_was_complete_in_time(generator):
    from sbi_colt import run_colt

    thetas = torch.randn(200, 2, generator=generator)
    xs = thetas + torch.randn(200, 2, generator=generator)
    with pytest.warns(UserWarning, match="max_sampling_time") as caught:
        result = run_colt(
            thetas,
            xs,
            Gaussian(seconds=0.02),
            9,
            seed=0,
            show_progress_bar=False,
            config=CoLTConfig(probes=("mahalanobis",)),
            max_sampling_time=1.5,
        )
    complete = int(result.mask.sum())
    assert 20 <= complete < 200
    # Once beforehand and once afterwards; both name this file.
    said = [str(warning.message) for warning in caught]
    assert "200 xs × 9 draws will take about" in said[0]
    assert f"{complete} of 200 xs were completed" in said[1]
    assert {warning.filename for warning in caught} == {__file__}


def test_no_time_at_all_is_an_error():
    for posterior in (Gaussian(), numpy_posterior):
        with pytest.raises(SamplingError, match="max_sampling_time: no x"):
            sample(posterior, torch.zeros(3, 2), 5, max_sampling_time=0)


@pytest.mark.filterwarnings("ignore:thetas. they do not look:UserWarning")
def test_run_colt_leaves_out_what_cannot_be_sampled(generator):
    from sbi_colt import run_colt

    thetas = torch.rand(60, 2, generator=generator) - 0.5
    xs = thetas + 0.1 * torch.randn(60, 2, generator=generator)
    xs[3] = 30.0
    with pytest.warns(UserWarning, match="1 of 60 xs could not be sampled"):
        result = run_colt(
            thetas, xs, leaky(), 20, 1, False, seed=0, config=make_config(max_epochs=2)
        )
    assert result.mask.tolist() == [i != 3 for i in range(60)]
    assert 3 not in result.index.tolist()


def test_a_subclass_is_bounded_too():
    class Own(DirectPosterior):
        pass

    class Rejecting(DirectPosterior):
        def sample_batched(self, *args, **kwargs):
            return super().sample_batched(*args, **kwargs)

    inside = leaky()
    for kind in (Own, Rejecting):
        posterior = kind(inside.posterior_estimator, inside.prior)
        with pytest.raises((SamplingError, RuntimeError), match="sampl"):
            sample(posterior, torch.full((3, 2), 30.0), 20, max_sampling_time=1)


def test_draws_that_are_not_finite_are_drawn_again_or_reported():
    def sometimes(xs, num):
        draws = xs + torch.randn(num, *xs.shape)
        draws[torch.rand(num, len(xs)) < 0.2] = torch.nan
        return draws

    assert sample(sometimes, torch.zeros(10, 2), 50).isfinite().all()

    def always(xs, num):
        return torch.where(xs[:, :1] > 0, torch.nan, torch.randn(num, *xs.shape))

    xs = torch.zeros(20, 2)
    xs[4] = 1
    with pytest.warns(UserWarning, match="1 of 20 xs could not be sampled"):
        samples = sample(always, xs, 50)
    assert samples[:, 4].isnan().all()


def test_advice_about_leakage_is_for_samplers_that_can_leak():
    def broken(xs, num):
        return torch.full((num, *xs.shape), torch.nan)

    with pytest.raises(SamplingError, match="10 of 10 xs.*not finite") as caught:
        sample(broken, torch.zeros(10, 2), 50)
    assert "leak" not in str(caught.value)
    assert "support" not in str(caught.value)


def test_an_error_carries_what_was_drawn():
    xs = torch.zeros(10, 2)
    xs[5:] = 30.0
    with pytest.raises(SamplingError, match="5 of 10") as caught:
        sample(leaky(), xs, 50)
    assert caught.value.partial.samples[:, :5].isfinite().all()


def test_a_failure_names_its_x():
    class Failing(Gaussian):
        def sample(self, shape, x):
            if x[0, 0] == 4:
                raise RuntimeError("not positive definite")
            return super().sample(shape, x)

    xs = torch.arange(8.0).reshape(4, 2)
    with pytest.raises(SamplingError, match="at x number 2: .*not positive definite"):
        sample(Failing(), xs, 5)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("min_acceptance", 0),
        ("memory_budget", "1GB"),
        ("max_lost", 2),
        ("num_workers", 0),
        ("max_sampling_time", -1),
    ],
)
def test_bad_options_are_named(option, value):
    with pytest.raises(ValueError, match=f"{option}: expected"):
        sample(numpy_posterior, torch.zeros(3, 2), 5, **{option: value})


def test_draws_of_the_wrong_shape_are_named():
    class Transposed(Gaussian):
        def sample(self, shape, x):
            return super().sample(shape, x).T

    with pytest.raises(ValueError, match="posterior: expected draws of shape"):
        sample(Transposed(), torch.zeros(3, 2), 5)


def test_xs_without_a_feature_axis_fit_where_only_axes_differ(generator):
    posterior = exhibit("npe-mdn").posterior
    xs = exhibit("npe-mdn").observe(4, generator)
    assert torch.equal(
        sample(posterior, xs.unsqueeze(1).unsqueeze(1), 9), sample(posterior, xs, 9)
    )


def test_sorted_pairs_are_tested_rightly_when_time_runs_out(generator):
    """In the given order only small parameters would be left, and all would reject."""
    thetas = torch.randn(200, 1, generator=generator).sort(dim=0).values
    xs = thetas + torch.randn(200, 1, generator=generator)

    def slow(xs, num):  # exact
        time.sleep(0.01 * len(xs))
        return xs / 2 + 0.5**0.5 * torch.randn(num, *xs.shape)

    with pytest.warns(UserWarning, match="max_sampling_time"):
        draws = draw_at_pairs(
            slow, thetas, xs, 50, seed=0, max_sampling_time=0.8, show_progress_bar=False
        )
    assert 20 <= len(draws) < 180
    assert torch.equal(draws.thetas, thetas[draws.index])
    assert draws.thetas.min() < -1
    assert draws.thetas.max() > 1
    assert sbc(draws, seed=0).p_value > 0.01


def test_a_slow_function_is_stopped_between_small_blocks():
    def slow(xs, num):
        time.sleep(0.01 * len(xs))
        return torch.randn(num, len(xs), 1)

    start = time.perf_counter()
    with pytest.warns(UserWarning, match="max_sampling_time"):
        sample(slow, torch.randn(2000, 1), 20, max_sampling_time=np.float32(0.6))
    assert time.perf_counter() - start < 10  # all xs would take 20 seconds
