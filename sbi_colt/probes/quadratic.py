r"""A probe of directions in which q is too wide or too narrow.

The log likelihood ratio of two Gaussians with the same mean is a quadratic form,

.. math:: \sum_j \left(\frac{1}{1 + e_j} - 1\right) y_j^2 ,

with y_j standardised errors along axis j, and 1 + e_j the second moment of the truths'
errors along it. Much of what e_j shows is chance; the expected noise is subtracted.

Here the axes are the eigenvectors of the truths' own second moments. So the probe sees
an error of width in any direction, but must first find the direction, which takes many
more pairs than parameters. ``axes`` looks along the principal axes of q instead.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sbi_colt.checks import check_choice
from sbi_colt.probes.bags import Bags
from sbi_colt.probes.base import Probe
from sbi_colt.probes.coordinates import Coordinates

__all__ = ["QuadraticProbe", "square_weights"]

# A small share of what looks like chance is kept, so that no probe is empty.
_DOUBT = 1e-3
# No direction counts as narrower than this second moment.
_LEAST = 0.05


class QuadraticProbe(Probe):
    """A quadratic form of the errors in bag coordinates.

    Args:
        name: The name in reports.
        coordinates: The coordinates of the points, centred at the mean of each bag.
    """

    directions: Tensor
    weights: Tensor

    def __init__(self, name: str = "quadratic", coordinates: Coordinates = "bag"):
        super().__init__(name, coordinates)
        check_choice("coordinates", coordinates, ("bag", "centred"))
        self.register_buffer("directions", torch.eye(1))
        self.register_buffer("weights", torch.ones(1))

    def solve(self, bags: Bags, generator: torch.Generator) -> None:
        """Find axes and weights from the second moments of the truths."""
        truths = bags.points[:, 0].double()  # (N, d)
        num_pairs, dim = truths.shape
        excess = truths.T @ truths / num_pairs
        excess.diagonal().sub_(1)
        sizes, directions = torch.linalg.eigh(excess)
        # Half of where the largest eigenvalue of pure noise lies (Marchenko-Pastur).
        noise = (dim / num_pairs) ** 0.5 + dim / num_pairs / 2
        self.directions = directions.to(bags.points)
        self.weights = square_weights(sizes, noise).to(bags.points)

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the scores of points with shape ``(n, S, d)``, ``(n, S)``."""
        return (points @ self.directions).square_() @ self.weights


def square_weights(excess: Tensor, noise: float) -> Tensor:
    """Return the weights of squares from the excess e_j, less the expected noise."""
    certain = excess.sign() * (excess.abs() - noise).clamp_min(0)
    kept = (certain + _DOUBT * excess).clamp_min(_LEAST - 1)
    return 1 / (1 + kept) - 1
