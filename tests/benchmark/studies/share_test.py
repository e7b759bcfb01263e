"""The table of power by the share of pairs to train on."""

from argparse import Namespace

import torch

from sbi_colt.benchmark.studies import share
from sbi_colt.benchmark.studies.shared import Problem
from sbi_colt.stats.combine import both_sides_p_value


def test_the_table_has_both_counts_and_their_means(monkeypatch):
    """The runs are made up: all pairs reject always, test pairs by the share."""

    def p_values(problem, chosen, index):
        rejects = problem.alpha and index < 4 * chosen
        return 0.01 if rejects else 0.9, 0.04 if problem.alpha else 0.5

    problems = [Problem("covariance", 0.0, (3, 3), 40)]
    problems += [Problem("curved-anisotropic", 1.5, (10, 10), 200)]
    problems += [Problem("t", 0.3, (3, 3), 40)]
    monkeypatch.setattr(share, "_PROBLEMS", tuple(problems))
    monkeypatch.setattr(share, "_p_values", p_values)
    lines = list(
        share.run(Namespace(jobs=1, shares=[0.2, 0.3, 0.5, 0.7]), repetitions=4)
    )
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[2:] == ["20%", "30%", "50%", "70%"]
    assert lines[1].split() == ["none", "(3,", "3)", "40", *4 * ["0.00/0.00"]]
    powers = ["0.25/1.00", "0.50/1.00", "0.50/1.00", "0.75/1.00"]
    assert lines[2].startswith("curved-anisotropic 1.5 (10, 10) 200")
    assert [line.split()[-4:] for line in lines[2:5]] == 3 * [powers]
    assert lines[4].startswith("mean")
    assert lines[9].split()[2:] == ["alone", "weighted", "equal", "Fisher"]
    assert lines[10].split()[-4:] == ["0.00", "0.01", "0.03", "0.02"]
    assert lines[13].split()[-4:] == ["1.00", "1.00", "0.03", "0.22"]


def test_a_posterior_that_ignores_x_is_rejected_and_an_exact_one_is_not():
    blind, exact = (Problem("blind", alpha, (3, 3), 60) for alpha in (1.0, 0.0))
    assert max(share._p_values(blind, 0.5, 0)) <= 0.05
    assert min(share._p_values(exact, 0.5, 0)) > 0.05


def test_the_power_of_both_sides_is_that_of_uniform_p_values_on_the_other():
    other = torch.rand(200_000, generator=torch.Generator().manual_seed(0)).double()
    for p in (0.001, 0.02, 0.04, 0.3):
        smaller = 1 - (1 - other.clamp_max(p)).square() <= 0.05
        pairs = [both_sides_p_value(p, u) for u in other[:20_000].tolist()]
        weighted = torch.tensor(pairs) <= 0.05
        product = p * other
        fisher = product * (1 - product.log()) <= 0.05
        assert abs(float(smaller.double().mean()) - share._smaller(p, 0.5)) < 0.003
        assert abs(float(weighted.double().mean()) - share._smaller(p, 0.8)) < 0.003
        assert abs(float(fisher.double().mean()) - share._fisher(p)) < 0.003
