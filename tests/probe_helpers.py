"""Random bags, and probes that are solved for them."""

import torch

from sbi_colt.probes import Bags, make_probe
from sbi_colt.probes.coordinates import Scales


def bags(generator, num_pairs=30, size=41, dim=2):
    members = torch.randn(num_pairs, size, dim, generator=generator)
    return members, torch.randn(num_pairs, 3, generator=generator)


def solved(name, generator, members, xs):
    """Return a function of members and xs: the probe, solved for these bags."""
    probe = make_probe(name, {})
    scales = Scales.of(members[:, 0], xs, members[:, 1:].transpose(0, 1))
    probe.prepare(scales, xs[:2], generator, None, None)
    probe.solve(Bags(members, xs), generator)
    return probe


def scores_of(probe, members, xs):
    return probe(Bags(members, xs))


def correlated_bags(generator, num_bags=30, size=200, dim=3):
    mix = torch.eye(dim) + torch.randn(num_bags, dim, dim, generator=generator).tril(-1)
    members = torch.randn(num_bags, size, dim, generator=generator) @ mix
    return members + 5 * torch.randn(num_bags, 1, dim, generator=generator)


def scales_of(members, xs):
    return Scales.of(members[:, 0], xs, members[:, 1:].transpose(0, 1))
