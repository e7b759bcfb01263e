"""The lobes: an error that the first two moments do not show."""

import pytest
import torch

from sbi_colt.benchmark.tasks.lobes import LobesTask


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def test_lobes_have_the_moments_of_a_gaussian():
    """To the second order, radii too; the third order tells them apart."""
    task = LobesTask(1.0, seed=3)
    draws = task.draws(200_000, 1, seeded())
    scales = torch.tensor([2.0, 0.5])
    truths, others = (
        ((thetas - draws.xs) / scales).double()
        for thetas in (draws.thetas, draws.samples[0])
    )
    assert truths.mean(dim=0).abs().max() < 0.01
    assert (truths.T.cov() - torch.eye(2).double()).abs().max() < 0.02
    radii = [points.norm(dim=1).sort().values for points in (truths, others)]
    assert (radii[0] - radii[1]).abs()[:-1000].max() < 0.05

    def third(points):
        x, y = points.T
        return torch.stack([x**3 - 3 * x * y**2, 3 * x**2 * y - y**3]).mean(dim=1)

    # E r³ / 2 = 3 √(π/2) / 2 = 1.88 in the direction of the lobes
    assert float(third(truths).norm()) == pytest.approx(1.88, abs=0.05)
    assert third(others).norm() < 0.05
    with pytest.raises(ValueError, match="alpha: expected"):
        LobesTask(1.5)
