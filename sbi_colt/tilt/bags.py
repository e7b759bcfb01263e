r"""Where each member stands in its own bag: the numbers that all features are made of.

All moments are those of the pooled bag, the truth included, so that all members are
treated alike and stay exchangeable under q = p. With weights w, member m of a bag is
the truth with probability w_m / Σ w under q = p, and the moments are weighted alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["GAP", "Bags", "choose_members", "normalised", "weighted_ranks"]

# Standard deviations, relative to the largest value, below which a column is constant.
_CONSTANT = 1e-12
_ALONE, GAP = 1.28, 1.5  # see `Bags.loneliness`
_FARTHEST = 10.0  # times as far as that is no more alone


@dataclass(frozen=True, eq=False)
class Bags:
    """Bags of members, one of which is the truth.

    Args:
        members: Members with shape ``(N, M, d)``, in double precision.
        truth: Which member is the truth, with shape ``(N,)``. Its place is random.
        log_weights: Logarithms of the members' weights, with shape ``(N, M)``, up to a
            constant for each bag; `None` where all members are alike.
    """

    members: Tensor
    truth: Tensor
    log_weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.members)

    @property
    def dim(self) -> int:
        """The number of parameters, d."""
        return self.members.shape[2]

    @property
    def size(self) -> int:
        """The number of members of a bag, M = K + 1."""
        return self.members.shape[1]

    @cached_property
    def weights(self) -> Tensor:
        """Weights of the members, each bag's with sum 1, with shape ``(N, M)``."""
        return normalised(self.log_weights, self.members.shape[:2])

    @property
    def effective_size(self) -> Tensor:
        """The effective number of members of each bag, with shape ``(N,)``."""
        return 1 / self.weights.square().sum(dim=1)

    def at(self, index: Tensor) -> Bags:
        """Return some of the bags."""
        known = None if self.log_weights is None else self.log_weights[index]
        return Bags(self.members[index], self.truth[index], known)

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        weights = self.weights.unsqueeze(2)
        centred = self.members - self.members[:, :1]  # large offsets lose digits
        mean = (weights * centred).sum(dim=1, keepdim=True)
        centred = centred - mean
        unit = centred.abs().amax(dim=1, keepdim=True).clamp_min(1e-300)
        scale = unit * (weights * (centred / unit).square()).sum(1, True).sqrt()
        constant = scale <= _CONSTANT * self.members.abs().amax(dim=1, keepdim=True)
        return centred, torch.where(constant, torch.inf, scale)

    @property
    def scale(self) -> Tensor:
        """Standard deviations of each bag, infinite for constants, ``(N, 1, d)``."""
        return self._moments[1]

    @cached_property
    def standardised(self) -> Tensor:
        """Members t in standard deviations of their bag, with shape ``(N, M, d)``."""
        centred, scale = self._moments
        return centred / scale

    @cached_property
    def ranks(self) -> Tensor:
        """Share of the bag below each member, ties shared, with shape ``(N, M, d)``."""
        columns = self.members.transpose(1, 2)  # (N, d, M)
        weights = self.weights.unsqueeze(1).expand_as(columns)
        return weighted_ranks(columns, weights).transpose(1, 2)

    @cached_property
    def correlations(self) -> Tensor:
        """Correlations of the parameters in each bag, with shape ``(N, d, d)``."""
        t = self.standardised
        return t.transpose(1, 2) @ (self.weights.unsqueeze(2) * t)

    @cached_property
    def shrunk(self) -> Tensor:
        """Correlations drawn towards zero by (d / effective size)², ``(N, d, d)``."""
        shrink = (self.dim / self.effective_size).clamp_max(1).square()
        shrink = shrink.reshape(-1, 1, 1)
        shrunk = (1 - shrink) * self.correlations
        shrunk.diagonal(dim1=1, dim2=2).fill_(1 + 1e-9)
        return shrunk

    @cached_property
    def whitened(self) -> Tensor:
        """Members in coordinates without correlations, with shape ``(N, M, d)``."""
        factor = torch.linalg.cholesky(self.shrunk)
        columns = self.standardised.transpose(1, 2)
        solved = torch.linalg.solve_triangular(factor, columns, upper=False)
        return solved.transpose(1, 2)

    @cached_property
    def nearest(self) -> Tensor:
        """Distance to the nearest other member, whitened, with shape ``(N, M)``."""
        distances = torch.cdist(self.whitened.float(), self.whitened.float())
        distances.diagonal(dim1=1, dim2=2).fill_(torch.inf)
        return distances.amin(dim=2).double()

    @cached_property
    def gaps(self) -> Tensor:
        """Distance of each parameter to the nearest other member's, ``(N, M, d)``."""
        ordered, order = self.standardised.sort(dim=1)
        steps = ordered.diff(dim=1)  # (N, M - 1, d)
        wall = torch.full_like(steps[:, :1], torch.inf)
        nearest = torch.minimum(
            torch.cat([wall, steps], dim=1), torch.cat([steps, wall], dim=1)
        )
        return torch.empty_like(nearest).scatter_(1, order, nearest)

    @cached_property
    def loneliness(self) -> Tensor:
        """How far a member is from all others, in logarithms, with shape ``(N, M)``.

        It is above 0 for a member that is 1.28 times as far from the others as any
        other member is, or if one parameter is 1.5 standard deviations from those of
        all others.
        """
        top = self.nearest.topk(2, dim=1).values
        # The largest of the others: the second largest for the largest itself.
        others = torch.where(self.nearest >= top[:, :1], top[:, 1:], top[:, :1])
        ratio = self.nearest / (_ALONE * others.clamp_min(1e-300))
        ratio = torch.maximum(ratio, self.gaps.amax(dim=2) / GAP)
        return ratio.clamp(1, _FARTHEST).log()


