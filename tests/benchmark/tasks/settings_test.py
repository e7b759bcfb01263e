"""Properties that every task has: seeds, the null at α = 0, errors that grow with α."""

import pytest
import torch
from benchmark_helpers import fixed_distance

from sbi_colt.baselines import sbc
from sbi_colt.benchmark.tasks.diffusion import DiffusionTask
from sbi_colt.benchmark.tasks.gaussian import PERTURBATIONS, GaussianTask
from sbi_colt.benchmark.tasks.settings import SETTINGS, make_task
from sbi_colt.benchmark.tasks.trained import TrainedTask
from sbi_colt.benchmark.tasks.tree import TreeTask

CHEAP = [name for name in SETTINGS if name != "diffusion"]


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", CHEAP)
def test_tasks_are_batched_and_seeded(name):
    alpha = 0 if SETTINGS[name].alphas[1] >= 100 else SETTINGS[name].alphas[1]
    task = make_task(name, alpha)
    first, again = (task.draws(6, 4, seeded()) for _ in range(2))
    other = task.draws(6, 4, seeded(2))
    assert first.samples.shape[:2] == (4, 6)
    assert torch.equal(first.samples, again.samples)
    assert torch.equal(first.thetas, again.thetas)
    assert not torch.equal(first.thetas, other.thetas)
    if (
        name not in ("lobes", "bias") and not SETTINGS[name].is_trained
    ):  # the seed makes another task
        changed = make_task(name, alpha, seed=1).draws(6, 4, seeded())
        assert not torch.equal(first.thetas, changed.thetas)


@pytest.mark.usefixtures("unchanged_random_state")
@pytest.mark.parametrize(
    "name", ["curved-t", "tree", "lobes", "two-moons-npe", "outliers-npe"]
)
def test_tasks_leave_the_random_state_alone(name):
    make_task(name, 0).draws(5, 3, seeded())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if setting.is_trained else ())
        for name, setting in SETTINGS.items()
    ],
)
def test_alpha_zero_is_the_null(name, within_binomial_band):
    """SBC's exact p-values over 200 batches at α = 0."""
    # The diffusion's p is what its network makes, however little that has learned.
    is_diffusion = name == "diffusion"
    task = DiffusionTask(0, training_steps=20) if is_diffusion else make_task(name, 0)
    generator = seeded(3)
    alarms = sum(
        sbc(task.draws(25, 8, generator), seed=i, num_redraws=99).p_value <= 0.05
        for i in range(200)
    )
    assert within_binomial_band(alarms, 200, 0.05)


@pytest.mark.parametrize("family", ["", "curved-"])
@pytest.mark.parametrize("name", [p for p in PERTURBATIONS if p != "blind"])
def test_errors_grow_with_alpha(family, name):
    generator = seeded(4)
    if name == "mean":  # seen from the mean, a shift of it is small
        alphas = (0.0, 0.3, 3.0)
    else:
        alphas = (0.0, SETTINGS[name].alphas[3], 4 * SETTINGS[name].alphas[3])
    if name in ("modes", "collapse"):
        alphas = (0.0, 0.1, 0.5)
    sizes = [
        fixed_distance(make_task(family + name, alpha), 1500, 60, generator)
        for alpha in alphas
    ]
    assert sizes[0] < 0.06
    assert sizes[0] < sizes[1] < sizes[2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_task("trees", 0), "task: expected one of"),
        (lambda: GaussianTask("rotation", 0.1), "perturbation: expected one of mean"),
        (lambda: GaussianTask("mean", -0.1), "alpha: expected a number >= 0"),
        (lambda: TreeTask(-1.0), "alpha: expected a number >= 0"),
        (lambda: DiffusionTask(1.5), "alpha: expected a number of steps"),
        (lambda: DiffusionTask(21), "alpha: expected a number of steps"),
        (lambda: TrainedTask("moons", "npe", 0), "problem: expected one of"),
        (lambda: TrainedTask("outliers", "nre", 0), "estimator: expected one of"),
        (lambda: TrainedTask("outliers", "npe", 0.5), "alpha: expected simulations"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
