"""Posteriors that sbi trained, and the problems' exact posteriors."""

import pytest
import torch

from sbi_colt import CoLT, CoLTConfig
from sbi_colt.baselines import sbc
from sbi_colt.benchmark.tasks.trained import PROBLEMS, TrainedTask

FIXED = CoLTConfig(probes=("mahalanobis", "random"), num_redraws=199)


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_exact_posteriors_pass_sbc(name):
    """2000 pairs of the simulator: each parameter's ranks among exact draws."""
    draws = TrainedTask(name, "npe", 0).draws(2000, 20, seeded())
    assert sbc(draws, seed=0).p_value > 0.01
    colt = CoLT(FIXED, seed=0).fit(
        draws.select(torch.arange(100)), show_progress_bar=False
    )
    assert colt.test(draws.select(torch.arange(100, 2000))).p_value > 0.01


def test_two_moons_simulator_and_posterior_agree():
    """Exact draws, simulated again, give x back up to the crescent's noise."""
    problem = PROBLEMS["two-moons"]
    x = torch.tensor([-0.2, 0.1])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        again = problem.simulate(problem.exact(x, 2000))
    assert float((again - x).norm(dim=1).max()) < 0.3


@pytest.mark.slow
def test_more_simulations_train_a_better_posterior():
    few, many = (TrainedTask("outliers", "npe", n, max_epochs=60) for n in (100, 4000))
    sizes = []
    for task in (few, many):
        train, test = task.draws(1000, 50, seeded()).split(0.5, seed=0)
        colt = CoLT(seed=0).fit(train, show_progress_bar=False)
        sizes.append(colt.test(test).distance)
    assert sizes[1] < sizes[0] - 0.1  # the fixed probes alone do not see it
    scores = [task.accuracy(3, seeded()) for task in (few, many)]
    assert 0.5 <= scores[1] < scores[0] <= 1
