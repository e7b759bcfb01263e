"""The published problems: simulators and reference posteriors beside known facts."""

import math

import pytest
import torch
from scipy.integrate import solve_ivp
from torch.distributions import MultivariateNormal

from sbi_colt import Draws
from sbi_colt.baselines import sbc
from sbi_colt.benchmark.tasks.published import PROBLEMS, problems
from sbi_colt.benchmark.tasks.published.smc import sample_tempered
from sbi_colt.randomness import generator_from, isolated_rng

SIZES = {
    "two-moons": (2, 2),
    "gaussian-mixture": (2, 2),
    "gaussian-linear": (10, 10),
    "slcp": (5, 8),
    "sir": (2, 10),
    "bernoulli-glm": (10, 10),
    "lotka-volterra": (4, 20),
}
EXACT = ("two-moons", "gaussian-mixture", "gaussian-linear")


def pairs(name, num, seed=0):
    problem = PROBLEMS[name]
    with isolated_rng(generator_from(seed, "test", name)):
        thetas = problem.prior().sample((num,))
        return thetas, problem.simulate(thetas)


def repeated(name, theta, num, seed=0):
    """Return xs that are simulated at one θ."""
    with isolated_rng(generator_from(seed, "test", name)):
        return PROBLEMS[name].simulate(torch.tensor([theta]).expand(num, -1))


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_shapes_and_finite_values(name):
    dim, dim_x = SIZES[name]
    thetas, xs = pairs(name, 50)
    assert PROBLEMS[name].dim == dim
    assert thetas.shape == (50, dim)
    assert xs.shape == (50, dim_x)
    assert xs.dtype == thetas.dtype == torch.float32
    assert xs.isfinite().all()
    assert len(xs.unique(dim=0)) > 40  # SIR has counts of zero where nothing happens


def test_gaussian_linear_has_the_published_variances():
    thetas, xs = pairs("gaussian-linear", 20_000)
    assert torch.allclose(thetas.var(dim=0), torch.full((10,), 0.1), rtol=0.05)
    assert torch.allclose((xs - thetas).var(dim=0), torch.full((10,), 0.1), rtol=0.05)


def test_gaussian_mixture_has_two_widths():
    """Variance (1 + 0.01) / 2, and a fourth moment that no single Gaussian has."""
    noise = repeated("gaussian-mixture", [2.0, -3.0], 40_000) - torch.tensor([2.0, -3])
    assert noise.mean(dim=0).abs().max() < 0.02
    assert noise.var(dim=0).tolist() == pytest.approx([0.505, 0.505], rel=0.03)
    fourth = 3 * (1 + 0.01**2) / 2
    assert noise.pow(4).mean(dim=0).tolist() == pytest.approx([fourth] * 2, rel=0.1)
    # Both coordinates share their width.
    both = noise.square().prod(dim=1).mean()
    assert float(both) == pytest.approx((1 + 0.01**2) / 2, rel=0.1)


def test_slcp_points_have_the_stated_law():
    theta = [0.7, -1.5, -1.2, 0.9, 0.6]
    points = repeated("slcp", theta, 20_000).reshape(-1, 2)
    s1, s2, rho = 1.44, 0.81, math.tanh(0.6)
    expected = torch.tensor([[s1**2, rho * s1 * s2], [rho * s1 * s2, s2**2]])
    assert points.mean(dim=0).tolist() == pytest.approx([0.7, -1.5], abs=0.03)
    assert torch.allclose(points.T.cov(), expected, rtol=0.03)
    x = points[:4].flatten()
    law = MultivariateNormal(torch.tensor(theta[:2]), expected)
    log_likelihood = PROBLEMS["slcp"].log_likelihood(torch.tensor([theta]), x)
    assert float(log_likelihood) == pytest.approx(
        float(law.log_prob(points[:4]).sum()), rel=1e-4
    )


