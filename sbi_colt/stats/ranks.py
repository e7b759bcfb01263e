r"""Ranks of the true parameter among posterior draws.

Fix x. The *bag* is the true θ* and its K draws from q(θ | x). A probe gives each
member of a bag one number (its distance from a chosen point); the rank of θ* is how
many draws have a smaller one. If θ* and the draws are exchangeable, that is, if
q(θ | x) = p(θ | x), the rank r is uniform on {0, …, K} and the randomised rank

.. math:: U = (r + V) / (K + 1), \qquad V \sim \mathrm{Unif}(0, 1),

is uniform on [0, 1] exactly, for every K ≥ 1. Ties are broken at random, so this
holds for discrete θ too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["RankTable", "ball_ranks", "randomized_ranks", "straight_through_ranks"]


def ball_ranks(truth: Tensor, draws: Tensor) -> Tensor:
    r"""Return the share of draws inside the ball that ends at the truth.

    .. math:: U_i = \frac1S \sum_s 1[d(θ_{si}, θ_l) < d(θ^*_i, θ_l)]

    (Chen, Bansal and Scott 2025, Algorithm 2.)

    Args:
        truth: Distances of the true parameters, with shape ``(N,)``.
        draws: Distances of the draws, with shape ``(S, N)``.

    Returns:
        Ranks in [0, 1], with shape ``(N,)``.

    Example:
        >>> ball_ranks(torch.tensor([2.5]), torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
        tensor([0.5000])
    """
    return (draws < truth).to(draws.dtype).mean(dim=0)


def straight_through_ranks(truth: Tensor, draws: Tensor, width: float = 0.25) -> Tensor:
    r"""Return `ball_ranks` in the forward pass, with a sigmoid's gradient.

    The indicator has no gradient; the straight-through estimator (Bengio et al. 2013)
    passes that of :math:`\sigma((d^* - d_s)/τ)` instead. τ is ``width`` standard
    deviations of the distances in each bag, so it follows the scale of the problem.

    Args:
        truth: Distances of the true parameters, with shape ``(N,)``.
        draws: Distances of the draws, with shape ``(S, N)``.
        width: Width of the sigmoid in standard deviations of a bag's distances.

    Returns:
        Ranks in [0, 1], with shape ``(N,)``.
    """
    members = torch.cat([truth.unsqueeze(0), draws]).detach()  # (S + 1, N)
    tau = width * members.std(dim=0, correction=0)
    tau = tau.clamp_min(torch.finfo(tau.dtype).tiny ** 0.5)
    soft = torch.sigmoid((truth - draws) / tau)
    hard = (draws < truth).to(soft.dtype)
    return (hard.detach() + soft - soft.detach()).mean(dim=0)


def randomized_ranks(
    truth: Tensor, draws: Tensor, generator: torch.Generator
) -> Tensor:
    """Return U = (r + V) / (S + 1), exactly uniform under the null hypothesis.

    Null hypothesis: in each column, ``truth`` and the ``draws`` are exchangeable.

    Args:
        truth: Distances of the true parameters, with shape ``(N,)``.
        draws: Distances of the draws, with shape ``(S, N)``.
        generator: CPU generator for V and for breaking ties.

    Returns:
        Ranks in [0, 1], with shape ``(N,)``.
    """
    below = (draws < truth).sum(dim=0)
    ties = (draws == truth).sum(dim=0)
    u = _uniform(truth.shape, generator, truth.device)
    v = _uniform(truth.shape, generator, truth.device)
    rank = below + torch.floor(u * (ties + 1)).clamp_max(ties)
    return (rank + v) / (draws.shape[0] + 1)


@dataclass(frozen=True, eq=False)
class RankTable:
    r"""The randomised ranks of every member of every bag, under P probes.

    .. math:: U_{pij} = (r_{pij} + V_{pi}) / (K + 1)

    is the rank of member j of bag i under probe p. Null hypothesis: the members of each
    bag are exchangeable. Then the rank of a uniformly chosen member is uniform on
    [0, 1], and all members' ranks together are the null distribution from which
    `sbi_colt.stats.redraw` draws again.

    Args:
        places: How many members of the bag score less, r, with shape
            ``(P, N, K + 1)``; small integers, to save memory. In a table that `empty`
            made, the ranks of one member under all probes lie side by side in memory,
            because `take` reads them together.
        offsets: V, uniform on [0, 1], with shape ``(P, N)``.
    """

    places: Tensor
    offsets: Tensor

    @classmethod
    def empty(
        cls, num_probes: int, num_pairs: int, bag_size: int, device: torch.device
    ) -> RankTable:
        """Return room for the ranks under P probes, which `fill` fills."""
        kind = torch.int16 if bag_size < 2**15 else torch.int32
        shape = (num_pairs, bag_size, num_probes)
        places = torch.empty(shape, dtype=kind, device=device).permute(2, 0, 1)
        offsets = torch.empty(num_probes, num_pairs, dtype=torch.float64, device=device)
        return cls(places, offsets)

    def fill(
        self, rows: slice, scores: Sequence[Tensor], generator: torch.Generator
    ) -> None:
        """Rank the members of some bags.

        Args:
            rows: Which bags.
            scores: Scores under each probe, with shape ``(n, K + 1)``.
            generator: CPU generator that breaks ties.
        """
        for probe, own in enumerate(scores):
            places, offsets = _rank_members(own, generator)
            self.places[probe, rows], self.offsets[probe, rows] = places, offsets

    @classmethod
    def of(
        cls, scores: Tensor | Sequence[Tensor], generator: torch.Generator
    ) -> RankTable:
        """Rank P sets of scores with shape ``(N, K + 1)``, ties broken at random.

        Example:
            >>> scores = torch.tensor([[[3.0, 1.0, 2.0]]])
            >>> table = RankTable.of(scores, torch.Generator())
            >>> table.places.tolist()
            [[[2, 0, 1]]]
        """
        num_pairs, bag_size = scores[0].shape
        table = cls.empty(len(scores), num_pairs, bag_size, scores[0].device)
        table.fill(slice(None), list(scores), generator)
        return table

    def __len__(self) -> int:
        return len(self.places)

    def under(self, probes: Sequence[int]) -> RankTable:
        """Return the ranks under some of the probes."""
        return RankTable(self.places[list(probes)], self.offsets[list(probes)])

    @property
    def num_pairs(self) -> int:
        """The number of bags, N."""
        return self.places.shape[1]

    @property
    def bag_size(self) -> int:
        """The number of members of each bag, K + 1."""
        return self.places.shape[2]

    def take(self, members: Tensor) -> Tensor:
        """Return the ranks of one chosen member per bag.

        Args:
            members: Indices of members, with shape ``(..., N)``.

        Returns:
            Ranks with shape ``(..., P, N)``.
        """
        rows = torch.arange(self.num_pairs, device=self.places.device)
        members = members.to(self.places.device)
        chosen = self.places.permute(1, 2, 0)[rows, members]  # (..., N, P)
        ranks = chosen.movedim(-1, -2).to(self.offsets.dtype, copy=True)
        return ranks.add_(self.offsets).div_(self.bag_size)


def _rank_members(scores: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the places ``(N, K + 1)`` and the offsets ``(N,)`` of one probe."""
    num_bags, size = scores.shape
    order = _argsort(scores)
    ordered = scores.gather(1, order)
    has_ties = (ordered[:, 1:] == ordered[:, :-1]).any(dim=1)
    if has_ties.any():
        chance = _uniform(scores.shape, generator, scores.device)[has_ties]
        shuffle = chance.argsort(dim=1)
        by_score = scores[has_ties].gather(1, shuffle).argsort(dim=1, stable=True)
        order[has_ties] = shuffle.gather(1, by_score)  # ties at random
    kind = torch.int16 if size < 2**15 else torch.int32
    positions = torch.arange(size, dtype=kind, device=scores.device)
    places = torch.empty(scores.shape, dtype=kind, device=scores.device)
    places.scatter_(1, order, positions.expand(num_bags, size))
    return places, _uniform((num_bags, 1), generator, scores.device).squeeze(1)


def _argsort(scores: Tensor) -> Tensor:
    """Return the order of scores along the last axis, ties in any order."""
    if scores.device.type != "cpu" or scores.requires_grad:
        return scores.argsort(dim=-1)
    return torch.from_numpy(np.argsort(scores.numpy(), axis=-1))  # several times faster


def _uniform(shape, generator: torch.Generator, device: torch.device) -> Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float64).to(device)
