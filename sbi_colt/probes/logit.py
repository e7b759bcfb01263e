r"""A probe that learns what makes the truth stand out in its bag.

The score is minus a conditional logit's: with z_j the coordinates of a member about the
mean of its bag, in units of their spread within bags, and saturating beyond three,

.. math:: s(z) = a ‖z‖ + \sum_j (b_j z_j + c_j z_j^2) .

a sees a truth farther from the bag than its members, or nearer; b_j sees a shift, and
c_j a width, of one coordinate. `sbi_colt.probes.weights` finds the weights. It
penalises a least, and z_j the more the smaller the spread of coordinate j is: in the
components of `sbi_colt.probes.features` that is where bags do not differ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sbi_colt.probes.bags import Bags
from sbi_colt.probes.base import Probe
from sbi_colt.probes.weights import solve_weights

__all__ = ["LogitProbe"]

_PENALTY_OF_NORM = 0.1
_SATURATION = 3.0  # spreads beyond which a coordinate counts no more


class LogitProbe(Probe):
    """A weighted sum of the norm, coordinates and squares of centred points.

    Args:
        name: The name in reports.
    """

    spread: Tensor
    weights: Tensor

    def __init__(self, name: str = "logit"):
        super().__init__(name, "centred")
        for own in ("spread", "weights"):
            self.register_buffer(own, torch.ones(1, dtype=torch.float64))

    def solve(self, bags: Bags, generator: torch.Generator) -> None:
        """Find the weights; the formula is in this module's docstring."""
        spread = bags.points.double().square().mean(dim=(0, 1)).sqrt()
        self.spread = torch.where(spread > 0, spread, 1.0)
        features = self._features(bags.points)  # (N, M, F)
        features = features - features.mean(dim=1, keepdim=True)
        scale = features.square().mean(dim=(0, 1)).sqrt()
        scale = torch.where(scale > 1e-12, scale, 1.0)
        relative = (self.spread.amax() / self.spread).square()
        ridge = torch.cat([relative.new_tensor([_PENALTY_OF_NORM]), relative, relative])
        features = features / scale
        moments = torch.einsum("nmf,nmg->fg", features, features)
        moments /= features.shape[:2].numel()
        self.weights = solve_weights(features[:, 0], moments, ridge) / scale

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the scores of points with shape ``(n, S, d)``, ``(n, S)``."""
        return -(self._features(points) @ self.weights)

    def _features(self, points: Tensor) -> Tensor:
        points = points.double()
        norm = points.norm(dim=-1, keepdim=True) / self.spread.norm()
        units = points / self.spread
        units = units / (1 + (units / _SATURATION).square()).sqrt()
        return torch.cat([norm, units, units.square()], dim=-1)
