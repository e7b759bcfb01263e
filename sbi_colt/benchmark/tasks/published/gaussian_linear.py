r"""Gaussian linear (Lueckmann et al. 2021, T.1): the mean of a Gaussian.

θ ~ N(0, 0.1 I) in ten dimensions and x ~ N(θ, 0.1 I), so the posterior is
N(x / 2, 0.05 I).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

__all__ = ["GaussianLinear"]

_VARIANCE = 0.1  # of the prior, and of the noise


class GaussianLinear:
    """A Gaussian whose posterior is a Gaussian."""

    dim = 10

    def prior(self) -> Any:
        """Return the prior."""
        return MultivariateNormal(torch.zeros(10), _VARIANCE * torch.eye(10))

    def simulate(self, thetas: Tensor) -> Tensor:
        """Return xs ``(N, 10)`` for thetas ``(N, 10)``."""
        return thetas + math.sqrt(_VARIANCE) * torch.randn_like(thetas)

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        """Return exact draws of the posterior at one x; see `Problem.reference`."""
        noise = torch.randn(num, 10, generator=generator)
        return x / 2 + math.sqrt(_VARIANCE / 2) * noise