def test_the_glm_filter_is_smooth_and_its_statistics_sufficient():
    problem = PROBLEMS["bernoulli-glm"]
    covariance = problem.prior().covariance_matrix
    assert float(covariance[0, 0]) == pytest.approx(2)
    assert covariance[0, 1:].abs().max() == 0
    # The first row of F has the single entry 1, so f_1 has variance 1. The second row
    # says that 1.333 f_2 - 2 f_1 has variance 1 and does not depend on f_1.
    row = torch.tensor([-2.0, 1 + 1 / 3])
    first = covariance[1:3, 1:3]
    assert float(first[0, 0]) == pytest.approx(1, abs=1e-3)
    assert float(row @ first @ row) == pytest.approx(1, abs=1e-2)
    assert float((first @ row)[0]) == pytest.approx(0, abs=1e-2)

    thetas, _ = pairs("bernoulli-glm", 1)
    xs = repeated("bernoulli-glm", thetas[0].tolist(), 20_000)
    chances = (problem.design @ thetas[0]).sigmoid()
    expected = problem.design.T @ chances
    spread = (problem.design.square().T @ (chances * (1 - chances))).sqrt()
    assert ((xs.mean(dim=0) - expected) / spread).abs().max() < 0.04
    assert torch.allclose(xs.std(dim=0), spread, rtol=0.04)

    # From spikes: the Bernoulli likelihood of all bins, up to a constant.
    spikes = torch.bernoulli(chances, generator=torch.Generator().manual_seed(0))
    others, _ = pairs("bernoulli-glm", 5, seed=1)
    logits = others @ problem.design.T
    direct = torch.distributions.Bernoulli(logits=logits).log_prob(spikes).sum(dim=1)
    found = problem.log_likelihood(others, spikes @ problem.design)
    assert torch.allclose(found, direct, rtol=1e-4, atol=1e-3)


def test_epidemics_conserve_what_they_must():
    """S/N + I/N - (γ/β) log S/N is constant, and SciPy finds the same course."""
    problem = PROBLEMS["sir"]
    thetas, _ = pairs("sir", 30)
    susceptible, infected = problem.log_shares(thetas).unbind(1)  # (10, 30) each
    ratio = thetas[:, 1].double() / thetas[:, 0].double()
    conserved = susceptible.exp() + infected.exp() - ratio * susceptible
    assert float((conserved - conserved[0]).abs().max()) < 1e-6

    beta, gamma = thetas[0].double().tolist()

    def slope(_, state):
        new = beta * state[0] * state[1]
        return [-new, new - gamma * state[1]]

    start = [1 - 1e-6, 1e-6]
    times = [17.0 * i for i in range(10)]
    course = solve_ivp(slope, (0, 153), start, t_eval=times, rtol=1e-9, atol=1e-14)
    assert infected[:, 0].exp().numpy() == pytest.approx(course.y[1], rel=1e-5)

    counts = repeated("sir", thetas[0].tolist(), 4000).double()
    shares = infected[:, 0].exp()
    error = (1000 * shares * (1 - shares) / 4000).sqrt() + 1e-3
    assert ((counts.mean(dim=0) - 1000 * shares) / error).abs().max() < 4


def test_predators_and_prey_conserve_what_they_must():
    """δX − γ log X + βY − α log Y is constant, also where populations are extreme."""
    problem = PROBLEMS["lotka-volterra"]
    thetas, _ = pairs("lotka-volterra", 200)
    alpha, beta, gamma, delta = thetas.double().unbind(1)
    prey, predators = problem.log_counts(thetas).unbind(1)  # (10, 200) each
    terms = torch.stack(
        [delta * prey.exp(), -gamma * prey, beta * predators.exp(), -alpha * predators]
    )
    drift = (terms.sum(dim=0) - terms[:, 0].sum(dim=0)).abs()
    assert float(drift.max()) < 1e-3

    a, b, c, d = thetas[0].double().tolist()

    def slope(_, state):
        return [a * state[0] - b * state[0] * state[1], (d * state[0] - c) * state[1]]

    times = [2.1 * i for i in range(10)]
    course = solve_ivp(slope, (0, 19), [30, 1], t_eval=times, rtol=1e-9, atol=1e-12)
    assert prey[:, 0].exp().numpy() == pytest.approx(course.y[0], rel=1e-4)
    assert predators[:, 0].exp().numpy() == pytest.approx(course.y[1], rel=1e-4)


def test_lotka_volterra_has_log_normal_noise():
    xs = repeated("lotka-volterra", [0.7, 0.05, 0.9, 0.04], 5000).log()
    assert torch.allclose(xs.std(dim=0), torch.full((20,), 0.1), rtol=0.05)
    assert xs[:, 0].mean().exp() == pytest.approx(30, rel=0.01)
    assert xs[:, 10].mean().exp() == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("name", EXACT)
