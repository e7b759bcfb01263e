"""The Gaussian family: closed forms of its perturbations, and the null at α = 0."""

import pytest
import torch

from sbi_colt.benchmark.tasks.gaussian import PERTURBATIONS, GaussianTask

ALPHAS = {"t": 0.3, "modes": 0.3, "collapse": 0.3}


def moments_at(task, generator, which, num=20000):
    """Mean and covariance of p or q at one fixed x."""
    xs = torch.tensor([[0.5, 1.5, -0.3]]).expand(num, 3)
    values = (
        task.truths(xs, generator)[0]
        if which == "p"
        else task.estimates(xs, (1, num), generator)[0]
    )
    return values.mean(dim=0), values.T.cov(), xs[:1]


@pytest.mark.parametrize("perturbation", PERTURBATIONS[:5])
def test_perturbed_moments_have_their_closed_form(generator, perturbation):
    alpha = ALPHAS.get(perturbation, 0.6)
    task = GaussianTask(perturbation, alpha)
    mean, cov, x = moments_at(task, generator, "q", num=100000)
    weights, vector, toeplitz = task._weights()
    mu, sigma = (x @ weights.T)[0], (x @ vector).abs() * toeplitz
    direction = torch.linalg.eigh(toeplitz).eigenvectors[:, 0]
    expected = {
        "mean": ((1 + alpha) * mu, sigma),
        "covariance": (mu, (1 + alpha) * sigma),
        "anisotropic": (mu, sigma + alpha * torch.outer(direction, direction)),
        "t": (mu, sigma / (1 - 2 * alpha)),  # ν/(ν − 2) with ν = 1/α
        "modes": (
            (1 - 2 * alpha) * mu,
            sigma + 4 * alpha * (1 - alpha) * torch.outer(mu, mu),
        ),
    }[perturbation]
    torch.testing.assert_close(mean, expected[0], atol=0.03, rtol=0.02)
    torch.testing.assert_close(cov, expected[1], atol=0.08, rtol=0.05)


def test_collapse_leaves_the_second_mode_to_p(generator):
    task = GaussianTask("collapse", 0.3)
    weights, _, _ = task._weights()
    p_mean, _, x = moments_at(task, generator, "p")
    q_mean, _, _ = moments_at(task, generator, "q")
    mu = (x @ weights.T)[0]
    torch.testing.assert_close(q_mean, mu, atol=0.05, rtol=0.05)
    torch.testing.assert_close(p_mean, 0.4 * mu, atol=0.08, rtol=0.05)


def test_blind_prior_ignores_x_and_has_the_priors_moments(generator):
    task = GaussianTask("blind", 1.0)
    near = task.estimates(torch.zeros(20000, 3), (1, 20000), generator)[0]
    far = task.estimates(torch.full((20000, 3), 9.0), (1, 20000), generator)[0]
    prior = task.draws(20000, 1, generator).thetas
    for estimate in (near, far):
        torch.testing.assert_close(estimate.mean(0), prior.mean(0), atol=0.1, rtol=0.05)
        torch.testing.assert_close(estimate.std(0), prior.std(0), atol=0.1, rtol=0.05)


def test_truths_have_the_correlation_of_the_description(generator):
    xs = torch.tensor([[1.0, 2.0, -0.5]])
    task = GaussianTask("covariance", 0.5, 3, 3, seed=2)
    truths = task.truths(xs, generator, size=200_000)[:, 0].double()
    steps = torch.arange(3.0).double()
    toeplitz = 0.9 ** (steps - steps.unsqueeze(1)).abs()
    assert torch.allclose(truths.T.corrcoef(), toeplitz, atol=0.01)
