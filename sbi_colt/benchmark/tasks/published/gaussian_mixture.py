r"""Gaussian mixture (Lueckmann et al. 2021, T.7): one mean, two widths.

θ ~ U(−10, 10)² and

.. math:: x ~ \tfrac12 N(θ, I) + \tfrac12 N(θ, 0.01 I) .

The likelihood is symmetric in x and θ, so the posterior is the same mixture around x,
cut off by the prior's box.
"""

from __future__ import annotations

from typing import Any

import torch
from sbi.utils import BoxUniform
from torch import Tensor

__all__ = ["GaussianMixture"]

_EDGE = 10.0
_WIDTHS = torch.tensor([1.0, 0.1])


class GaussianMixture:
    """A wide and a narrow Gaussian around the same mean."""

    dim = 2

    def prior(self) -> Any:
        """Return the prior."""
        return BoxUniform(-_EDGE * torch.ones(2), _EDGE * torch.ones(2))

    def simulate(self, thetas: Tensor) -> Tensor:
        """Return xs ``(N, 2)`` for thetas ``(N, 2)``."""
        widths = _WIDTHS[torch.randint(2, (len(thetas), 1))]  # (N, 1)
        return thetas + widths * torch.randn_like(thetas)

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        """Return exact draws of the posterior at one x; see `Problem.reference`."""
        found = torch.empty(0, 2)
        while len(found) < num:
            widths = _WIDTHS[torch.randint(2, (4 * num, 1), generator=generator)]
            thetas = x + widths * torch.randn(4 * num, 2, generator=generator)
            found = torch.cat([found, thetas[(thetas.abs() <= _EDGE).all(dim=1)]])
        return found[:num]
