"""Re-drawing which member of each bag plays the truth: one loop for all statistics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from sbi_colt.stats.ranks import RankTable
from sbi_colt.stats.uniformity import ks_p_value, ks_statistic

__all__ = ["Redrawable", "combined_p_value", "redraw_statistics", "redrawn_p_value"]

# Elements of a re-drawing held at once: 2**18 doubles are 2 MiB.
_CHUNK = 2**18


class Redrawable(Protocol):
    """Numbers of all members of all bags, from which one member per bag is taken."""

    def __len__(self) -> int:
        """Return how many numbers each member has."""
        ...

    @property
    def num_pairs(self) -> int:
        """The number of bags, N."""
        ...

    @property
    def bag_size(self) -> int:
        """The number of members of each bag, K + 1."""
        ...

    def take(self, members: Tensor) -> Tensor:
        """Return the numbers of chosen members, for indices ``(..., N)``."""
        ...


def redraw_statistics(
    table: Redrawable,
    statistic: Callable[[Tensor], Tensor],
    num_redraws: int,
    generator: torch.Generator,
    weights: Tensor | None = None,
) -> Tensor:
    """Return a statistic of all probes when random members play the truth.

    Args:
        table: Ranks of all members under each probe, or other numbers of them.
        statistic: A function from ranks ``(..., P, N)`` to statistics ``(...)``.
        num_redraws: How many times to re-draw, B.
        generator: CPU generator that chooses the members.
        weights: How probable each member is as the truth, with shape ``(N, K + 1)`` and
            sum 1 in each bag; all alike by default.

    Returns:
        Statistics with shape ``(B,)``, exchangeable with the observed one under the
        null hypothesis.
    """
    num_pairs, last = table.num_pairs, table.bag_size - 1
    total = None if weights is None else weights.double().cumsum(dim=1)  # (N, K + 1)
    chunk = max(1, _CHUNK // (len(table) * num_pairs))
    statistics = None
    for start in range(0, num_redraws, chunk):
        shape = (min(chunk, num_redraws - start), num_pairs)
        if total is None:
            members = torch.randint(table.bag_size, shape, generator=generator)
        else:
            chance = torch.rand(shape, generator=generator, dtype=torch.float64).T
            place = torch.searchsorted(
                total, chance.contiguous() * total[:, -1:], right=True
            )
            members = place.clamp_max(last).T
        part = statistic(table.take(members))
        if statistics is None:
            # Small results kept between large ones would scatter the memory.
            statistics = part.new_empty(num_redraws, *part.shape[1:])
        statistics[start : start + len(part)] = part
    assert statistics is not None
    return statistics


def redrawn_p_value(observed: float, null: Tensor, generator: torch.Generator) -> float:
    """Return (1 + #{null ≥ observed}) / (1 + B), exact for exchangeable statistics.

    Ties, which tiny N and K bring about, are broken at random like those of ranks:
    counted in full they would make the test conservative.

    Example:
        >>> redrawn_p_value(0.3, torch.tensor([0.1, 0.2, 0.4]), torch.Generator())
        0.5
    """
    if math.isnan(observed) or bool(null.isnan().any()):
        raise FloatingPointError("A statistic is NaN; its p-value would mean nothing.")
    # A re-draw of the same members is a tie, but sums in another order may round.
    ties = int(((null - observed).abs() <= 1e-12).sum())
    above = int((null > observed + 1e-12).sum())
    broken = int(torch.randint(ties + 1, (1,), generator=generator))
    return (1 + above + broken) / (1 + len(null))


def combined_p_value(
    table: RankTable,
    truth: Tensor,
    aggregate: Callable[[Tensor], Tensor],
    num_redraws: int,
    generator: torch.Generator,
) -> float:
    """Return one exact p-value for all probes together.

    Null hypothesis: in every bag the members are exchangeable. One probe alone has
    SciPy's exact p-value of its KS statistic; several, a re-drawn one with resolution
    1 / (num_redraws + 1).

    Args:
        table: Ranks of all members under each probe.
        truth: Which member is the truth, with shape ``(N,)``.
        aggregate: A function from ranks ``(..., P, N)`` to one statistic of all probes.
        num_redraws: How many times to re-draw, B.
        generator: CPU generator.
    """
    ranks = table.take(truth)  # (P, N)
    if len(table) == 1:
        return ks_p_value(float(ks_statistic(ranks[0])), table.num_pairs)
    null = redraw_statistics(table, aggregate, num_redraws, generator)
    return redrawn_p_value(float(aggregate(ranks)), null, generator)
