"""Probes of the density of q, estimated from the members of each bag.

The score is minus the logarithm of a kernel density estimate from the bag's own
members, so the ranks are those of highest-density regions. It works for posteriors of
any shape and has nothing to train. Bandwidths are shares of the bag's mean squared
distance between members; without a bandwidth the score is the mean distance to the
members (the statistic of energy distances).
"""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from sbi_colt.checks import check_choice, check_number
from sbi_colt.probes.bags import Bags
from sbi_colt.probes.base import Probe
from sbi_colt.probes.coordinates import Coordinates, bounded

__all__ = ["DensityProbe"]

# Members of a bag that serve as kernel centres (a quarter of them for the mean
# distance), so that the cost is linear in the size of the bag.
_NUM_CENTRES = 256
_NUM_ORIGIN = 32  # members whose median is the origin of distances
# Distances held at once: 2**21 floats are 8 MiB.
_CHUNK = 2**21


class DensityProbe(Probe):
    """Minus the log density of a bag at a point, or the mean distance to its members.

    Args:
        name: The name in reports.
        bandwidth: The squared bandwidth h² as a share of the mean squared distance
            between members; `None` for the mean distance.
        coordinates: The coordinates of the points.
    """

    def __init__(
        self,
        name: str = "density",
        bandwidth: float | None = 0.1,
        coordinates: Coordinates = "global",
    ):
        super().__init__(name, coordinates)
        check_choice("coordinates", coordinates, get_args(Coordinates))
        if bandwidth is not None:
            check_number("bandwidth", bandwidth, "a number > 0", lambda v: v > 0)
        self.bandwidth = bandwidth

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the scores of points with shape ``(n, S, d)``, ``(n, S)``.

        A point that is a member of the bag is not its own neighbour.
        """
        return self._scores(points, bags.points, own=False)

    def forward(self, bags: Bags) -> Tensor:
        """Return the scores of all members, each computed from the other members."""
        return bags.remember(
            ("density", self.bandwidth, self.coordinates),
            lambda: self._scores(bags.points, bags.points, own=True),
        )

    def _scores(self, points: Tensor, members: Tensor, own: bool) -> Tensor:
        # The draws in `Draws` are shuffled, so the first members are a random sample.
        number = _NUM_CENTRES if self.bandwidth else _NUM_CENTRES // 4
        centres = members[:, :number]
        step = max(1, _CHUNK // (points.shape[1] * centres.shape[1]))
        parts = zip(points.split(step), centres.split(step), strict=True)
        return torch.cat([self._part(*part, own) for part in parts])

    def _part(self, points: Tensor, centres: Tensor, own: bool) -> Tensor:
        points, centres = bounded(points), bounded(centres)
        # Recentre first: float32 loses small differences far from zero.
        origin = centres[:, :_NUM_ORIGIN].median(dim=1, keepdim=True).values
        points, centres = points - origin, centres - origin
        if own:
            squares = _squared_distances(points, centres)  # (n, S, C)
            itself = squares.diagonal(dim1=1, dim2=2)
            is_centre = torch.arange(points.shape[1]) < centres.shape[1]
            others = centres.shape[1] - is_centre.to(points)  # (S,)
        else:  # by differences, so that a point is at distance 0 from itself
            mode = "donot_use_mm_for_euclid_dist"
            squares = torch.cdist(points, centres, compute_mode=mode).square_()
            itself = squares == 0
            itself &= itself.cumsum(dim=2) == 1  # only one of several equal members
            others = (~itself).sum(dim=2)  # (n, S)
        others = others.clamp_min(1)
        if self.bandwidth is None:
            _fill(squares, itself, 0.0)
            return squares.sqrt_().sum(dim=2) / others
        between = 2 * centres.double().var(dim=1, correction=0).sum(dim=1).float()
        width = 2 * self.bandwidth * between.clamp_min(1e-30)
        exponents = squares.div_(-width.reshape(-1, 1, 1))
        _fill(exponents, itself, -torch.inf)
        # As logsumexp does, but in place, and finite where all centres are too far.
        limits = torch.finfo(exponents.dtype)
        largest = exponents.amax(dim=2).clamp_min_(limits.min)
        total = exponents.sub_(largest.unsqueeze(2)).exp_().sum(dim=2)
        return others.log() - total.clamp_min_(limits.tiny).log() - largest


def _squared_distances(points: Tensor, centres: Tensor) -> Tensor:
    """Return ‖a − b‖² of points ``(n, S, d)`` and centres ``(n, C, d)``.

    One product of matrices, (−2 a, ‖a‖², 1) · (b, 1, ‖b‖²).
    """
    own, others = (
        part.square().sum(dim=-1, keepdim=True) for part in (points, centres)
    )
    left = torch.cat([-2 * points, own, torch.ones_like(own)], dim=-1)
    right = torch.cat([centres, torch.ones_like(others), others], dim=-1)
    return torch.bmm(left, right.transpose(1, 2)).clamp_min_(0)


def _fill(values: Tensor, where: Tensor, value: float) -> None:
    """Fill in place where a mask is true, or a whole view."""
    if where.dtype == torch.bool:
        values.masked_fill_(where, value)
    else:
        where.fill_(value)
