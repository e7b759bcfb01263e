r"""A probe made of others: a weighted sum of functions of their ranks.

Every untrained probe turns the members of a bag into ranks u, uniform among the draws
of q. Where p differs, the truths' ranks have another density, and the log likelihood
ratio is a function of all of them at once. Here it is linear in the first two Legendre
polynomials of each rank,

.. math:: s(θ) = \sum_{p, k} w_{pk} \, \sqrt{2k + 1} \, P_k(2 u_p(θ) - 1),
          \quad k = 1, 2 .

P_1 weighs one end of the ranks against the other; P_2, the middle against both ends,
turns what a probe sees as "neither near nor far", such as tails that are too heavy,
into near or far. To second order in w the log likelihood of the training truths is
w·m − w·C w / 2, with m the truths' mean features and C the draws' second moments, so
that w = (C + λ D)⁻¹ m. D penalises P_2 twice as much as P_1, and λ is chosen by leaving
out one pair at a time.

Few weights, from probes that are not trained: with a hundred training pairs it gains
where a network would overfit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sbi_colt.probes.ball import Probe, ProbeSpec
from sbi_colt.probes.coordinates import Frame, bag_moments, bounded
from sbi_colt.probes.solved import DensityProbe

__all__ = ["BlendProbe"]

# Bandwidths of the densities whose ranks are blended; `None` is the mean distance.
_BANDWIDTHS = (None, 0.1, 0.03)
_PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class BlendProbe(Probe):
    """A weighted sum of functions of untrained probes' ranks, in global coordinates.

    Blended are the Mahalanobis distance, the mean distance of a bag's members and their
    density at two bandwidths.

    Args:
        spec: The probe's specification.
    """

    weights: Tensor

    def __init__(self, spec: ProbeSpec):
        super().__init__(spec)
        self._densities = [
            DensityProbe(ProbeSpec("part", kind="density", bandwidth=bandwidth))
            for bandwidth in _BANDWIDTHS
        ]
        size = 2 * (1 + len(_BANDWIDTHS))
        self.register_buffer("weights", torch.zeros(size, dtype=torch.float64))

    def solve(self, members: Tensor, xs: Tensor, generator: torch.Generator) -> None:
        """Find the weights; see the formula in this module's docstring."""
        features = self._features(members, members, xs)  # (N, M, F)
        truths = features[:, 0]  # (N, F)
        num_pairs, size, count = features.shape
        moments = torch.einsum("nmf,nmg->fg", features, features) / (num_pairs * size)
        ridge = torch.ones(count, dtype=torch.float64, device=members.device)
        ridge[1::2] = 2
        total, best = truths.sum(dim=0), -torch.inf
        for penalty in _PENALTIES:
            inverse = torch.linalg.inv(moments + penalty * torch.diag(ridge))
            others = (total - truths) / max(num_pairs - 1, 1) @ inverse  # (N, F)
            gains = (others * truths).sum(dim=1)
            gains -= ((others @ moments) * others).sum(dim=1) / 2
            if (gain := float(gains.mean())) > best:
                best, self.weights = gain, inverse @ total / num_pairs

    def scores(self, points: Tensor, bags: Tensor, xs: Tensor) -> Tensor:
        """Return a number for points with shape ``(n, S, d)``, ``(n, S)``."""
        return -(self._features(points, bags, xs) @ self.weights)

    def _features(self, points: Tensor, bags: Tensor, xs: Tensor) -> Tensor:
        """Return polynomials of the ranks of points in their bags, ``(n, S, F)``."""
        of_bags = self._numbers(bags, bags, xs)
        of_points = of_bags if points is bags else self._numbers(points, bags, xs)
        columns = []
        for own, others in zip(of_points, of_bags, strict=True):
            below = torch.searchsorted(others.sort(dim=1).values, own)
            middle = (2 * below.double() + 1) / bags.shape[1] - 1  # (n, S)
            columns += [3**0.5 * middle, 5**0.5 * (1.5 * middle.square() - 0.5)]
        return torch.stack(columns, dim=-1)

    def _numbers(self, points: Tensor, bags: Tensor, xs: Tensor) -> list[Tensor]:
        """Return what each of the blended probes gives, with shape ``(n, S)``."""
        frame = Frame(*bag_moments(bounded(bags).double()))
        distance = frame.to_points(bounded(points)).norm(dim=-1)
        if points is bags:
            return [distance, *(part(bags, xs) for part in self._densities)]
        return [distance, *(part.scores(points, bags, xs) for part in self._densities)]
