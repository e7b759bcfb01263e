r"""Coordinates of parameters, and what networks see of xs.

``"raw"``
    θ and x as they come: the paper's setting.
``"global"``
    standardised with means and scales of the training pairs.
``"bag"``
    whitened at each x with the moments of that x's own bag. The geometry is then right
    from the start at every x; centre zero is the posterior mean, distance the
    Mahalanobis distance. The moments are those of the *pooled* bag, θ* included: all
    K + 1 members are treated alike, or their exchangeability, and with it every
    p-value, would be lost.
``"centred"``
    as they come, about the mean of each pooled bag: for points that
    `sbi_colt.probes.features` has whitened.

Scales come from the training pairs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Coordinates", "Frame", "Scales", "bag_moments", "bounded", "make_frame"]

Coordinates = Literal["raw", "global", "bag", "centred"]

# Standardised values whose squares are far from overflowing.
_LARGEST = 1e100


@dataclass(frozen=True)
class Scales:
    """Means and scales of the training pairs; constant columns have scale 1."""

    theta_mean: Tensor  # (d,)
    theta_scale: Tensor  # (d,)
    x_mean: Tensor  # (...)
    x_scale: Tensor  # (...)

    @classmethod
    def of(cls, thetas: Tensor, xs: Tensor, samples: Tensor) -> Scales:
        """Return the scales of training pairs and their draws."""
        return cls(*_moments([thetas, *samples]), *_moments([xs]))

    def network_thetas(self, thetas: Tensor) -> Tensor:
        """Return parameters ``(n, d)`` as networks see them: standardised."""
        return ((thetas.double() - self.theta_mean) / self.theta_scale).float()

    def network_xs(self, xs: Tensor, coordinates: Coordinates = "global") -> Tensor:
        """Return xs as networks see them: standardised, unless coordinates are raw."""
        if coordinates == "raw":  # a copy: networks may change their input in place
            return xs.to(torch.float32, copy=True)
        # In double precision: a large offset leaves little of a float.
        return ((xs.double() - self.x_mean) / self.x_scale).float()


def _moments(parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of all rows, part by part to save memory."""
    size = torch.stack([part.abs().amax(dim=0) for part in parts]).amax(dim=0).double()
    size = torch.where(size == 0, torch.ones_like(size), size)
    count = sum(len(part) for part in parts)

    def average(function: Callable[[Tensor], Tensor]) -> Tensor:
        # Squares of values that are huge or tiny would not be finite: scale first.
        sums = [function(part.double() / size).sum(dim=0) for part in parts]
        return torch.stack(sums).sum(dim=0) / count

    mean = average(lambda scaled: scaled)
    scale = average(lambda scaled: (scaled - mean).square()).sqrt()
    # Rounding leaves a constant column with a spread of about epsilon.
    constant = scale <= 1e-12
    return mean * size, torch.where(constant, torch.ones_like(scale), scale * size)


@dataclass(frozen=True)
class Frame:
    """Coordinates z of parameters at each of N xs: θ = origin + factor z.

    Args:
        origin: Points with shape ``(N, d)``.
        factor: Lower triangular matrices with shape ``(N, d, d)``, or the diagonals of
            diagonal ones, with shape ``(N, d)``.
    """

    origin: Tensor
    factor: Tensor

    def to_theta(self, points: Tensor) -> Tensor:
        """Map points with shape ``(N, d)`` to parameters."""
        points = points.to(self.origin)
        if self.factor.ndim == 2:
            return self.origin + self.factor * points
        return self.origin + torch.einsum("nij,nj->ni", self.factor, points)

    def to_points(self, thetas: Tensor) -> Tensor:
        """Map parameters with shape ``(N, M, d)`` to points, in single precision."""
        centred = thetas.to(self.origin) - self.origin.unsqueeze(1)
        if self.factor.ndim == 2:
            return (centred / self.factor.unsqueeze(1)).float()
        solved = torch.linalg.solve_triangular(
            self.factor, centred.transpose(1, 2), upper=False
        )
        return solved.transpose(1, 2).float().contiguous()

    def at(self, index: Tensor) -> Frame:
        """Return the coordinates at some of the xs."""
        return Frame(self.origin[index], self.factor[index])


def make_frame(members: Tensor, coordinates: Coordinates, scales: Scales) -> Frame:
    """Return the coordinates asked for, at the xs of bags.

    Args:
        members: Bags with shape ``(N, K + 1, d)``.
        coordinates: ``"raw"``, ``"global"``, ``"bag"`` or ``"centred"``.
        scales: The training pairs' scales.
    """
    num_bags, _, dim = members.shape
    mean, scale = scales.theta_mean, scales.theta_scale
    if coordinates == "bag":
        # Moments of standardised values: the units of θ do not matter.
        points = (members.double() - mean) / scale
        # Squares of a bag beyond all others would overflow: give it a unit of its own.
        unit = points.abs().amax(dim=(1, 2), keepdim=True)
        unit = torch.where(unit > _LARGEST, unit, 1.0)  # (N, 1, 1)
        origin, factor = bag_moments(points / unit)
        return Frame(
            mean + scale * unit[:, 0] * origin, scale.unsqueeze(1) * unit * factor
        )
    if coordinates == "centred":
        origin = members.double().mean(dim=1)
        return Frame(origin, torch.ones_like(origin))
    if coordinates == "raw":
        mean, scale = torch.zeros_like(mean), torch.ones_like(scale)
    return Frame(mean.expand(num_bags, dim), scale.expand(num_bags, dim))


def bounded(points: Tensor) -> Tensor:
    """Return standardised values with those beyond 1e8 at 1e8: squares stay finite."""
    return points.clamp(-1e8, 1e8)


def bag_moments(members: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the Cholesky factor of each pooled bag's shrunk covariance.

    The covariance is drawn towards its diagonal by the share (d / (K + 1))²: next to
    nothing for K ≫ d, all of it for K < d. A floor far below the training scale, which
    is 1 here, keeps bags with constant columns regular.
    """
    _, size, dim = members.shape
    mean = members.mean(dim=1)  # (N, d)
    centred = members - mean.unsqueeze(1)
    covariance = centred.transpose(1, 2) @ centred / size  # (N, d, d)
    variances = covariance.diagonal(dim1=1, dim2=2) + 1e-12
    shrinkage = min(1.0, dim / size) ** 2
    shrunk = (1 - shrinkage) * covariance
    shrunk.diagonal(dim1=1, dim2=2).copy_(variances)
    scale = variances.sqrt()  # (N, d); factor the correlation, then scale its rows
    correlation = shrunk / scale.unsqueeze(1) / scale.unsqueeze(2)
    jitter = 1e-9 * torch.eye(dim, dtype=members.dtype, device=members.device)
    factor = torch.linalg.cholesky(correlation + jitter)
    return mean, scale.unsqueeze(2) * factor
