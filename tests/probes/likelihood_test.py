"""The learned likelihood sees posteriors that throw information in x away."""

import math

import pytest
import torch

from sbi_colt import CoLT, CoLTConfig, Draws
from sbi_colt.draws import make_predictive
from sbi_colt.probes.likelihood import _minus_log_density


def simulate(thetas, generator, noise=1.0):
    """Two numbers, each θ with noise: half of the information in each."""
    noises = torch.randn(len(thetas), 2, generator=generator)
    return thetas + noise * noises  # (n, 1) -> (n, 2)


def lossy_draws(num, generator, num_draws=60):
    """Draws of p(θ | x[0]), which is calibrated and does not use x[1]."""
    thetas = torch.randn(num, 1, generator=generator)
    xs = simulate(thetas, generator)
    noise = torch.randn(num_draws, num, 1, generator=generator)
    samples = xs[:, :1] / 2 + math.sqrt(0.5) * noise
    return Draws(thetas, xs, samples)


def distance(train, test, probe="likelihood"):
    config = CoLTConfig(probes=(probe,), num_redraws=19)
    colt = CoLT(config, seed=0).fit(train, show_progress_bar=False)
    return colt.test(test).distance


def test_a_calibrated_posterior_that_discards_x_is_found(generator):
    train, test = lossy_draws(300, generator), lossy_draws(1000, generator)
    learned = distance(train, test)
    # What the true likelihood, a Gaussian around the mean of x, finds.
    around = test.xs.mean(dim=1, keepdim=True)
    nearer = (test.samples - around).abs() < (test.thetas - around).abs()
    ranks = nearer.double().mean(dim=0).flatten().sort().values
    oracle = float((torch.arange(1, 1001) / 1000 - ranks).abs().max())
    assert learned > 0.8 * oracle > 0.1
    assert distance(train, test, "mahalanobis") < 0.06


def test_replicates_are_learned_from(generator):
    """With 20 training pairs and 1200 replicates more is found than without these."""
    few, test = lossy_draws(20, generator), lossy_draws(1000, generator)
    primes = few.samples[0]
    replicates = simulate(primes.repeat(60, 1), generator).reshape(60, 20, 2)
    data = make_predictive(few.xs, primes, replicates)
    with_replicates = distance(few.with_predictive(data), test)
    assert with_replicates > distance(few, test) + 0.03


def test_the_density_is_that_of_a_gaussian(generator):
    """Against torch's own, with a lower triangular factor of the precision."""
    size = 3
    outputs = torch.randn(4, 2 * size + 3, generator=generator)
    described = torch.randn(4, size, generator=generator)
    factor = torch.diag_embed(outputs[:, size : 2 * size].exp())
    factor[:, [1, 2, 2], [0, 0, 1]] = outputs[:, 2 * size :]
    precision = factor.transpose(1, 2) @ factor
    expected = torch.distributions.MultivariateNormal(
        outputs[:, :size], precision_matrix=precision
    ).log_prob(described)
    found = -_minus_log_density(outputs, described) - size / 2 * math.log(2 * math.pi)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (40,), (6, 7), (2, 30)])
@pytest.mark.parametrize("kind", ["heavy", "counts", "constant", "huge"])
def test_any_data_have_finite_scores(shape, kind, generator):
    xs = torch.randn(30, *shape, generator=generator)
    if kind == "heavy":
        xs = xs / torch.randn(30, *shape, generator=generator).abs() ** 3
    elif kind == "counts":
        xs = xs.abs().floor()
    elif kind == "constant":
        xs = torch.ones(30, *shape)
    elif kind == "huge":
        xs = 1e30 * xs
    thetas = torch.randn(30, 2, generator=generator)
    draws = Draws(thetas, xs, 1e6 * torch.randn(9, 30, 2, generator=generator))
    assert 0 <= distance(draws, _other(draws)) <= 1


def _other(draws):
    """The same draws as other pairs: no truth and no x is the same."""
    return Draws(draws.thetas + 0.5, draws.xs * 0.5 + 1, draws.samples)


def test_a_fitted_test_is_saved_and_loaded(generator, tmp_path):
    train, test = lossy_draws(60, generator), lossy_draws(60, generator)
    colt = CoLT(CoLTConfig(probes=("likelihood",)), seed=0)
    colt.fit(train, show_progress_bar=False).save(tmp_path / "test.npz")
    loaded = CoLT.load(tmp_path / "test.npz")
    assert loaded.test(test).ranks.tolist() == colt.test(test).ranks.tolist()
