r"""Draws of a posterior with a known likelihood, by tempering a cloud of particles.

The particles start at the prior and pass through π_t(θ) ∝ p(θ) p(x | θ)^t, with t from
0 to 1 (Del Moral, Doucet and Jasra 2006). Each step of t leaves an effective share of
80% of the particles; then the particles are resampled and moved by Metropolis–Hastings
with π_t. A proposal adds one of two symmetric kinds of steps, each with a random scale:

- a Gaussian with the particles' covariance;
- the difference of two particles, taken as they were before the moves (after ter Braak
  2006). Such differences fit narrow modes, and lead from one mode to another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sbi_colt.randomness import isolated_rng

__all__ = ["sample_tempered"]

_SCALES = (1.0, 0.5, 0.2, 0.05)  # of the usual step 2.38 / sqrt(d) (Gelman et al. 1996)
_KEPT = 0.8  # effective share of the particles, after a step of t


def sample_tempered(
    prior: Any,
    log_likelihood: Callable[[Tensor], Tensor],
    num: int,
    generator: torch.Generator,
    num_moves: int = 30,
) -> Tensor:
    """Return draws of the posterior with shape ``(num, d)``, in double precision.

    Args:
        prior: Distribution over vectors with d entries, to sample and to evaluate.
        log_likelihood: From thetas ``(num, d)`` to log p(x | θ) ``(num,)``.
        num: Number of draws, which are the particles; some thousand.
        generator: CPU generator.
        num_moves: Moves after each step of t; twice as many after the last one.
    """
    with isolated_rng(generator):
        thetas = prior.sample((num,)).double()
    fits = _finite(log_likelihood(thetas))
    temperature = 0.0
    while temperature < 1:
        step = _largest_step(fits, 1 - temperature)
        temperature = 1.0 if step >= 1 - temperature else temperature + step
        kept = _resample((step * fits).softmax(dim=0), generator)
        thetas, fits = thetas[kept], fits[kept]
        cloud, factor = thetas, _factor(thetas)
        for _ in range(num_moves * (1 + (temperature == 1))):
            proposed = thetas + _steps(cloud, factor, generator)
            new_fits = _finite(log_likelihood(proposed))
            gain = _log_prior(prior, proposed) - _log_prior(prior, thetas)
            gain = gain + temperature * (new_fits - fits)
            moved = torch.rand(num, generator=generator).log() < gain
            thetas = torch.where(moved.unsqueeze(1), proposed, thetas)
            fits = torch.where(moved, new_fits, fits)
    return thetas[torch.randperm(num, generator=generator)]


def _finite(fits: Tensor) -> Tensor:
    """Return log-likelihoods with a finite, very low value where there is none."""
    return fits.double().nan_to_num(nan=-1e30, neginf=-1e30).clamp(min=-1e30)


def _log_prior(prior: Any, thetas: Tensor) -> Tensor:
    return prior.log_prob(thetas.float()).double()


def _largest_step(fits: Tensor, most: float) -> float:
    """Return the largest step of t up to ``most`` that keeps 80% of the particles."""

    def effective(step: float) -> float:
        weights = (step * fits).softmax(dim=0)
        return float(1 / weights.square().sum())

    if effective(most) >= _KEPT * len(fits):
        return most
    low, high = -60.0, math.log(most)
    for _ in range(50):
        middle = (low + high) / 2
        if effective(math.exp(middle)) >= _KEPT * len(fits):
            low = middle
        else:
            high = middle
    return math.exp(low)


def _resample(weights: Tensor, generator: torch.Generator) -> Tensor:
    """Return systematic indices: a particle of weight w is kept about n w times."""
    num = len(weights)
    places = (torch.arange(num) + torch.rand(1, generator=generator)).double() / num
    return torch.searchsorted(weights.cumsum(dim=0), places).clamp(max=num - 1)


def _factor(thetas: Tensor) -> Tensor:
    """Return a lower triangular square root of the particles' covariance."""
    covariance = torch.atleast_2d(thetas.T.cov())
    ridge = 1e-9 * covariance.diagonal().mean() + 1e-300
    eye = torch.eye(len(covariance), dtype=covariance.dtype)
    return torch.linalg.cholesky(covariance + ridge * eye)


def _steps(cloud: Tensor, factor: Tensor, generator: torch.Generator) -> Tensor:
    """Return a step for each particle, with shape ``(num, d)``."""
    num, dim = cloud.shape
    noise = torch.randn(num, dim, generator=generator, dtype=cloud.dtype)
    scales = torch.tensor(_SCALES, dtype=cloud.dtype)
    scales = scales[torch.randint(len(_SCALES), (num, 1), generator=generator)]
    scales = scales * 2.38 / math.sqrt(dim)
    gaussian = scales * (noise @ factor.T)
    first, second = torch.randint(num, (2, num), generator=generator)
    # A whole difference leads into another mode; a part of one stays within a mode.
    whole = torch.rand(num, 1, generator=generator) < 0.2
    shares = torch.where(whole, torch.ones_like(scales), scales / math.sqrt(2))
    jitter = 1e-3 * (noise @ factor.T)
    between = shares * (cloud[first] - cloud[second]) + jitter
    choice = torch.rand(num, 1, generator=generator) < 0.5
    return torch.where(choice, gaussian, between)
