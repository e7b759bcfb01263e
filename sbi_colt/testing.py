r"""Algorithm 2: from ranks to p-values, distances and local verdicts.

The null hypothesis throughout: in every bag the true θ* and its K draws are
exchangeable, which holds if q(θ | x) = p(θ | x) for almost every x.

*One probe.* The randomised ranks are an iid sample of Unif(0, 1), so SciPy's exact
Kolmogorov–Smirnov distribution gives the p-value; its resolution is continuous.

*Several probes.* Their ranks depend on each other, but under the null a uniformly
chosen member of each bag is as good as θ*. Re-drawing which member plays the truth,
B times, gives the joint null distribution of all statistics with no retraining:

.. math:: p = (1 + \#\{b : T_b \ge T\}) / (1 + B)

is exact for any aggregate T, at any K, N and B; its resolution is 1 / (1 + B).

*Distance.* For a probe fixed before the test pairs are seen, sup|F_U − id| bounds the
averaged conditionally localized distance (ACLD; Chen, Bansal and Scott 2025,
Theorem 3) from below, for finite K too: randomising ranks is a Markov kernel that keeps
the uniform and so can only shrink the deviation. The Dvoretzky–Kiefer–Wolfowitz
inequality with Massart's constant turns the observed statistic into a certificate.
"""

from __future__ import annotations

import math

import torch
from scipy.stats import kstwo
from torch import Tensor

__all__ = [
    "combined_p_value",
    "distance_margin",
    "ks_p_value",
    "ks_statistic",
    "nearness_weights",
    "redraw_statistics",
    "redrawn_p_value",
    "take_members",
    "worst_level",
]

# Elements of a re-drawing held at once: 2**22 doubles are 32 MiB.
_CHUNK = 2**22


def ks_statistic(ranks: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Return sup|F_n(u) − u| over the last axis.

    Args:
        ranks: Ranks in [0, 1], with shape ``(..., n)``.
        weights: Weights of the n ranks, with shape ``(n,)``, or `None` for equal ones.
            F_n is then the weighted empirical distribution.

    Returns:
        Statistics with shape ``(...)``.

    Example:
        >>> ks_statistic(torch.tensor([0.25, 0.75])).item()
        0.25
    """
    ordered, order = ranks.sort(dim=-1)
    n = ranks.shape[-1]
    if weights is None:
        upper = torch.arange(1, n + 1, dtype=ranks.dtype, device=ranks.device) / n
        lower = upper - 1 / n
    else:
        share = (weights / weights.sum())[order]  # (..., n)
        upper = share.cumsum(dim=-1)
        lower = upper - share
    return torch.maximum(upper - ordered, ordered - lower).amax(dim=-1)


def ks_p_value(statistic: float, n: int) -> float:
    """Return the exact p-value of a two-sided one-sample KS statistic.

    Null hypothesis: the n ranks are independent and uniform on [0, 1].

    Example:
        >>> round(ks_p_value(0.25, 2), 3)
        1.0
    """
    return float(min(1.0, max(0.0, kstwo.sf(statistic, n))))


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
    num_redraws: int,
    generator: torch.Generator,
    weights: Tensor | None = None,
) -> Tensor:
    """Return the KS statistics of all probes when random members play the truth.

    Args:
        tables: Ranks of all members under each probe, with shape ``(P, N, K + 1)``.
        num_redraws: How many times to re-draw, B.
        generator: CPU generator that chooses the members.
        weights: Weights of the pairs, with shape ``(N,)``.

    Returns:
        Statistics with shape ``(B, P)``, exchangeable with the observed ones under
        the null hypothesis.
    """
    num_probes, num_pairs, size = tables.shape
    chunk = max(1, _CHUNK // (num_probes * num_pairs))
    parts = []
    for start in range(0, num_redraws, chunk):
        shape = (min(chunk, num_redraws - start), num_pairs)
        members = torch.randint(size, shape, generator=generator).to(tables.device)
        parts.append(ks_statistic(take_members(tables, members), weights))
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
    tables: Tensor, truth: Tensor, num_redraws: int, generator: torch.Generator
) -> float:
    """Return one exact p-value for all probes together.

    Null hypothesis: in every bag the members are exchangeable. The aggregate is the
    largest statistic; all probes share N, so it is that of the smallest p-value. One
    probe alone has SciPy's exact p-value; several, a re-drawn one with resolution
    1 / (num_redraws + 1).

    Args:
        tables: Ranks of all members under each probe, with shape ``(P, N, K + 1)``.
        truth: Which member is the truth, with shape ``(N,)``.
        num_redraws: How many times to re-draw, B.
        generator: CPU generator.
    """
    observed = float(ks_statistic(take_members(tables, truth)).max())
    if len(tables) == 1:
        return ks_p_value(observed, tables.shape[1])
    null = redraw_statistics(tables, num_redraws, generator).amax(dim=1)
    return redrawn_p_value(observed, null, generator)


def distance_margin(n: int, num_probes: int, confidence: float) -> float:
    r"""Return the margin :math:`\sqrt{\log(2P/δ) / (2n)}` of a certified distance.

    With probability at least ``confidence`` = 1 − δ, no probe's empirical statistic
    exceeds its true deviation by more than this (Massart 1990, and a union bound).

    Example:
        >>> round(distance_margin(100, 1, 0.95), 4)
        0.1358
    """
    return math.sqrt(math.log(2 * num_probes / (1 - confidence)) / (2 * n))


def worst_level(ranks: Tensor) -> tuple[float, float]:
    """Return the level u at which |F_n(u) − u| is largest, and F_n there.

    The ball that holds the share u of q is the one whose share of p differs most.

    Args:
        ranks: Ranks in [0, 1], with shape ``(n,)``.

    Returns:
        The share under q (u) and the estimated share under p (F_n(u)).
    """
    ordered = ranks.sort().values
    n = len(ordered)
    upper = torch.arange(1, n + 1, dtype=ranks.dtype, device=ranks.device) / n
    over, under = upper - ordered, ordered - upper + 1 / n
    index = int(torch.maximum(over, under).argmax())
    share_p = upper[index] if over[index] >= under[index] else upper[index] - 1 / n
    return float(ordered[index]), float(share_p)


def nearness_weights(features: Tensor, point: Tensor, num_neighbours: int) -> Tensor:
    """Return Epanechnikov weights of the pairs nearest to one point in x.

    The weights depend on the xs alone: they leave the exchangeability of each bag, and
    so every p-value, intact. They are zero beyond the nearest ``num_neighbours``.

    Args:
        features: Features of the pairs' xs, with shape ``(N, F)``.
        point: Features of the observation, with shape ``(F,)``.
        num_neighbours: Pairs with a weight; equally far ones count as one.

    Returns:
        Weights with shape ``(N,)``.
    """
    features, point = features.double(), point.double()
    # Scaled by the farthest coordinate: squares of huge values would overflow.
    gaps = (features - point).abs()
    size = gaps.max().clamp_min(torch.finfo(gaps.dtype).tiny)
    distances = (gaps / size).square().sum(dim=-1).sqrt()  # (N,)
    nearest = min(num_neighbours, len(distances))
    reach = distances.kthvalue(nearest).values * (1 + 1e-6)
    if not reach > 0:
        return (distances == 0).double()
    return 1 - (distances / reach).clamp_max(1).square()
