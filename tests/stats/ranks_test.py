import pytest
import torch
from scipy.stats import kstest

from sbi_colt.stats.ranks import (
    RankTable,
    ball_ranks,
    randomized_ranks,
    straight_through_ranks,
)


def test_ball_ranks_count_draws_strictly_inside():
    truth = torch.tensor([1.0, 0.0, 9.0])
    draws = torch.tensor([[1.0, 1.0, 1.0], [0.5, 2.0, 2.0]])
    assert ball_ranks(truth, draws).tolist() == [0.5, 0.0, 1.0]


def test_straight_through_ranks_equal_ball_ranks_forward(generator):
    truth = torch.rand(50, generator=generator)
    draws = torch.rand(20, 50, generator=generator)
    torch.testing.assert_close(
        straight_through_ranks(truth, draws), ball_ranks(truth, draws)
    )


def test_straight_through_gradient_pushes_ranks_the_right_way(generator):
    truth = torch.rand(50, generator=generator).requires_grad_()
    draws = torch.rand(20, 50, generator=generator).requires_grad_()
    straight_through_ranks(truth, draws).sum().backward()
    assert (truth.grad > 0).all()  # farther truth, larger rank
    assert (draws.grad < 0).all()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_straight_through_gradient_follows_the_scale_of_distances(generator, scale):
    truth = torch.rand(30, generator=generator)
    draws = torch.rand(20, 30, generator=generator)

    def relative_gradient(factor):
        scaled = (factor * truth).requires_grad_()
        straight_through_ranks(scaled, factor * draws).sum().backward()
        return scaled.grad * factor

    torch.testing.assert_close(relative_gradient(scale), relative_gradient(1.0))


def test_straight_through_gradient_is_finite_when_all_distances_are_equal():
    truth = torch.ones(3, requires_grad=True)
    straight_through_ranks(truth, torch.ones(4, 3)).sum().backward()
    assert truth.grad.isfinite().all()


@pytest.mark.parametrize("num_draws", [1, 2, 7])
@pytest.mark.parametrize("ties", [False, True])
def test_randomized_ranks_are_exactly_uniform(generator, num_draws, ties):
    members = torch.rand(num_draws + 1, 20000, generator=generator)
    if ties:
        members = (3 * members).floor()
    ranks = randomized_ranks(members[0], members[1:], generator)
    assert kstest(ranks.numpy(), "uniform").pvalue > 0.01


def all_ranks(scores, generator):
    """The ranks of all members under one probe, with shape ``(N, K + 1)``."""
    table = RankTable.of([scores], generator)
    members = torch.arange(scores.shape[1]).unsqueeze(1).expand(-1, len(scores))
    return table.take(members)[:, 0].T  # (K + 1, 1, N) -> (N, K + 1)


def test_a_table_takes_one_rank_per_bag():
    table = RankTable(torch.arange(12).reshape(2, 2, 3), torch.tensor([[0.5], [0.0]]))
    members = torch.tensor([[0, 2], [1, 1]])
    expected = torch.tensor([[[0.5, 5.5], [6, 11]], [[1.5, 4.5], [7, 10]]]) / 3
    assert torch.equal(table.take(members), expected)
    assert torch.equal(table.under([1]).take(members), expected[:, 1:])


def test_a_table_is_filled_in_blocks(generator):
    scores = torch.randn(2, 7, 5, generator=generator)
    table = RankTable.empty(2, 7, 5, scores.device)
    for rows in (slice(0, 3), slice(3, 7)):
        table.fill(rows, list(scores[:, rows]), generator)
    assert torch.equal(table.places, RankTable.of(scores, generator).places)
    assert ((table.offsets >= 0) & (table.offsets < 1)).all()


def test_bags_may_be_larger_than_small_integers(generator):
    scores = torch.randperm(40_000, generator=generator).reshape(1, 1, -1).float()
    assert torch.equal(RankTable.of(scores, generator).places.float(), scores)


@pytest.mark.parametrize("ties", [False, True])
def test_every_member_of_a_bag_has_uniform_ranks(generator, ties):
    scores = torch.rand(20000, 4, generator=generator)
    if ties:
        scores = (3 * scores).floor()
    table = all_ranks(scores, generator)
    for member in range(4):
        assert kstest(table[:, member].numpy(), "uniform").pvalue > 0.01


def test_bag_ranks_are_a_permutation_within_each_bag(generator):
    scores = torch.randint(3, (100, 6), generator=generator).float()
    ranks = (6 * all_ranks(scores, generator)).floor().sort(dim=1).values
    assert torch.equal(ranks, torch.arange(6.0).double().expand(100, 6))


def test_bag_ranks_order_members_by_score(generator):
    scores = torch.randn(100, 6, generator=generator)
    table = all_ranks(scores, generator)
    assert torch.equal(table.argsort(dim=1), scores.argsort(dim=1))


def test_bag_ranks_agree_with_randomized_ranks(generator):
    scores = torch.randn(100, 6, generator=generator)
    table = all_ranks(scores, generator)[:, 0]
    alone = randomized_ranks(scores[:, 0], scores[:, 1:].T, generator)
    assert torch.equal((6 * table).floor(), (6 * alone).floor())
