import numpy as np
import ot
import pytest
import torch
from scipy.stats import cramervonmises

from sbi_colt.probes.divergences import (
    DIVERGENCES,
    cramer_von_mises,
    sinkhorn,
    uniform_grid,
)

each_divergence = pytest.mark.parametrize("name", sorted(DIVERGENCES))


def skewed_ranks(n: int, power: float = 1.7) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    return torch.rand(n, generator=generator, dtype=torch.float64) ** power


@each_divergence
def test_zero_on_a_perfect_grid(name):
    grid = uniform_grid(37, torch.zeros(1, dtype=torch.float64))
    assert abs(DIVERGENCES[name](grid).item()) < 1e-6


@each_divergence
def test_invariant_to_permutation(name):
    ranks = skewed_ranks(40)
    shuffled = ranks[torch.randperm(40, generator=torch.Generator().manual_seed(0))]
    torch.testing.assert_close(DIVERGENCES[name](ranks), DIVERGENCES[name](shuffled))


@each_divergence
def test_invariant_to_reflection(name):
    ranks = skewed_ranks(40)
    torch.testing.assert_close(DIVERGENCES[name](ranks), DIVERGENCES[name](1 - ranks))


@each_divergence
def test_grows_with_the_deviation(name):
    grid = uniform_grid(100, torch.zeros(1, dtype=torch.float64))
    values = [DIVERGENCES[name](grid**power).item() for power in (1, 1.2, 1.5, 2, 4)]
    assert values == sorted(values)


@each_divergence
def test_gradient_agrees_with_finite_differences(name):
    ranks = skewed_ranks(12).requires_grad_()
    assert torch.autograd.gradcheck(DIVERGENCES[name], (ranks,), atol=1e-4, rtol=1e-2)


def test_cramer_von_mises_agrees_with_scipy():
    ranks = skewed_ranks(61)
    statistic = cramervonmises(ranks.numpy(), "uniform").statistic
    assert cramer_von_mises(ranks).item() == pytest.approx(
        (statistic - 1 / (12 * 61)) / 61, rel=1e-9
    )


def entropic_cost_by_pot(x: np.ndarray, y: np.ndarray, epsilon: float) -> float:
    """<P, C> + ε KL(P | a ⊗ b) of POT's own plan."""
    cost = (x[:, None] - y[None]) ** 2 / 2
    a, b = np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))
    plan = ot.sinkhorn(
        a,
        b,
        cost,
        epsilon,
        method="sinkhorn_log",
        numItermax=5000,
        stopThr=1e-9,
        warn=False,
    )
    positive = plan > 0
    ratio = np.log(plan[positive] / (a[:, None] * b[None])[positive])
    return float((plan * cost).sum() + epsilon * (plan[positive] * ratio).sum())


@pytest.mark.parametrize("power", [1.2, 2.0, 6.0])
@pytest.mark.parametrize("blur", [0.05, 0.2])
def test_sinkhorn_agrees_with_pot(power, blur):
    ranks = skewed_ranks(50, power)
    x, y = ranks.numpy(), uniform_grid(50, ranks).numpy()
    expected = (
        entropic_cost_by_pot(x, y, blur**2)
        - (entropic_cost_by_pot(x, x, blur**2) + entropic_cost_by_pot(y, y, blur**2))
        / 2
    )
    assert sinkhorn(ranks, blur).item() == pytest.approx(expected, rel=1e-3)
