"""A problem with an exact posterior, and runs near one observation of it."""

import pytest
import torch
from configs import make_config
from torch.distributions import MultivariateNormal

from sbi_colt import diagnose

PRIOR = MultivariateNormal(torch.zeros(2), torch.eye(2))
X_O = torch.tensor([1.0, 0.0])
# sbi asks for the bounds of a prior that is no distribution of torch.
NO_BOUNDS = pytest.mark.filterwarnings("ignore:No prior bounds:UserWarning")
FIXED = make_config(probes=("mahalanobis", "marginal"), num_redraws=199)


def simulator(thetas):
    return thetas + 0.3 * torch.randn_like(thetas)


def make_posterior(width=1.0, only_near=False):
    """The exact posterior, or one that is wrong everywhere or near X_O alone."""
    variance = 0.09 / 1.09

    def q(xs, num):
        scale = torch.full((len(xs), 1), width)
        if only_near:
            near = (xs - X_O).norm(dim=1, keepdim=True) < 1
            scale = torch.where(near, scale, 1.0)
        return xs / 1.09 + scale * variance**0.5 * torch.randn(num, *xs.shape)

    return q


def focused(posterior, seed, prior=PRIOR, make=simulator, x_o=X_O, **options):
    return diagnose(
        posterior,
        prior,
        make,
        x_o=x_o,
        seed=seed,
        show_progress_bar=False,
        **options,
    )


class SampledOnly:
    """The prior of these tests, without a density."""

    def sample(self, shape=()):
        return torch.randn(*shape, 2)


class Unnormalised(SampledOnly):
    """The same with a density that lacks a factor of a million."""

    mean, variance = torch.zeros(2), torch.ones(2)

    def log_prob(self, thetas):
        return -thetas.square().sum(dim=-1) / 2 - 13.8
