"""The tree: its branches, its components, its blur and its classes."""

import math

import pytest
import torch

from sbi_colt import CoLT, CoLTConfig
from sbi_colt.benchmark.tasks.tree import TreeTask, grow

STRETCH = torch.tensor([1.3136, 1.3844])
NUM_BRANCHES = 2**7 - 1
LEVELS = torch.arange(7).repeat_interleave(2 ** torch.arange(7))  # of each branch


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def branches(seed=0):
    """Return starts, ends, lengths and directions, without the stretching."""
    places = (grow(seed).means / STRETCH).double().unflatten(1, (NUM_BRANCHES, 8))
    steps = places[:, :, -1] - places[:, :, 0]  # 0.86 lengths
    starts = places[:, :, 0] - 0.07 / 0.86 * steps
    lengths = steps.norm(dim=-1) / 0.86
    return starts, starts + steps / 0.86, lengths, steps / steps.norm(dim=-1)[..., None]


def test_each_branch_has_eight_components_at_equal_steps():
    weights, means, factors = grow(0)
    assert weights.shape == (2, 8 * NUM_BRANCHES)
    assert means.shape == (2, 8 * NUM_BRANCHES, 2)
    assert factors.shape == (2, 8 * NUM_BRANCHES, 2, 2)
    steps = (means / STRETCH).unflatten(1, (NUM_BRANCHES, 8)).diff(dim=2)
    assert torch.allclose(steps, steps[:, :, :1].expand_as(steps), atol=1e-6)


def test_both_trunks_start_at_the_root_at_opposite_angles():
    starts, _, _, directions = branches()
    root = torch.tensor([0.003, 0.0325]).double()
    assert torch.allclose(starts[:, 0], root.expand(2, 2), atol=1e-5)
    expected = torch.tensor([[1.0, 1.0], [-1.0, -1.0]]).double() / math.sqrt(2)
    assert torch.allclose(directions[:, 0], expected, atol=1e-4)


def test_children_start_where_their_parents_end():
    starts, ends, _, _ = branches()
    for level in range(1, 7):
        parents = ends[:, 2 ** (level - 1) - 1 : 2**level - 1].repeat(1, 2, 1)
        children = starts[:, 2**level - 1 : 2 ** (level + 1) - 1]
        assert torch.allclose(children, parents, atol=1e-5)


def test_lengths_and_turns_have_their_means_and_spreads():
    """Lengths 0.292 · 0.8^k and turns 0.7^k, both with a relative spread of 0.2."""
    lengths, turns = [], []
    for seed in range(20):
        _, _, own, directions = branches(seed)
        lengths.append(own / (0.292 * 0.8**LEVELS))
        angles = torch.atan2(directions[..., 1], directions[..., 0])
        for level in range(3):  # later turns are too small beside their rounding
            below = slice(2 ** (level + 1) - 1, 2 ** (level + 2) - 1)
            parents = angles[:, 2**level - 1 : 2 ** (level + 1) - 1].repeat(1, 2)
            turn = torch.remainder(angles[:, below] - parents + math.pi, 2 * math.pi)
            left, right = ((turn - math.pi) / 0.7**level).chunk(2, dim=1)
            turns += [-left.flatten(), right.flatten()]
    for values in (torch.cat(lengths).flatten(), torch.cat(turns)):
        assert values.mean() == pytest.approx(1, abs=4 * 0.2 / len(values) ** 0.5)
        assert values.std() == pytest.approx(0.2, rel=4 / (2 * len(values)) ** 0.5)


def test_sizes_and_weights_of_components_follow_their_branch():
    weights, _, factors = grow(0)
    _, _, lengths, directions = branches()
    unstretched = (factors / STRETCH.unsqueeze(1)).double()[:, ::8]  # one per branch
    along = torch.einsum("cbij,cbj->cbi", unstretched, directions)
    assert torch.allclose(
        along, 0.06 * lengths.unsqueeze(-1) * directions, atol=1e-6, rtol=1e-3
    )
    across = torch.linalg.det(unstretched) / along.norm(dim=-1)
    assert torch.allclose(across, (0.012 * 0.8**LEVELS).double().expand(2, -1))
    expected = lengths * 0.5**LEVELS
    shares = weights.double().unflatten(1, (NUM_BRANCHES, 8)).sum(dim=2)
    assert torch.allclose(shares, expected / expected.sum(dim=1, keepdim=True))


def test_draws_have_the_moments_of_the_mixture():
    weights, means, _ = grow(0)
    draws = TreeTask(0.0).draws(8, 50_000, seeded(3))
    assert set((draws.xs[:, 0] < 0).tolist()) == {False, True}
    for pair, is_second in enumerate((draws.xs[:, 0] < 0).tolist()):
        own, centre = weights[int(is_second)], means[int(is_second)]
        samples = draws.samples[:, pair].double()
        error = samples.mean(dim=0) - own.double() @ centre.double()
        assert (error.abs() < 4 * samples.std(dim=0) / len(samples) ** 0.5).all()


def test_the_tree_blurs_by_alpha():
    """Variance beyond that of p: ((1 + α)² − 1) σ² in each direction."""
    draws = TreeTask(4.0).draws(2, 400_000, seeded())
    exact = TreeTask(0.0).draws(2, 400_000, seeded())
    assert torch.equal(draws.xs, exact.xs)
    extra = draws.samples.double().var(dim=0) - exact.samples.double().var(dim=0)
    # The same components and inner noise: the difference is the blur alone.
    assert torch.allclose(extra, torch.full((2, 2), 24e-4).double(), atol=8e-4)


@pytest.mark.slow
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
