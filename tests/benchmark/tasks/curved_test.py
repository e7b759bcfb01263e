"""The curved family."""

import pytest
import torch

from sbi_colt.benchmark.tasks.curved import bend
from sbi_colt.benchmark.tasks.settings import make_task


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def test_bending_keeps_shapes_and_follows_the_seed():
    thetas = torch.randn(5, 4, 3, generator=seeded())
    assert bend(thetas).shape == thetas.shape
    assert torch.equal(bend(thetas, 1), bend(thetas, 1))
    assert not torch.equal(bend(thetas, 1), bend(thetas, 2))
    assert not bend(thetas).requires_grad


@pytest.mark.parametrize(
    ("dims", "least", "most"),
    [
        ((3, 3), 0.3, 1.0),
        ((10, 10), 0.03, 0.2),
        ((50, 10), -0.02, 0.002),
        ((100, 100), -0.02, 0.002),
    ],
)
def test_x_tells_little_of_curved_parameters_in_many_dimensions(dims, least, most):
    """Why a curved posterior that ignores x cannot be told from p there.

    The phases turn with x: what a linear function of x explains of θ, left-out pairs.
    """
    draws = make_task("curved-blind", 1.0, dims).draws(20_000, 1, seeded())
    xs = torch.cat([draws.xs, torch.ones(len(draws), 1)], dim=1).double()
    thetas = draws.thetas.double()
    (fit, test), (known, hidden) = xs.split(10_000), thetas.split(10_000)
    residuals = hidden - test @ torch.linalg.lstsq(fit, known).solution
    explained = 1 - residuals.square().mean(dim=0) / hidden.var(dim=0)
    assert least < explained.max() < most
