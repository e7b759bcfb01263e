"""Quadratic forms: the direction that is too wide is found, whatever the units."""

import torch
from probe_helpers import bags, scores_of, solved

from sbi_colt.probes.axes import AxesProbe
from sbi_colt.probes.quadratic import QuadraticProbe


def test_the_quadratic_form_finds_the_wrong_direction(generator):
    members, xs = bags(generator, num_pairs=300, dim=5)
    members[:, 0, 3] *= 0.3  # q is too wide there
    probe = solved("quadratic", generator, members, xs)
    assert isinstance(probe, QuadraticProbe)
    axis = probe.directions[:, probe.weights.argmax()]
    assert axis[3].abs() > 0.95


def test_axes_are_those_of_the_draws(generator):
    """With as many parameters as pairs, truths alone would not show the direction."""
    members, xs = bags(generator, num_pairs=60, size=200, dim=60)
    mixing = torch.linalg.qr(torch.randn(60, 60, generator=generator)).Q
    widths = torch.linspace(1, 4, 60)
    members = members * widths
    members[:, 0, 7] *= 0.3  # q is too wide along its eighth axis
    probe = solved("axes", generator, members @ mixing.T, xs)
    assert isinstance(probe, AxesProbe)
    axis = mixing.T @ probe.directions[:, probe.weights.argmax()]
    assert axis[7].abs() / axis.norm() > 0.8


def test_axes_do_not_depend_on_the_units_of_parameters(generator):
    members, xs = bags(generator, dim=4)
    members[:, 0] *= 0.5
    units = torch.tensor([1e-3, 1.0, 50.0, 1e4])
    scores = scores_of(solved("axes", generator, members, xs), members, xs)
    probe = solved("axes", generator, members * units, xs)
    others = scores_of(probe, members * units, xs)
    torch.testing.assert_close(scores, others, rtol=1e-2, atol=1e-3)


def test_a_constant_parameter_has_no_say(generator):
    members, xs = bags(generator, dim=3)
    members[:, 0] *= 0.5
    orders = []
    for value in (0.0, 7.0):
        members[..., 2] = value
        scores = scores_of(solved("axes", generator, members, xs), members, xs)
        orders.append(scores.argsort(dim=1).argsort(dim=1).double())
    assert (orders[0] - orders[1]).abs().mean() < 0.1  # of 41 places
