"""Our checks beside sbi's: rates of rejection, and times."""

from argparse import Namespace

import pytest

from sbi_colt.benchmark.studies import rates, speed


@pytest.mark.slow
def test_times_are_added_up_and_compared(monkeypatch):
    """Both are called on one posterior; the times themselves are made up."""
    times = iter([1.0, 4.0, 2.0, 2.0])

    def seconds(call):
        call()
        return next(times)

    monkeypatch.setattr(speed, "seconds_of", seconds)
    first, _, *lines = speed.run(Namespace(), 1, 100, 20, repetitions=2)
    assert first == "NPE, 1 parameters, 100 pairs, 20 draws"
    assert [line.split() for line in lines] == [
        ["1", "1.0", "s", "4.0", "s", "0.25"],
        ["2", "2.0", "s", "2.0", "s", "1.00"],
        ["all", "3.0", "s", "6.0", "s", "0.50"],
    ]


def test_rates_show_where_discrete_ranks_mislead():
    """sbi rejects a correct posterior at ten draws; randomised ranks do not."""
    lines = list(rates.run(Namespace(quiet=True), (10,), 20))
    correct, wide = (line.split()[-4:] for line in lines[2:])
    assert float(correct[0]) == 1
    assert float(correct[1]) <= 0.2
    assert float(correct[3]) <= 0.2
    assert float(wide[3]) >= 0.6