def choose_members(
    thetas: Tensor,
    samples: Tensor,
    generator: torch.Generator,
    *,
    log_weights: Tensor | None = None,
    max_members: int = 100,
) -> Bags:
    """Return bags of the truths and their first draws, the truth at a random place.

    Args:
        thetas: True parameters, with shape ``(N, d)``.
        samples: Posterior draws in random order, with shape ``(S, N, d)``.
        generator: CPU generator.
        log_weights: Logarithms of weights, with shape ``(S + 1, N)``, the truth first.
        max_members: Members of a bag, the truth included; further draws are left out.
    """
    members = torch.cat([thetas.unsqueeze(0), samples[: max_members - 1]])
    members = members.transpose(0, 1).cpu().double()
    rows = torch.arange(len(members))
    truth = torch.randint(members.shape[1], (len(rows),), generator=generator)

    def place(values: Tensor) -> Tensor:
        """Exchange the first member and the one at the truth's place."""
        first, other = values[:, 0].clone(), values[rows, truth].clone()
        values[:, 0], values[rows, truth] = other, first
        return values

    if log_weights is not None:
        kept = log_weights[: members.shape[1]].transpose(0, 1).cpu().double()
        log_weights = place(kept.clone())
    return Bags(place(members.clone()), truth, log_weights)


def normalised(log_weights: Tensor | None, shape: torch.Size) -> Tensor:
    """Return weights with sum 1 in each bag; equal ones for `None`."""
    if log_weights is None:
        return torch.full(shape, 1 / shape[1], dtype=torch.float64)
    return log_weights.double().softmax(dim=1)


def weighted_ranks(values: Tensor, weights: Tensor) -> Tensor:
    """Return the weight below each value plus half the weight of its ties.

    Args:
        values: Values with shape ``(..., M)``; ranks are along the last axis.
        weights: Weights of the same shape, with sum 1 along the last axis.

    Example:
        >>> weighted_ranks(torch.tensor([3.0, 1.0, 3.0, 2.0]), torch.full((4,), 0.25))
        tensor([0.7500, 0.1250, 0.7500, 0.3750])
    """
    ordered, order = values.contiguous().sort(dim=-1)
    total = weights.gather(-1, order).cumsum(dim=-1)
    total = torch.nn.functional.pad(total, (1, 0))  # (..., M + 1), 0 first
    values = values.contiguous()
    below = torch.searchsorted(ordered, values)
    through = torch.searchsorted(ordered, values, right=True)
    return (total.gather(-1, below) + total.gather(-1, through)) / 2
