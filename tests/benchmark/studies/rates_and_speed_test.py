"""Our checks beside sbi's: rates of rejection, and times."""

from sbi_colt.benchmark.studies import speed
from sbi_colt.benchmark.studies.rates import compare_rates


def test_times_are_added_up_and_compared(monkeypatch):
    """Both are called on one posterior; the times themselves are made up."""
    times = iter([1.0, 4.0, 2.0, 2.0])

    def seconds(call):
        call()
        return next(times)

    monkeypatch.setattr(speed, "seconds_of", seconds)
    header, *lines = speed.compare_speed(1, 100, 20, repetitions=2)
    assert "1 parameters, 100 pairs, 20 draws" in header
    assert [line.split() for line in lines] == [
        ["1", "1.0", "s", "4.0", "s", "0.25"],
        ["2", "2.0", "s", "2.0", "s", "1.00"],
        ["all", "3.0", "s", "6.0", "s", "0.50"],
    ]


def test_rates_show_where_discrete_ranks_mislead():
    """sbi rejects a correct posterior at ten draws; randomised ranks do not."""
    lines = list(compare_rates(1000, (10,), 20, show_progress_bar=False))
    correct, wide = (line.split()[-4:] for line in lines[2:])
    assert float(correct[0]) == 1
    assert float(correct[1]) <= 0.2
    assert float(correct[3]) <= 0.2
    assert float(wide[3]) >= 0.6
