r"""Lotka–Volterra (Lueckmann et al. 2021, T.10): predators and their prey.

.. math::
    \frac{dX}{dt} = α X - β X Y, \qquad \frac{dY}{dt} = -γ Y + δ X Y

with X = 30 and Y = 1 at time 0; α, γ ~ LogNormal(−0.125, 0.5) and
β, δ ~ LogNormal(−3, 0.5). Within 20 days, at the times 0, 2.1, …, 18.9, both are
observed with log-normal noise, x ~ LogNormal(log X, 0.1) and likewise for Y.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Independent, LogNormal, Normal

from sbi_colt.benchmark.tasks.published.dynamics import log_populations
from sbi_colt.benchmark.tasks.published.smc import sample_tempered

__all__ = ["LotkaVolterra"]

_NUM_TIMES, _INTERVAL = 10, 2.1
_NOISE = 0.1
_START = torch.tensor([30.0, 1.0]).log()
_SMALLEST, _LARGEST = 1e-10, 1e4  # populations are clipped to this range
_LOG_MEANS = torch.tensor([-0.125, -3.0, -0.125, -3.0])
_LOG_SPREADS = 0.5 * torch.ones(4)


class LotkaVolterra:
    """Four rates, from ten noisy counts of either species."""

    dim = 4

    def prior(self) -> Any:
        """Return the prior."""
        return Independent(LogNormal(_LOG_MEANS, _LOG_SPREADS), 1)

    def log_counts(self, thetas: Tensor) -> Tensor:
        """Return log X and log Y at the ten times, with shape ``(10, 2, N)``."""
        alpha, beta, gamma, delta = thetas.double().unbind(1)
        growth = torch.stack([alpha, -gamma])
        coupling = torch.stack([-beta, delta])
        return log_populations(growth, coupling, _START, _NUM_TIMES, _INTERVAL)

    def _centres(self, thetas: Tensor) -> Tensor:
        """Return the clipped logs ``(N, 20)``: ten times of X, then ten of Y."""
        limits = torch.tensor([_SMALLEST, _LARGEST]).double().log()
        logs = self.log_counts(thetas).permute(2, 1, 0).flatten(1)
        return logs.clamp(*limits)

    def simulate(self, thetas: Tensor) -> Tensor:
        """Return xs ``(N, 20)`` for thetas ``(N, 4)``."""
        centres = self._centres(thetas)
        return (centres + _NOISE * torch.randn_like(centres)).exp().to(thetas.dtype)

    def log_likelihood(self, thetas: Tensor, x: Tensor) -> Tensor:
        """Return log p(x | θ), up to a constant, at one x for thetas ``(N, 4)``."""
        centres = self._centres(thetas)
        return -((x.to(centres).log() - centres) / _NOISE).square().sum(dim=1) / 2

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        """Return draws of the posterior at one x; see `Problem.reference`."""
        return (
            sample_tempered(
                Independent(Normal(_LOG_MEANS, _LOG_SPREADS), 1),
                lambda logs: self.log_likelihood(logs.exp(), x),
                num,
                generator,
                num_moves=10,  # enough for one mode, and each takes a solution
            )
            .exp()
            .float()
        )
