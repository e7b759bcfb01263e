"""The tree: its components, its blur and its classes."""

import torch

from sbi_colt import CoLT, CoLTConfig
from sbi_colt.benchmark.tasks.tree import TreeTask, grow


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def test_the_tree_has_the_components_of_its_description():
    weights, means, factors = grow(0)
    assert len(weights) == 8 * (2**7 - 1)  # eight on each branch, seven levels
    assert len(means) == len(factors) == 2 * len(weights)
    # The first branch: eight components, evenly along the diagonal.
    first = means[:8]
    assert torch.allclose(first[:, 0], first[:, 1], atol=1e-6)
    assert torch.allclose(first.diff(dim=0).norm(dim=1), torch.full((7,), 0.125))
    spread = torch.linalg.svdvals(factors)
    assert torch.allclose(spread[:, 1] / spread[:, 0], torch.full((2032,), 0.1))


def test_the_tree_blurs_by_alpha():
    """Variance beyond that of p: ((1 + α)² − 1) σ² in each direction."""
    draws = TreeTask(4.0).draws(2, 400_000, seeded())
    exact = TreeTask(0.0).draws(2, 400_000, seeded())
    assert torch.equal(draws.xs, exact.xs)
    extra = draws.samples.double().var(dim=0) - exact.samples.double().var(dim=0)
    # The same components and inner noise: the difference is the blur alone.
    assert torch.allclose(extra, torch.full((2, 2), 24e-4).double(), atol=8e-4)


def test_errors_of_the_tree_grow_with_alpha():
    config = CoLTConfig(probes=("relief",))
    sizes = []
    for alpha in (0.0, 1.5, 4.0):
        task, generator = TreeTask(alpha), seeded(5)
        colt = CoLT(config, seed=0).fit(
            task.draws(500, 100, generator), show_progress_bar=False
        )
        sizes.append(colt.test(task.draws(1000, 100, generator)).distance)
    assert sizes[0] < 0.06
    assert sizes[0] < sizes[1] < sizes[2]


def test_classes_of_the_tree_lie_on_either_side():
    draws = TreeTask(0.0).draws(500, 2, seeded())
    side = draws.thetas.sum(dim=1) > 0
    assert ((draws.xs[:, 0] >= 0) == side).float().mean() > 0.95
