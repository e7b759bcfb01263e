r"""Outliers: a linear model with five parameters and noise of two sizes.

θ ~ N(0, I), x = A θ + σ ε with A fixed, ε ~ N(0, I), and σ = 0.3 or, with probability
1/4, 1.5 for the whole of x. The posterior is a mixture of two Gaussians whose weights
depend on x.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from sbi_colt.randomness import generator_from

__all__ = ["Outliers"]


class Outliers:
    """A linear model whose noise is sometimes five times as large."""

    dim = 5
    _sigmas = torch.tensor([0.3, 1.5])
    _shares = torch.tensor([0.75, 0.25])

    def __init__(self):
        normal = torch.randn(5, 5, generator=generator_from(0, "outliers"))
        self.mixing = torch.eye(5) + 0.3 * normal

    def prior(self) -> Any:
        """Return the prior."""
        return MultivariateNormal(torch.zeros(5), torch.eye(5))

    def simulate(self, thetas: Tensor) -> Tensor:
        """Return xs ``(N, 5)`` for thetas ``(N, 5)``."""
        kinds = torch.multinomial(self._shares, len(thetas), replacement=True)
        noise = self._sigmas[kinds].unsqueeze(1) * torch.randn_like(thetas)
        return thetas @ self.mixing.T + noise

    def exact(self, x: Tensor, count: int) -> Tensor:
        """Return draws ``(count, 5)`` from the posterior at one x ``(5,)``."""
        evidence, parts = [], []
        for sigma, share in zip(self._sigmas, self._shares, strict=True):
            covariance = self.mixing @ self.mixing.T + sigma**2 * torch.eye(5)
            marginal = MultivariateNormal(torch.zeros(5), covariance)
            evidence.append(share.log() + marginal.log_prob(x))
            gain = torch.linalg.solve(covariance, self.mixing).T  # (5, 5)
            spread = torch.eye(5) - gain @ self.mixing
            spread = (spread + spread.T) / 2
            parts.append(MultivariateNormal(gain @ x, spread).sample((count,)))
        weights = torch.stack(evidence).softmax(dim=0)
        chosen = torch.multinomial(weights, count, replacement=True)
        return torch.stack(parts)[chosen, torch.arange(count)]
