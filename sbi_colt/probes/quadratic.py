r"""Probes for what is too wide or too narrow: quadratic forms that are solved for.

The log likelihood ratio of two Gaussians with the same mean is a quadratic form,

.. math:: \sum_j \left(\frac{1}{1 + e_j} - 1\right) y_j^2 ,

with y_j standardised errors and 1 + e_j the second moment of the truths' own. Of d
parameters and N training pairs most of what e_j shows is chance; each probe takes off
what chance makes of it, in the axes that it looks along.

`QuadraticProbe`
    Along the axes that the truths' errors show. It sees an error in any direction, but
    must find the direction too, which takes many more pairs than parameters.
`AxesProbe`
    Along the principal axes of the draws, which they show without any truth: errors of
    width often lie along an axis of q itself. Useful with as many parameters as pairs.

Both treat the members of a bag alike.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sbi_colt.probes.ball import Probe, ProbeSpec
from sbi_colt.probes.coordinates import bounded

__all__ = ["AxesProbe", "QuadraticProbe"]

# A share of what looks like chance is kept, so that a probe is never empty.
_DOUBT = 1e-3
# No direction counts as narrower than this second moment.
_LEAST = 0.05


class QuadraticProbe(Probe):
    """A quadratic form in bag coordinates.

    Args:
        spec: The probe's specification.
        dim: Dimension of θ.
    """

    directions: Tensor
    weights: Tensor

    def __init__(self, spec: ProbeSpec, dim: int):
        super().__init__(spec)
        self.register_buffer("directions", torch.eye(dim))
        self.register_buffer("weights", torch.ones(dim))

    def solve(self, members: Tensor, xs: Tensor, generator: torch.Generator) -> None:
        """Take the second moments of the truths, less what chance makes of them."""
        truths = members[:, 0].double()  # (N, d)
        num_pairs, dim = truths.shape
        excess = truths.T @ truths / num_pairs
        excess.diagonal().sub_(1)
        sizes, directions = torch.linalg.eigh(excess)
        # Half of where the largest eigenvalue of pure noise lies (Marchenko-Pastur).
        noise = (dim / num_pairs) ** 0.5 + dim / num_pairs / 2
        self.directions = directions.to(members)
        self.weights = _weights(sizes, noise).to(members)

    def scores(self, points: Tensor, bags: Tensor, xs: Tensor) -> Tensor:
        """Return a number for points with shape ``(n, S, d)``, ``(n, S)``."""
        return (points @ self.directions).square() @ self.weights


class AxesProbe(Probe):
    """A sum of squares along the principal axes of the draws, in global coordinates.

    Axes are those of the mean correlation of the training bags; along each of them
    errors are standardised by the bag's own moments.

    Args:
        spec: The probe's specification.
        dim: Dimension of θ.
    """

    axes: Tensor
    weights: Tensor

    def __init__(self, spec: ProbeSpec, dim: int):
        super().__init__(spec)
        self.register_buffer("axes", torch.eye(dim))
        self.register_buffer("weights", torch.ones(dim))

    def solve(self, members: Tensor, xs: Tensor, generator: torch.Generator) -> None:
        """Find the axes of the draws and the truths' second moments along them."""
        draws = bounded(members[:, 1:]).double()
        centred = draws - draws.mean(dim=1, keepdim=True)  # (N, K, d)
        scale = centred.square().mean(dim=(0, 1)).sqrt()  # (d,)
        scale = torch.where(scale <= 1e-12, torch.ones_like(scale), scale)
        centred = centred / scale
        # Each bag counts alike, whatever its size.
        size = centred.square().mean(dim=(1, 2)).sqrt().clamp_min(1e-12)
        centred = (centred / size.reshape(-1, 1, 1)).flatten(0, 1)  # (N K, d)
        directions = torch.linalg.eigh(centred.T @ centred).eigenvectors
        self.axes = (directions / scale.unsqueeze(1)).to(members)
        errors = self._errors(members[:, :1], members).double()  # (N, 1, d)
        num_pairs, _, dim = members.shape
        # Half of where the largest of d noisy variances lies.
        noise = math.sqrt(math.log(max(dim, 2)) / num_pairs)
        excess = errors.square().mean(dim=(0, 1)) - 1
        self.weights = _weights(excess, noise).to(members)

    def scores(self, points: Tensor, bags: Tensor, xs: Tensor) -> Tensor:
        """Return a number for points with shape ``(n, S, d)``, ``(n, S)``."""
        return self._errors(points, bags).square() @ self.weights

    def _errors(self, points: Tensor, bags: Tensor) -> Tensor:
        points, bags = (bounded(values) @ self.axes for values in (points, bags))
        scale = bags.std(dim=1, keepdim=True, correction=0).clamp_min(1e-12)
        return bounded((points - bags.mean(dim=1, keepdim=True)) / scale)


def _weights(excess: Tensor, noise: float) -> Tensor:
    """Return the weights of squares, the noise taken off their excess."""
    certain = excess.sign() * (excess.abs() - noise).clamp_min(0)
    kept = (certain + _DOUBT * excess).clamp_min(_LEAST - 1)
    return 1 / (1 + kept) - 1
