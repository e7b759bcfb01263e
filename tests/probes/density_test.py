"""Densities: closed forms, extreme bags, and draws in any order."""

import pytest
import torch
from probe_helpers import bags, scores_of, solved

from sbi_colt import CoLT, CoLTConfig
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.probes import Bags, make_probe


def test_the_energy_is_the_mean_distance_of_the_others(generator):
    members, xs = bags(generator, num_pairs=4)
    gaps = torch.cdist(members, members)
    expected = gaps.sum(dim=2) / (members.shape[1] - 1)
    found = scores_of(solved("energy", generator, members, xs), members, xs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_density_is_that_of_the_other_members(generator):
    members, xs = bags(generator, num_pairs=3, size=11)
    squares = torch.cdist(members.double(), members.double()).square()
    width = 2 * 0.1 * squares.mean(dim=(1, 2), keepdim=True)
    kernel = (-squares / width).exp() - torch.eye(11)
    expected = -(kernel.sum(dim=2) / 10).log()
    found = scores_of(solved("density", generator, members, xs), members, xs)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)


def test_a_density_is_computed_once_for_the_same_bags(generator):
    members, xs = bags(generator, num_pairs=3)
    same = Bags(members, xs)
    first = make_probe("density", {})(same)
    assert make_probe("density", {})(same) is first
    assert not torch.equal(make_probe("fine-density", {})(same), first)
    torch.testing.assert_close(make_probe("density", {})(Bags(members, xs)), first)


def test_only_some_members_are_kernel_centres(generator, monkeypatch):
    """The cost is linear in their number, and ranks change little."""
    members, xs = bags(generator, num_pairs=5, size=201)
    probe = solved("density", generator, members, xs)
    everything = scores_of(probe, members, xs)
    monkeypatch.setattr("sbi_colt.probes.density._NUM_CENTRES", 100)
    some = scores_of(probe, members, xs)
    for a, b in zip(everything, some, strict=True):
        assert torch.corrcoef(torch.stack([a, b]))[0, 1] > 0.9


def test_bags_of_equal_members_have_a_density(generator):
    members = torch.zeros(3, 5, 2)
    for name in ("energy", "density"):
        probe = solved(name, generator, members, members)
        assert scores_of(probe, members, members).isfinite().all()


@pytest.mark.parametrize("name", ["energy", "density", "fine-density"])
def test_a_member_far_from_equal_ones_has_a_finite_density(name, generator):
    """All kernel centres coincide, so the bandwidth is next to nothing."""
    members = torch.zeros(2, 401, 2)
    members[:, -1] = 1e6
    probe = solved(name, generator, members, members)
    for numbers in (
        scores_of(probe, members, members),
        probe.scores(members, Bags(members, members)),
    ):
        assert numbers.isfinite().all()
        assert (numbers[:, -1] > numbers[:, 0]).all()


def test_a_narrow_posterior_is_seen_as_well(generator):
    """Far from zero the squares of small distances would be lost."""
    members = torch.randn(40, 101, 3, generator=generator)
    members[:, 0] *= 1.6
    found = []
    for width in (1.0, 1e-4):
        points = (5 + width * members).float()
        found.append(make_probe("density", {})(Bags(points, torch.zeros(40, 1))))
    torch.testing.assert_close(*found, atol=0.05, rtol=0.05)


def test_a_ball_is_the_same_for_draws_by_component(generator):
    """More draws than a density has kernel centres, those of one component first."""
    task = GaussianTask("covariance", 1.0, 2, 2)
    train, test = (task.draws(30, 60, generator) for _ in range(2))
    config = CoLTConfig(probes=("fine-density",))
    result = CoLT(config, seed=0).fit(train, show_progress_bar=False).test(test)
    samples = torch.randn(1000, 1, 2, generator=generator)
    samples[:500] += 8
    where = result.localize(test.xs[:1], samples)
    inside = where.contains(samples)[:, 0].double()
    assert float(inside[:500].mean() - inside[500:].mean()) == pytest.approx(0, abs=0.2)
