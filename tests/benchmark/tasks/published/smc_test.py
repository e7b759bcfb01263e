"""The tempered sampler, beside posteriors that are known exactly."""

import pytest
import torch
from sbi.utils import BoxUniform
from torch.distributions import Independent, MultivariateNormal, Normal

from sbi_colt.benchmark.tasks.published.smc import sample_tempered


def test_a_skewed_gaussian_posterior_has_the_right_moments(generator):
    """A linear model with correlated columns; mean and covariance in closed form."""
    mixing = torch.tensor([[1.0, 0.5], [0.2, -1.0], [2.0, 1.0]]).double()
    x = torch.tensor([1.0, -2.0, 0.5]).double()
    covariance = torch.linalg.inv(torch.eye(2).double() + mixing.T @ mixing / 0.01)
    mean = covariance @ mixing.T @ x / 0.01

    def log_likelihood(thetas):
        return -(x - thetas @ mixing.T).square().sum(dim=1) / 0.02

    prior = MultivariateNormal(torch.zeros(2), torch.eye(2))
    draws = sample_tempered(prior, log_likelihood, 4000, generator)
    widths = covariance.diagonal().sqrt()
    assert float(((draws.mean(dim=0) - mean) / widths).abs().max()) < 0.1
    standard = torch.linalg.solve(torch.linalg.cholesky(covariance), (draws - mean).T)
    assert torch.allclose(standard.cov(), torch.eye(2).double(), atol=0.1)


def test_modes_far_apart_keep_their_masses(generator):
    """Narrow modes of different shapes and masses in three dimensions."""
    masses = torch.tensor([0.6, 0.3, 0.1]).double()
    centres = torch.tensor([[4.0, 4, -4], [-4, 2, 3], [0, -4, 0]])
    widths = torch.tensor([[0.05, 0.2, 0.1], [0.2, 0.05, 0.4], [0.1, 0.1, 0.1]])
    modes = Independent(Normal(centres.double(), widths.double()), 1)

    def log_likelihood(thetas):
        return (masses.log() + modes.log_prob(thetas.unsqueeze(1))).logsumexp(dim=1)

    box = BoxUniform(-5 * torch.ones(3), 5 * torch.ones(3))
    draws = sample_tempered(box, log_likelihood, 8000, generator)
    nearest = torch.cdist(draws, centres.double()).argmin(dim=1)
    found = nearest.bincount(minlength=3) / len(draws)
    assert found.tolist() == pytest.approx(masses.tolist(), abs=0.05)
    for mode, width in enumerate(widths):
        inside = draws[nearest == mode]
        assert torch.allclose(inside.std(dim=0).float(), width, rtol=0.15)


def test_a_likelihood_that_says_nothing_gives_the_prior_back(generator):
    prior = MultivariateNormal(torch.tensor([3.0]), torch.tensor([[4.0]]))
    draws = sample_tempered(prior, lambda t: torch.zeros(len(t)), 4000, generator)
    assert float(draws.mean()) == pytest.approx(3, abs=0.15)
    assert float(draws.std()) == pytest.approx(2, abs=0.15)


def test_thetas_without_a_likelihood_are_left(generator):
    """Half of the prior has a likelihood of NaN, or of zero."""

    def log_likelihood(thetas):
        value = torch.where(thetas[:, 0] > 0.5, torch.nan, 0.0)
        return torch.where(thetas[:, 0] < -0.5, -torch.inf, value)

    box = BoxUniform(-torch.ones(1), torch.ones(1))
    draws = sample_tempered(box, log_likelihood, 2000, generator)
    assert float(draws.abs().max()) <= 0.5
    assert float(draws.std()) == pytest.approx(12**-0.5, abs=0.02)


@pytest.mark.usefixtures("unchanged_random_state")
def test_the_same_generator_gives_the_same_draws():
    prior = MultivariateNormal(torch.zeros(2), torch.eye(2))
    first, second = (
        sample_tempered(
            prior, lambda t: -t.sum(dim=1), 200, torch.Generator().manual_seed(3)
        )
        for _ in range(2)
    )
    assert torch.equal(first, second)
