r"""Problems of the sbi benchmark about two populations: an epidemic and a food chain.

.. math::
    \frac{d}{dt} \log u = a_1 + b_1 v, \qquad \frac{d}{dt} \log v = a_2 + b_2 u

solved by the classical Runge–Kutta method of fourth order. With logarithms the
populations stay positive, and an exponential rise is solved without error. The rates
have independent log-normal priors. The methods are documented in `Problem`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Independent, LogNormal, Normal

from sbi_colt.benchmark.tasks.published.smc import sample_tempered

__all__ = ["SIR", "LotkaVolterra"]


class _Populations:
    """What both problems share: log-normal rates, and draws of their posterior."""

    def __init__(self, log_means: Tensor, log_spreads: Tensor):
        self.dim = len(log_means)
        self._logs = (log_means, log_spreads)

    def prior(self) -> Any:
        return Independent(LogNormal(*self._logs), 1)

    def log_likelihood(self, thetas: Tensor, x: Tensor) -> Tensor:
        """Return log p(x | θ) at one x, up to a constant, with shape ``(N,)``."""
        raise NotImplementedError

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        logs = sample_tempered(
            Independent(Normal(*self._logs), 1),
            lambda logs: self.log_likelihood(logs.exp(), x),
            num,
            generator,
            num_moves=10,  # enough for one mode, and each takes a solution
        )
        return logs.exp().float()


class SIR(_Populations):
    r"""T.9: an epidemic among N = 10⁶ people, one of them infected on day 0.

    .. math::
        \frac{dS}{dt} = -β S I / N, \qquad \frac{dI}{dt} = β S I / N - γ I

    with rates of contact β ~ LogNormal(log 0.4, 0.5) and of recovery
    γ ~ LogNormal(log 1/8, 0.2). Within 160 days, on days 0, 17, …, 153, a thousand
    people are tested: x_t ~ Binomial(1000, I_t / N).
    """

    _population, _num_tested = 1e6, 1000

    def __init__(self):
        super().__init__(torch.tensor([0.4, 1 / 8]).log(), torch.tensor([0.5, 0.2]))

    def log_shares(self, thetas: Tensor) -> Tensor:
        """Return log S/N and log I/N on the ten days, with shape ``(10, 2, N)``."""
        beta, gamma = thetas.double().unbind(1)
        growth = torch.stack([torch.zeros_like(gamma), -gamma])
        coupling = torch.stack([-beta, beta])
        infected = 1 / self._population
        start = torch.tensor([math.log1p(-infected), math.log(infected)])
        return _solve(growth, coupling, start, interval=17.0)

    def simulate(self, thetas: Tensor) -> Tensor:  # (N, 2) -> (N, 10)
        shares = self.log_shares(thetas)[:, 1].exp().clamp(0, 1)  # (10, N)
        counts = torch.full_like(shares, self._num_tested)
        return torch.binomial(counts, shares).T.to(thetas.dtype)

    def log_likelihood(self, thetas: Tensor, x: Tensor) -> Tensor:
        log_share = self.log_shares(thetas)[:, 1].T  # (N, 10)
        rest = torch.log1p(-log_share.exp().clamp(max=1 - 1e-12))
        x = x.to(log_share)
        return (x * log_share + (self._num_tested - x) * rest).sum(dim=1)


class LotkaVolterra(_Populations):
    r"""T.10: predators Y and their prey X, with X = 30 and Y = 1 at time 0.

    .. math::
        \frac{dX}{dt} = α X - β X Y, \qquad \frac{dY}{dt} = -γ Y + δ X Y

    with α, γ ~ LogNormal(−0.125, 0.5) and β, δ ~ LogNormal(−3, 0.5). Within 20 days, at
    the times 0, 2.1, …, 18.9, both are observed with log-normal noise,
    x ~ LogNormal(log X, 0.1) and likewise for Y.
    """

    _noise = 0.1
    _smallest, _largest = 1e-10, 1e4  # populations are clipped to this range

    def __init__(self):
        super().__init__(
            torch.tensor([-0.125, -3.0, -0.125, -3.0]), 0.5 * torch.ones(4)
        )

    def log_counts(self, thetas: Tensor) -> Tensor:
        """Return log X and log Y at the ten times, with shape ``(10, 2, N)``."""
        alpha, beta, gamma, delta = thetas.double().unbind(1)
        growth = torch.stack([alpha, -gamma])
        coupling = torch.stack([-beta, delta])
        return _solve(growth, coupling, torch.tensor([30.0, 1.0]).log(), interval=2.1)

    def _centres(self, thetas: Tensor) -> Tensor:
        """Return the clipped logs ``(N, 20)``: ten times of X, then ten of Y."""
        limits = torch.tensor([self._smallest, self._largest]).double().log()
        logs = self.log_counts(thetas).permute(2, 1, 0).flatten(1)
        return logs.clamp(*limits)

    def simulate(self, thetas: Tensor) -> Tensor:  # (N, 4) -> (N, 20)
        centres = self._centres(thetas)
        noise = self._noise * torch.randn_like(centres)
        return (centres + noise).exp().to(thetas.dtype)

    def log_likelihood(self, thetas: Tensor, x: Tensor) -> Tensor:
        centres = self._centres(thetas)
        return -((x.to(centres).log() - centres) / self._noise).square().sum(dim=1) / 2


def _solve(growth: Tensor, coupling: Tensor, start: Tensor, interval: float) -> Tensor:
    """Return log u and log v at ten times from 0 on, with shape ``(10, 2, N)``.

    Args:
        growth: The rates a, with shape ``(2, N)``.
        coupling: The rates b, with shape ``(2, N)``.
        start: log u and log v at time 0, with shape ``(2,)``.
        interval: Time between two of the times, which is crossed in 100 steps.
    """

    def slope(state: Tensor) -> Tensor:
        return torch.addcmul(growth, coupling, state.exp().flip(0))

    step = interval / 100
    state = start.to(growth).unsqueeze(1).expand_as(growth)
    found = [state]
    for _ in range(9):
        for _ in range(100):
            k1 = slope(state)
            k2 = slope(torch.add(state, k1, alpha=step / 2))
            k3 = slope(torch.add(state, k2, alpha=step / 2))
            k4 = slope(torch.add(state, k3, alpha=step))
            state = state + (k1 + 2 * (k2 + k3) + k4) * (step / 6)
        found.append(state)
    return torch.stack(found)
