"""The drift: the direction of the mean error that x predicts."""

import pytest
import torch
from probe_helpers import bags, scores_of, solved

from sbi_colt import CoLT, CoLTConfig
from sbi_colt.probes import Bags


@pytest.mark.parametrize("compared", [500, 150])
def test_the_drift_is_that_of_a_linear_error(generator, monkeypatch, compared):
    """Truths are off by 0.8 x₁ in the first parameter; all of them are regressed."""
    monkeypatch.setattr("sbi_colt.probes.drift._MAX_COMPARED", compared)
    members, xs = bags(generator, num_pairs=300)
    members[:, 0, 0] += 0.8 * xs[:, 0]
    probe = solved("drift", generator, members, xs)
    assert len(probe.anchors) == len(probe.weights) == 300
    points = torch.eye(2).expand(2, 2, 2)
    at = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    first, second = (-probe.scores(points, Bags(points, at))).unbind(1)
    torch.testing.assert_close(first, torch.tensor([0.8, -0.8]), atol=0.25, rtol=0)
    assert (second.abs() < 0.25).all()


def test_the_drift_points_the_right_way_where_x_tells_little():
    """Chosen by squared error, the kernel would have a mean cosine of 0.10."""
    cosines = []
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        members, xs = bags(generator, num_pairs=100, size=2, dim=10)
        members[:, 0, :2] += 0.6 * _circle(xs)
        probe = solved("drift", generator, members, xs)
        fresh = torch.randn(500, 3, generator=generator)
        points = torch.eye(10).expand(500, 10, 10)
        drift = -probe.scores(points, Bags(points, fresh))
        cosines.append((drift[:, :2] * _circle(fresh)).sum(dim=1) / drift.norm(dim=1))
    assert torch.cat(cosines).mean() > 0.18


def _circle(xs):
    return torch.stack([(2 * xs[:, 0]).sin(), (2 * xs[:, 0]).cos()], dim=1)


def test_xs_that_are_all_alike_leave_a_constant_drift(generator):
    members, xs = bags(generator)
    members[:, 0] += 1
    probe = solved("drift", generator, members, torch.ones_like(xs))
    scores = scores_of(probe, members, torch.ones_like(xs))
    assert (scores[:, 0] < scores[:, 1:].mean(dim=1)).double().mean() > 0.6


def test_an_embedding_net_without_numbers_is_named(make_draws, generator):
    net = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(net.weight, torch.nan)
    config = CoLTConfig(probes=("drift",), embedding_net=net)
    with pytest.raises(ValueError, match="embedding_net: expected finite features"):
        CoLT(config, seed=0).fit(make_draws(30, 20, 2, generator))
