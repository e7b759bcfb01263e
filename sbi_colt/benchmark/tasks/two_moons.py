r"""Two moons (Greenberg et al. 2019): a simulator whose posterior is two crescents.

θ ~ U(−1, 1)², a crescent p = (r cos a + 1/4, r sin a) with a ~ U(−π/2, π/2) and
r ~ N(0.1, 0.01²), and

.. math:: x = p + (-|θ_1 + θ_2|, -θ_1 + θ_2) / \sqrt 2 .

Given x, each p leaves two θ of equal density, and the prior's box cuts some off.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from sbi.utils import BoxUniform
from torch import Tensor

__all__ = ["TwoMoons"]


class TwoMoons:
    """Two crescents in a box."""

    dim = 2

    def prior(self) -> Any:
        """Return the prior."""
        return BoxUniform(-torch.ones(2), torch.ones(2))

    def simulate(self, thetas: Tensor) -> Tensor:
        """Return xs ``(N, 2)`` for thetas ``(N, 2)``."""
        across = thetas.sum(dim=1).abs()
        along = thetas[:, 1] - thetas[:, 0]
        shift = torch.stack([-across, along], dim=1) / math.sqrt(2)
        return _crescent(len(thetas)) + shift

    def exact(self, x: Tensor, count: int) -> Tensor:
        """Return draws ``(count, 2)`` from the posterior at one x ``(2,)``."""
        found = torch.empty(0, 2)
        while len(found) < count:
            shift = math.sqrt(2) * (x - _crescent(2 * count))
            sign = torch.randint(2, (len(shift),)) * 2 - 1
            across, along = -sign * shift[:, 0], shift[:, 1]
            thetas = torch.stack([across - along, across + along], dim=1) / 2
            good = (shift[:, 0] <= 0) & (thetas.abs() <= 1).all(dim=1)
            found = torch.cat([found, thetas[good]])
        return found[:count]


def _crescent(count: int) -> Tensor:
    angle = math.pi * (torch.rand(count) - 0.5)
    radius = 0.1 + 0.01 * torch.randn(count)
    return torch.stack([radius * angle.cos() + 0.25, radius * angle.sin()], dim=1)
