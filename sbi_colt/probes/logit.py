r"""A probe that learns what makes the truth stand out in its bag.

The score is minus a conditional logit's: with z_j the coordinates of a member about the
mean of its bag, in units of their spread within bags, and saturating beyond three,

.. math:: s(z) = a ‖z‖ + \sum_j (b_j z_j + c_j z_j^2) .

a sees a truth farther from the bag than its members, or nearer; b_j sees a shift, and
c_j a width, of one coordinate. To second order in the weights the mean log likelihood
of the training truths, :math:`s(z^*) - \log \sum_m \exp s(z_m)`, is w·t − w·C w / 2,
where t is the mean of the truths' features and C the second moment of all members',
both about the mean of each bag. So w = (C + λ D)⁻¹ t. D penalises a least, and z_j the
more the smaller the spread of coordinate j is: in the components of
`sbi_colt.probes.features` that is where bags do not differ. λ is chosen by the log
likelihood of pairs left out one at a time.

There are few weights, so thirty training pairs are enough.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sbi_colt.probes.bags import Bags
from sbi_colt.probes.base import Probe

__all__ = ["LogitProbe"]

_PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
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
        self.weights = _solve_weights(features / scale, ridge) / scale

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the scores of points with shape ``(n, S, d)``, ``(n, S)``."""
        return -(self._features(points) @ self.weights)

    def _features(self, points: Tensor) -> Tensor:
        points = points.double()
        norm = points.norm(dim=-1, keepdim=True) / self.spread.norm()
        units = points / self.spread
        units = units / (1 + (units / _SATURATION).square()).sqrt()
        return torch.cat([norm, units, units.square()], dim=-1)


def _solve_weights(features: Tensor, ridge: Tensor) -> Tensor:
    """Return the weights with the penalty that leaving one pair out prefers.

    Args:
        features: Features about the mean of each bag, with shape ``(N, M, F)``; the
            truth comes first.
        ridge: Penalties of the features, with shape ``(F,)``.
    """
    num_pairs, size, _ = features.shape
    moments = torch.einsum("nmf,nmg->fg", features, features) / (num_pairs * size)
    truths = features[:, 0]  # (N, F)
    total, best, weights = truths.sum(dim=0), -torch.inf, torch.zeros_like(ridge)
    for penalty in _PENALTIES:
        inverse = torch.linalg.inv(moments + penalty * torch.diag(ridge))
        others = (total - truths) / max(num_pairs - 1, 1) @ inverse  # (N, F)
        scores = torch.einsum("nmf,nf->nm", features, others)
        likelihood = float((scores[:, 0] - scores.logsumexp(dim=1)).mean())
        if likelihood > best:
            best, weights = likelihood, inverse @ total / num_pairs
    return weights
