r"""A probe made of others: a weighted sum of functions of their ranks.

Each fixed probe turns the members of a bag into ranks u, uniform among the draws of q.
Where p differs from q, the ranks of the truths have another density, and the log
likelihood ratio is a function of all these ranks together. Here it is linear in the
first two Legendre polynomials of each rank,

.. math:: s(θ) = \sum_{p, k} w_{pk} \, \sqrt{2k + 1} \, P_k(2 u_p(θ) - 1),
          \quad k = 1, 2 .

P_1 weighs small ranks against large ones; P_2 weighs middle ranks against both ends, so
that an error such as tails that are too heavy is seen as well.
`sbi_colt.probes.weights` finds the weights, and penalises P_2 twice as much as P_1.

There are few weights and the blended probes are not trained, so the blend gains with a
hundred training pairs, where a network would overfit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sbi_colt.probes.bags import Bags
from sbi_colt.probes.base import Probe
from sbi_colt.probes.coordinates import Frame, bag_moments, bounded
from sbi_colt.probes.density import DensityProbe
from sbi_colt.probes.weights import solve_weights

__all__ = ["BlendProbe"]

# Bandwidths of the densities whose ranks are blended; `None` is the mean distance.
_BANDWIDTHS = (None, 0.1, 0.03)
# Members whose features are held at once.
_CHUNK = 2**16


class BlendProbe(Probe):
    """A weighted sum of functions of fixed probes' ranks, in global coordinates.

    It blends the Mahalanobis distance from the mean of the bag, the mean distance to
    the bag's members, and their density at two bandwidths.

    Args:
        name: The name in reports.
    """

    weights: Tensor

    def __init__(self, name: str = "blend"):
        super().__init__(name, "global")
        self._densities = [DensityProbe(bandwidth=width) for width in _BANDWIDTHS]
        size = 2 * (1 + len(_BANDWIDTHS))
        self.register_buffer("weights", torch.zeros(size, dtype=torch.float64))

    def solve(self, bags: Bags, generator: torch.Generator) -> None:
        """Find the weights; the formula is in this module's docstring."""
        numbers = self._of_members(bags)
        step = max(1, _CHUNK // bags.points.shape[1])
        truths = []
        moments = torch.zeros_like(self.weights.diag())
        for parts in zip(*(part.split(step) for part in numbers), strict=True):
            features = _features(parts, parts)  # (n, M, F)
            moments += torch.einsum("nmf,nmg->fg", features, features)
            truths.append(features[:, 0])
        ridge = torch.ones_like(self.weights)
        ridge[1::2] = 2  # P_2
        moments /= bags.points.shape[:2].numel()
        self.weights = solve_weights(torch.cat(truths), moments, ridge)

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the scores of points with shape ``(n, S, d)``, ``(n, S)``."""
        of_members = self._of_members(bags)
        own = points is bags.points
        numbers = of_members if own else self._of_points(points, bags)
        return -(_features(numbers, of_members) @ self.weights)

    def _of_members(self, bags: Bags) -> list[Tensor]:
        """Return the blended scores of all members, each with shape ``(n, M)``."""
        distance = bags.remember(
            "mahalanobis", lambda: _mahalanobis(bags.points, bags.points)
        )
        return [distance, *(density(bags) for density in self._densities)]

    def _of_points(self, points: Tensor, bags: Bags) -> list[Tensor]:
        """Return the blended scores of other points, each with shape ``(n, S)``."""
        distance = _mahalanobis(points, bags.points)
        return [distance, *(part.scores(points, bags) for part in self._densities)]


def _mahalanobis(points: Tensor, members: Tensor) -> Tensor:
    frame = Frame(*bag_moments(bounded(members).double()))
    return frame.to_points(bounded(points)).norm(dim=-1)


def _features(points: Sequence[Tensor], members: Sequence[Tensor]) -> Tensor:
    """Return polynomials of the ranks of points among members, ``(n, S, F)``."""
    columns = []
    for own, others in zip(points, members, strict=True):
        below = torch.searchsorted(others.sort(dim=1).values, own)
        middle = (2 * below.double() + 1) / others.shape[1] - 1  # (n, S)
        columns += [3**0.5 * middle, 5**0.5 * (1.5 * middle.square() - 0.5)]
    return torch.stack(columns, dim=-1)
