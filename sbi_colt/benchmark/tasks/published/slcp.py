r"""SLCP, simple likelihood and complex posterior (Lueckmann et al. 2021, T.3).

θ ~ U(−3, 3)⁵, and x holds four independent points from N(m, S) with

.. math::
    m = (θ_1, θ_2), \quad S = \begin{pmatrix} s_1^2 & ρ s_1 s_2 \\
    ρ s_1 s_2 & s_2^2 \end{pmatrix}, \quad
    s_1 = θ_3^2, \; s_2 = θ_4^2, \; ρ = \tanh θ_5 .

The signs of θ_3 and θ_4 do not matter, so the posterior has four modes of equal mass.
Reference draws are sampled where both are positive, and then given random signs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from sbi.utils import BoxUniform
from torch import Tensor

from sbi_colt.benchmark.tasks.published.smc import sample_tempered

__all__ = ["SLCP"]

_NUM_POINTS = 4
_SMALLEST = 1e-6  # width of a Gaussian, so that its density is finite
_NUM_PARTICLES = 20000  # more than are asked for: the likelihood can be very narrow


class SLCP:
    """Four points of a Gaussian whose covariance is a nonlinear function of θ."""

    dim = 5

    def prior(self) -> Any:
        """Return the prior."""
        return BoxUniform(-3 * torch.ones(5), 3 * torch.ones(5))

    def simulate(self, thetas: Tensor) -> Tensor:
        """Return xs ``(N, 8)`` for thetas ``(N, 5)``: the four points in a row."""
        mean, s1, s2, rho = _parts(thetas)
        noise = torch.randn(_NUM_POINTS, len(thetas), 2)
        first = s1 * noise[..., 0]  # (4, N)
        second = s2 * (rho * noise[..., 0] + (1 - rho.square()).sqrt() * noise[..., 1])
        points = mean + torch.stack([first, second], dim=-1)  # (4, N, 2)
        return points.transpose(0, 1).flatten(1)

    def log_likelihood(self, thetas: Tensor, x: Tensor) -> Tensor:
        """Return log p(x | θ) at one x ``(8,)`` for thetas ``(N, 5)``."""
        mean, s1, s2, rho = _parts(thetas)
        points = x.to(thetas).reshape(_NUM_POINTS, 1, 2)
        first, second = ((points - mean) / torch.stack([s1, s2], dim=-1)).unbind(-1)
        left = 1 - rho.square()  # variance of the second given the first, in units
        squares = (first.square() - 2 * rho * first * second + second.square()) / left
        volume = math.log(2 * math.pi) + s1.log() + s2.log() + left.log() / 2
        return -(squares / 2 + volume).sum(dim=0)

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        """Return draws of the posterior at one x; see `Problem.reference`."""
        lowest = -3 * torch.ones(5)
        lowest[2:4] = 0
        particles = sample_tempered(
            BoxUniform(lowest, 3 * torch.ones(5)),
            lambda thetas: self.log_likelihood(thetas, x),
            max(num, _NUM_PARTICLES),
            generator,
        )[:num]
        particles[:, 2:4] *= 2 * torch.randint(2, (num, 2), generator=generator) - 1
        return particles.float()


def _parts(thetas: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return m ``(N, 2)``, s_1, s_2 and ρ ``(N,)``."""
    s1, s2 = thetas[:, 2:4].square().clamp(min=_SMALLEST).unbind(1)
    return thetas[:, :2], s1, s2, thetas[:, 4].tanh()
