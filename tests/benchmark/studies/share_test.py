"""The table of power by the share of pairs to train on."""

from argparse import Namespace

from sbi_colt.benchmark.studies import share
from sbi_colt.benchmark.studies.shared import Problem


def test_the_table_has_both_counts_and_their_means(monkeypatch):
    """The runs are made up: all pairs reject always, test pairs by the share."""

    def rejected(problem, chosen, index):
        return bool(problem.alpha) and index < 4 * chosen, bool(problem.alpha)

    problems = [Problem("covariance", 0.0, (3, 3), 40)]
    problems += [Problem("curved-anisotropic", 1.5, (10, 10), 200)]
    problems += [Problem("t", 0.3, (3, 3), 40)]
    monkeypatch.setattr(share, "_PROBLEMS", tuple(problems))
    monkeypatch.setattr(share, "_rejected", rejected)
    lines = list(share.run(Namespace(jobs=1), repetitions=4))
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[2:] == ["20%", "30%", "50%", "70%"]
    assert lines[1].split() == ["none", "(3,", "3)", "40", *4 * ["0.00/0.00"]]
    powers = ["0.25/1.00", "0.50/1.00", "0.50/1.00", "0.75/1.00"]
    assert lines[2].startswith("curved-anisotropic 1.5 (10, 10) 200")
    assert [line.split()[-4:] for line in lines[2:5]] == 3 * [powers]
    assert lines[4].startswith("mean")


def test_a_posterior_that_ignores_x_is_rejected_and_an_exact_one_is_not():
    blind, exact = (Problem("blind", alpha, (3, 3), 60) for alpha in (1.0, 0.0))
    assert share._rejected(blind, 0.5, 0) == (True, True)
    assert share._rejected(exact, 0.5, 0) == (False, False)
