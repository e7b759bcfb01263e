"""Re-drawing: which member of each bag plays the truth."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from sbi_colt.stats.uniformity import ks_p_value, ks_statistic

__all__ = ["combined_p_value", "redraw_statistics", "redrawn_p_value", "take_members"]

# Elements of a re-drawing held at once: 2**22 doubles are 32 MiB.
_CHUNK = 2**22


def take_members(tables: Tensor, members: Tensor) -> Tensor:
    """Return the ranks of one chosen member per bag.

    Args:
        tables: Ranks of all members under each probe, with shape ``(P, N, K + 1)``.
        members: Indices with shape ``(..., N)``.

    Returns:
        Ranks with shape ``(..., P, N)``.
    """
    rows = torch.arange(tables.shape[1], device=tables.device)
    return tables[:, rows, members].movedim(0, -2)  # (P, ..., N) -> (..., P, N)


def redraw_statistics(
    tables: Tensor,
    statistic: Callable[[Tensor], Tensor],
    num_redraws: int,
    generator: torch.Generator,
) -> Tensor:
    """Return a statistic of all probes when random members play the truth.

    Args:
        tables: Ranks of all members under each probe, with shape ``(P, N, K + 1)``.
        statistic: A function from ranks ``(..., P, N)`` to statistics ``(...)``.
        num_redraws: How many times to re-draw, B.
        generator: CPU generator that chooses the members.

    Returns:
        Statistics with shape ``(B,)``, exchangeable with the observed one under the
        null hypothesis.
    """
    num_probes, num_pairs, size = tables.shape
    chunk = max(1, _CHUNK // (num_probes * num_pairs))
    parts = []
    for start in range(0, num_redraws, chunk):
        shape = (min(chunk, num_redraws - start), num_pairs)
        members = torch.randint(size, shape, generator=generator).to(tables.device)
        parts.append(statistic(take_members(tables, members)))
    return torch.cat(parts)


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
    tables: Tensor,
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
        tables: Ranks of all members under each probe, with shape ``(P, N, K + 1)``.
        truth: Which member is the truth, with shape ``(N,)``.
        aggregate: A function from ranks ``(..., P, N)`` to one statistic of all probes.
        num_redraws: How many times to re-draw, B.
        generator: CPU generator.
    """
    ranks = take_members(tables, truth)  # (P, N)
    if len(tables) == 1:
        return ks_p_value(float(ks_statistic(ranks[0])), tables.shape[1])
    null = redraw_statistics(tables, aggregate, num_redraws, generator)
    return redrawn_p_value(float(aggregate(ranks)), null, generator)
