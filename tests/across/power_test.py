"""Power of the paper's variants at the paper's budget: 100 pairs, 500 draws each."""

import pytest

from sbi_colt import CoLT, CoLTConfig
from sbi_colt.baselines import sbc, tarp
from sbi_colt.benchmark.tasks.gaussian import GaussianTask

BATCHES = 200


def power(task, methods, generator):
    rejections = dict.fromkeys(methods, 0)
    for _ in range(BATCHES):
        draws = task.draws(100, 500, generator)
        for name, method in methods.items():
            rejections[name] += method(draws).p_value <= 0.05
    return {name: count / BATCHES for name, count in rejections.items()}


def fitted(config, task, generator):
    train = task.draws(100, 500, generator)
    return CoLT(config, seed=0).fit(train, show_progress_bar=False).test


@pytest.mark.slow
@pytest.mark.long
def test_paper_variants_see_a_blind_prior(generator):
    """Full sees 50 of the 500 draws per step, to save time."""
    task = GaussianTask("blind", 1.0)
    blind = {"learning_rate": 1e-3}
    methods = {
        "id": fitted(CoLTConfig.paper("id", **blind), task, generator),
        "full": fitted(
            CoLTConfig.paper("full", draws_per_step=50, **blind), task, generator
        ),
        "sbc": lambda draws: sbc(draws, seed=0),
        "tarp": lambda draws: tarp(draws, seed=0),
    }
    measured = power(task, methods, generator)
    assert measured["id"] >= 0.95
    assert measured["full"] >= 0.95
    assert measured["sbc"] <= 0.1
    assert measured["tarp"] <= 0.1


@pytest.mark.slow
def test_id_beats_sbc_and_tarp_on_covariance_scaling(generator):
    task = GaussianTask("covariance", 0.6)
    methods = {
        "id": fitted(CoLTConfig.paper("id"), task, generator),
        "default": fitted(CoLTConfig(), task, generator),
        "sbc": lambda draws: sbc(draws, seed=0),
        "tarp": lambda draws: tarp(draws, seed=0),
    }
    measured = power(task, methods, generator)
    assert measured["id"] >= 2 * max(measured["sbc"], measured["tarp"])
    assert measured["default"] >= 0.9
