r"""SIR (Lueckmann et al. 2021, T.9): an epidemic among a million people.

.. math::
    \frac{dS}{dt} = -β S I / N, \qquad \frac{dI}{dt} = β S I / N - γ I

with N = 10⁶, one infected person on day 0, β ~ LogNormal(log 0.4, 0.5) and
γ ~ LogNormal(log 1/8, 0.2). Within 160 days, on days 0, 17, …, 153, a thousand people
are tested: x_t ~ Binomial(1000, I_t / N).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Independent, LogNormal, Normal

from sbi_colt.benchmark.tasks.published.dynamics import log_populations
from sbi_colt.benchmark.tasks.published.smc import sample_tempered

__all__ = ["SIR"]

_POPULATION = 1e6
_NUM_TESTED = 1000
_NUM_TIMES, _INTERVAL = 10, 17.0
_LOG_MEANS = torch.tensor([0.4, 1 / 8]).log()
_LOG_SPREADS = torch.tensor([0.5, 0.2])


class SIR:
    """Rates of contact β and of recovery γ, from ten counts of infected people."""

    dim = 2

    def prior(self) -> Any:
        """Return the prior."""
        return Independent(LogNormal(_LOG_MEANS, _LOG_SPREADS), 1)

    def log_shares(self, thetas: Tensor) -> Tensor:
        """Return log S/N and log I/N on the ten days, with shape ``(10, 2, N)``."""
        beta, gamma = thetas.double().unbind(1)
        growth = torch.stack([torch.zeros_like(gamma), -gamma])
        coupling = torch.stack([-beta, beta])
        infected = 1 / _POPULATION
        start = torch.tensor([math.log1p(-infected), math.log(infected)])
        return log_populations(growth, coupling, start, _NUM_TIMES, _INTERVAL)

    def simulate(self, thetas: Tensor) -> Tensor:
        """Return xs ``(N, 10)``, counts of infected people, for thetas ``(N, 2)``."""
        shares = self.log_shares(thetas)[:, 1].exp().clamp(0, 1)  # (10, N)
        counts = torch.full_like(shares, _NUM_TESTED)
        return torch.binomial(counts, shares).T.to(thetas.dtype)

    def log_likelihood(self, thetas: Tensor, x: Tensor) -> Tensor:
        """Return log p(x | θ), up to a constant, at one x for thetas ``(N, 2)``."""
        log_share = self.log_shares(thetas)[:, 1].T  # (N, 10)
        rest = torch.log1p(-log_share.exp().clamp(max=1 - 1e-12))
        x = x.to(log_share)
        return (x * log_share + (_NUM_TESTED - x) * rest).sum(dim=1)

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