def test_exact_references_are_calibrated(name, generator):
    """Ranks of 4000 true parameters among exact draws, of each parameter."""
    thetas, xs = pairs(name, 4000, seed=2)
    draws = [PROBLEMS[name].reference(x, 20, generator) for x in xs]
    found = Draws(thetas, xs, torch.stack(draws, dim=1))
    assert sbc(found, seed=0).p_value > 0.01


@pytest.mark.parametrize("x", [[2.0, -3.0], [9.8, 10.5]])
def test_tempering_finds_the_exact_mixture(x, generator):
    """The narrow and the wide part, also where the prior's edge cuts both."""
    problem, x = PROBLEMS["gaussian-mixture"], torch.tensor(x)

    def log_likelihood(thetas):
        square = (thetas - x).square().sum(dim=1)
        parts = [-square / 2, -square / 0.02 - math.log(0.01)]
        return torch.stack(parts).logsumexp(dim=0)

    found = sample_tempered(problem.prior(), log_likelihood, 4000, generator)
    exact = problem.reference(x, 20_000, generator).double()
    for part in (lambda t: (t - x).norm(dim=1) < 0.25, lambda t: t[:, 0] > x[0]):
        share = float(part(exact).double().mean())
        assert float(part(found).double().mean()) == pytest.approx(share, abs=0.03)
    assert torch.allclose(found.mean(dim=0), exact.mean(dim=0), atol=0.05)
    assert torch.allclose(found.std(dim=0), exact.std(dim=0), rtol=0.06)


@pytest.mark.slow
def test_the_epidemics_reference_is_that_of_a_grid(generator):
    """Posterior mean and width of log β and log γ by a sum over a fine grid."""
    problem = PROBLEMS["sir"]
    _, xs = pairs("sir", 20, seed=3)
    x = xs[xs.sum(dim=1).argsort()[10]]
    draws = problem.reference(x, 1000, generator).log().double()
    centre, width = draws.mean(dim=0), draws.std(dim=0)
    steps = torch.linspace(-6, 6, 81).double().unsqueeze(1)
    grid = torch.cartesian_prod(*(centre + width * steps).unbind(1))
    prior = problem.prior().log_prob(grid.exp().float()).double() + grid.sum(dim=1)
    weights = (prior + problem.log_likelihood(grid.exp(), x)).softmax(dim=0)
    mean = weights @ grid
    spread = (weights @ (grid - mean).square()).sqrt()
    assert ((centre - mean) / spread).abs().max() < 0.12
    assert torch.allclose(width, spread, rtol=0.1)


def test_slcp_has_four_modes_of_equal_mass(generator):
    _, xs = pairs("slcp", 1)
    draws = PROBLEMS["slcp"].reference(xs[0], 2000, generator)
    signs = (draws[:, 2] > 0).long() + 2 * (draws[:, 3] > 0).long()
    shares = signs.bincount(minlength=4) / 2000
    assert shares.tolist() == pytest.approx([0.25] * 4, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["slcp", "bernoulli-glm"])
def test_tempered_references_are_calibrated(name, generator, monkeypatch):
    """Ranks of 40 true parameters among draws of the tempered sampler."""
    monkeypatch.setattr(problems, "_NUM_PARTICLES", 4000)
    thetas, xs = pairs(name, 40, seed=4)
    draws = [PROBLEMS[name].reference(x, 400, generator)[:40] for x in xs]
    found = Draws(thetas, xs, torch.stack(draws, dim=1))
    assert sbc(found, seed=0).p_value > 0.01


@pytest.mark.slow
def test_the_populations_reference_is_that_of_importance_sampling(generator):
    """Weights of a wide Gaussian by the known likelihood, in log θ."""
    problem = PROBLEMS["lotka-volterra"]
    _, xs = pairs("lotka-volterra", 1, seed=5)
    draws = problem.reference(xs[0], 1500, generator).log().double()
    wide = MultivariateNormal(draws.mean(dim=0), 2 * draws.T.cov())
    with isolated_rng(generator):
        logs = wide.sample((6000,))
    prior = problem.prior().log_prob(logs.exp().float()).double() + logs.sum(dim=1)
    fits = prior + problem.log_likelihood(logs.exp(), xs[0]) - wide.log_prob(logs)
    weights = fits.softmax(dim=0)
    assert float(1 / weights.square().sum()) > 1500
    mean = weights @ logs
    spread = (weights @ (logs - mean).square()).sqrt()
    assert ((draws.mean(dim=0) - mean) / spread).abs().max() < 0.15
    assert torch.allclose(draws.std(dim=0), spread, rtol=0.1)
