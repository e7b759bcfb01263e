"""Where members stand in their bags: the same for all, with weights and without."""

import pytest
import torch

from sbi_colt.tilt.bags import Bags, choose_members, weighted_ranks
from sbi_colt.tilt.families import make_features


def make_bags(generator, weighted=False, num_pairs=20, size=40, dim=3):
    members = torch.randn(num_pairs, size, dim, generator=generator).double()
    truth = torch.randint(size, (num_pairs,), generator=generator)
    weights = torch.randn(num_pairs, size, generator=generator) if weighted else None
    return Bags(members, truth, weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_features_do_not_depend_on_the_order_of_members(generator, weighted):
    bags = make_bags(generator, weighted)
    order = torch.randperm(bags.size, generator=generator)
    weights = None if bags.log_weights is None else bags.log_weights[:, order]
    other = Bags(bags.members[:, order], bags.truth, weights)
    ours, theirs = make_features(bags).values[:, order], make_features(other).values
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_features_do_not_depend_on_the_units_of_parameters(generator):
    bags = make_bags(generator)
    scaled = bags.members * torch.tensor([1e-6, 3.0, 1e6]) + torch.tensor([0, 7, -1e6])
    ours = make_features(bags).values
    theirs = make_features(Bags(scaled, bags.truth)).values
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_weight_of_two_is_a_member_twice(generator):
    values = torch.randn(5, 10, 1, generator=generator).double()
    twice = torch.cat([values, values[:, :1]], dim=1)
    weights = torch.zeros(5, 10).double()
    weights[:, 0] = torch.tensor(2.0).log()
    truth = torch.zeros(5, dtype=torch.long)
    ours, theirs = Bags(values, truth, weights), Bags(twice, truth)
    torch.testing.assert_close(ours.standardised, theirs.standardised[:, :10])
    torch.testing.assert_close(ours.ranks, theirs.ranks[:, :10])


def test_ties_share_their_rank():
    values = torch.tensor([[1.0, 1.0, 0.0, 2.0]])
    ranks = weighted_ranks(values, torch.full((1, 4), 0.25))
    assert ranks.tolist() == [[0.5, 0.5, 0.125, 0.875]]


def test_constant_parameters_have_no_features(generator):
    bags = make_bags(generator)
    bags.members[..., 1] = 3.0
    assert make_features(bags).values.isfinite().all()
    assert (bags.standardised[..., 1] == 0).all()


def test_bags_have_a_hundred_members_and_the_truth_at_its_place(generator):
    thetas = torch.full((30, 2), 9.0)
    samples = torch.randn(250, 30, 2, generator=generator)
    weights = torch.zeros(251, 30)
    weights[0] = 5.0
    bags = choose_members(thetas, samples, generator, log_weights=weights)
    assert bags.members.shape == (30, 100, 2)
    rows = torch.arange(30)
    assert (bags.members[rows, bags.truth] == 9).all()
    assert bags.log_weights is not None
    assert (bags.log_weights[rows, bags.truth] == 5).all()
    assert bags.log_weights.sum() == 30 * 5
    assert len(bags.truth.unique()) > 10


def test_who_is_far_from_all_others_is_alone(generator):
    bags = make_bags(generator, dim=2)
    bags.members[:, 7] = torch.tensor([15.0, 0.0])
    alone = bags.loneliness > 0
    assert alone[:, 7].all()
    assert alone.sum() == 20
