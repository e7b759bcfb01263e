from sbi_colt.benchmark.studies.rates import compare_rates
from sbi_colt.benchmark.studies.speed import compare_speed


def test_speed_is_compared_in_one_run():
    header, first, total = compare_speed(1, 100, 20, repetitions=1)
    assert "1 parameters, 100 pairs, 20 draws" in header
    assert first.split()[1:] == total.split()[1:]
    here, theirs = (float(total.split()[i]) for i in (1, 3))
    assert here > 0
    assert theirs > 0


def test_rates_show_where_discrete_ranks_mislead():
    """sbi rejects a correct posterior at ten draws; randomised ranks do not."""
    lines = list(compare_rates(1000, (10,), 20, show_progress_bar=False))
    correct, wide = (line.split()[-4:] for line in lines[2:])
    assert float(correct[0]) == 1
    assert float(correct[1]) <= 0.2
    assert float(correct[3]) <= 0.2
    assert float(wide[3]) >= 0.6
