"""A probe of widths along the principal axes of q.

It is the quadratic form of ``quadratic``, along the principal axes of the draws, which
the draws show without any truth: errors of width often lie along an axis of q itself.
It is useful where there are as many parameters as pairs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sbi_colt.probes.bags import Bags
from sbi_colt.probes.coordinates import bounded
from sbi_colt.probes.quadratic import QuadraticProbe, square_weights

__all__ = ["AxesProbe"]

# Members whose moments are added up at once.
_CHUNK = 2**16


class AxesProbe(QuadraticProbe):
    """A sum of squares along the principal axes of the draws, in global coordinates.

    The axes are those of the mean correlation of the training bags; along each axis
    errors are standardised by the bag's own mean and standard deviation.

    Args:
        name: The name in reports.
    """

    def __init__(self, name: str = "axes"):
        super().__init__(name)
        self.coordinates = "global"

    def solve(self, bags: Bags, generator: torch.Generator) -> None:
        """Find the axes of the draws and the truths' second moments along them."""
        blocks = bags.blocks(_CHUNK)
        num_draws = len(bags) * (bags.points.shape[1] - 1)
        squares = [_centred_draws(b).square().sum(dim=(0, 1)) for b in blocks]
        scale = (torch.stack(squares).sum(dim=0) / num_draws).sqrt()  # (d,)
        scale = torch.where(scale <= 1e-12, torch.ones_like(scale), scale)
        moments = torch.zeros_like(scale.diag())
        for block in blocks:
            draws = _centred_draws(block) / scale
            # Each bag counts alike, whatever its size.
            size = draws.square().mean(dim=(1, 2)).sqrt().clamp_min(1e-12)
            draws = (draws / size.reshape(-1, 1, 1)).flatten(0, 1)  # (n K, d)
            moments += draws.T @ draws
        directions = torch.linalg.eigh(moments).eigenvectors
        self.directions = (directions / scale.unsqueeze(1)).to(bags.points)
        errors = torch.cat([self._errors(b.points[:, :1], b) for b in blocks]).double()
        num_pairs, _, dim = bags.points.shape
        # Half of where the largest of d noisy variances lies.
        noise = math.sqrt(math.log(max(dim, 2)) / num_pairs)
        excess = errors.square().mean(dim=(0, 1)) - 1
        self.weights = square_weights(excess, noise).to(bags.points)

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the scores of points with shape ``(n, S, d)``, ``(n, S)``."""
        return self._errors(points, bags).square() @ self.weights

    def _errors(self, points: Tensor, bags: Bags) -> Tensor:
        members = bounded(bags.points) @ self.directions
        own = points is bags.points
        points = members if own else bounded(points) @ self.directions
        scale = members.std(dim=1, keepdim=True, correction=0).clamp_min(1e-12)
        return bounded((points - members.mean(dim=1, keepdim=True)) / scale)


def _centred_draws(bags: Bags) -> Tensor:
    """Return the draws, without the truth, about their mean, ``(n, K, d)``."""
    draws = bounded(bags.points[:, 1:]).double()
    return draws - draws.mean(dim=1, keepdim=True)
