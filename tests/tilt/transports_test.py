"""Shifts and widths of posteriors that are no Gaussians."""

import pytest
import torch
from tilt_helpers import found_in

from sbi_colt.tilt.bags import choose_members
from sbi_colt.tilt.transports import transported


def gamma(generator, *shape):
    """Skewed draws with mean 0 and variance 1."""
    return (-torch.rand(2, *shape, generator=generator).log().sum(dim=0) - 2) / 2**0.5


def uniform(generator, *shape):
    """Draws with an edge, with mean 0 and variance 1."""
    return (torch.rand(*shape, generator=generator) - 0.5) * 12**0.5


def two_modes(generator, *shape):
    sign = torch.randint(2, shape, generator=generator) * 2.0 - 1
    return 0.9 * sign + 0.45 * torch.randn(*shape, generator=generator)


ERRORS = {
    "shift": lambda samples, xs: samples + 0.5,
    "width": lambda samples, xs: 0.6 * samples,
    "shift with x": lambda samples, xs: samples + 0.5 * xs,
}


@pytest.mark.parametrize("family", ERRORS)
@pytest.mark.parametrize("law", [gamma, uniform, two_modes])
def test_the_error_of_a_posterior_that_is_no_gaussian(generator, law, family):
    right = 0
    for _ in range(4):
        xs = torch.randn(400, 1, generator=generator)
        samples = ERRORS[family](law(generator, 99, 400, 1), xs)
        found = found_in(law(generator, 400, 1), xs, samples, generator)
        right += found[0].family == family
    assert right >= 3


def test_a_transport_undoes_its_error(generator):
    xs = torch.randn(2000, 2, generator=generator)
    moves, ratios = 0.5 + 0.3 * xs[:, :1], (0.2 * xs[:, 1:]).exp()
    truths = gamma(generator, 2000, 1)
    samples = ratios * gamma(generator, 99, 2000, 1) + moves
    bags = choose_members(truths, samples, generator)
    changed = dict(transported(bags, xs))
    rows = torch.arange(len(bags))
    right = bags.members[rows, bags.truth]
    for names, own in changed.items():
        torch.testing.assert_close(own.members[rows, own.truth], right)  # truths stay
        assert torch.equal(own.truth, bags.truth), names
    own = changed["shift with x", "width with x"]
    centred = own.members - right.unsqueeze(1)
    mean = centred.sum(dim=1).squeeze(1) / 99  # of the draws less their truth
    for column in (torch.ones(2000), *xs.T):
        assert abs(float((mean * column).mean())) < 0.1
