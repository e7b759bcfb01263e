r"""Algorithm 2: from ranks to p-values, distances and local verdicts.

The null hypothesis throughout: in every bag the true θ* and its K draws are
exchangeable, which holds if q(θ | x) = p(θ | x) for almost every x.

*One probe.* The randomised ranks are an iid sample of Unif(0, 1), so SciPy's exact
Kolmogorov–Smirnov distribution gives the p-value; its resolution is continuous.

*Several probes.* Their ranks depend on each other, but under the null a uniformly
chosen member of each bag is as good as θ*. Re-drawing which member plays the truth,
B times, gives the joint null distribution of all statistics with no retraining. CoLT
aggregates the probes' Anderson–Darling statistics, which see the ends of the ranks that
Kolmogorov–Smirnov's neglects (`pooled_anderson_darling`):

.. math:: p = (1 + \#\{b : T_b \ge T\}) / (1 + B)

is exact for any aggregate T, at any K, N and B; its resolution is 1 / (1 + B).

*Two sets of pairs.* `two_halves_p_value` combines the p-values of test pairs and of
training pairs, which untrained probes may look at too.

*Distance.* For a probe fixed before the test pairs are seen, sup|F_U − id| bounds the
averaged conditionally localized distance (ACLD; Chen, Bansal and Scott 2025,
Theorem 3) from below, for finite K too: randomising ranks is a Markov kernel that keeps
the uniform and so can only shrink the deviation. The Dvoretzky–Kiefer–Wolfowitz
inequality with Massart's constant turns the observed statistic into a certificate.

*Comparison.* `closer_p_value` tells which of two posteriors deviates less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.stats import kstwo, norm
from scipy.stats import t as student_t
from torch import Tensor

__all__ = [
    "anderson_darling",
    "closer_p_value",
    "combined_p_value",
    "distance_margin",
    "ks_p_value",
    "ks_statistic",
    "largest_ks",
    "nearness_weights",
    "pooled_anderson_darling",
    "redraw_statistics",
    "redrawn_p_value",
    "take_members",
    "two_halves_p_value",
    "wilson_interval",
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
    n = ranks.shape[-1]
    if weights is None:
        ordered = _sorted(ranks)
        upper = torch.arange(1, n + 1, dtype=ranks.dtype, device=ranks.device) / n
        lower = upper - 1 / n
    else:
        ordered, order = ranks.sort(dim=-1)
        share = (weights / weights.sum())[order]  # (..., n)
        upper = share.cumsum(dim=-1)
        lower = upper - share
    return torch.maximum(upper - ordered, ordered - lower).amax(dim=-1)


def _sorted(values: Tensor) -> Tensor:
    """Return values in order along the last axis."""
    if values.device.type != "cpu" or values.requires_grad:
        return values.sort(dim=-1).values
    return torch.from_numpy(np.sort(values.numpy(), axis=-1))  # ten times as fast


def anderson_darling(ranks: Tensor) -> Tensor:
    r"""Return Anderson and Darling's (1952) statistic over the last axis.

    .. math:: A^2 = -n - \frac1n \sum_i (2i - 1)
              (\log u_{(i)} + \log(1 - u_{(n + 1 - i)}))

    Args:
        ranks: Ranks in [0, 1], with shape ``(..., n)``.

    Example:
        >>> round(anderson_darling(torch.tensor([0.25, 0.75])).item(), 3)
        0.249
    """
    tiny = torch.finfo(ranks.dtype).eps
    ordered = _sorted(ranks.clamp(tiny, 1 - tiny))
    n = ranks.shape[-1]
    odd = 2 * torch.arange(1, n + 1, dtype=ranks.dtype, device=ranks.device) - 1
    logs = ordered.log() + torch.log1p(-ordered.flip(-1))
    return -n - (odd * logs).sum(dim=-1) / n


def pooled_anderson_darling(ranks: Tensor) -> Tensor:
    r"""Return :math:`\log \sum_p \exp(A_p^2 / 2)` over probes.

    Between the largest statistic, which one probe's error decides, and their sum, which
    an error that many probes see a little decides. For large values the p-value of A²
    falls like exp(−1.2 A²), so this is near the harmonic mean of p-values, a little on
    the side of the sum.

    Args:
        ranks: Ranks with shape ``(..., P, n)``.

    Returns:
        Statistics with shape ``(...)``.
    """
    return torch.logsumexp(anderson_darling(ranks) / 2, dim=-1)


def largest_ks(ranks: Tensor) -> Tensor:
    """Return the largest KS statistic of ranks ``(..., P, n)`` over P probes.

    All probes share n, so it is that of the smallest p-value.
    """
    return ks_statistic(ranks).amax(dim=-1)


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


def two_halves_p_value(test: float, training: float) -> float:
    r"""Return one p-value of two independent ones, the second with half the weight.

    .. math:: p = 1 - (1 - p_\text{test} \sqrt{p_\text{training}})^2

    is the p-value of Good's (1955) weighted product of p-values: exact for two that are
    independent and uniform, valid where re-drawing makes them discrete. The training
    pairs are seen by fewer probes, so they weigh less.

    Args:
        test: p-value of the test pairs.
        training: p-value of the training pairs.

    Example:
        >>> round(two_halves_p_value(0.05, 0.05), 4)
        0.0222
    """
    return 1 - (1 - test * math.sqrt(training)) ** 2


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


def nearness_weights(features: Tensor, points: Tensor, num_neighbours: int) -> Tensor:
    """Return Epanechnikov weights of the pairs nearest to points in x.

    The weights depend on the xs alone: they leave the exchangeability of each bag, and
    so every p-value, intact. They are zero beyond the nearest ``num_neighbours``.

    Args:
        features: Features of the pairs' xs, with shape ``(N, F)``.
        points: Features of n observations, with shape ``(n, F)``.
        num_neighbours: Pairs with a weight; equally far ones count as one.

    Returns:
        Weights with shape ``(n, N)``.
    """
    features, points = features.double(), points.double()
    # Scaled by the farthest coordinate: squares of huge values would overflow.
    both = torch.cat([features, points])
    centre = both.mean(dim=0)
    size = (both - centre).abs().max().clamp_min(torch.finfo(both.dtype).tiny)
    distances = torch.cdist(
        (points - centre) / size,
        (features - centre) / size,
        compute_mode="donot_use_mm_for_euclid_dist",
    )  # (n, N)
    nearest = min(num_neighbours, len(features))
    reach = distances.kthvalue(nearest, dim=1, keepdim=True).values * (1 + 1e-6)
    near = 1 - (distances / reach.clamp_min(1e-300)).clamp_max(1).square()
    return torch.where(reach > 0, near, (distances == 0).double())


def wilson_interval(shares: Tensor, sizes: Tensor, confidence: float) -> Tensor:
    """Return Wilson's (1927) confidence intervals of binomial shares.

    Args:
        shares: Observed shares, with shape ``(n,)``.
        sizes: Effective sample sizes, with shape ``(n,)``.
        confidence: Confidence of each interval by itself.

    Returns:
        Intervals with shape ``(n, 2)``.

    Example:
        >>> wilson_interval(torch.tensor([0.5]), torch.tensor([100.0]), 0.95)
        tensor([[0.4038, 0.5962]])
    """
    z = float(norm.isf((1 - confidence) / 2))
    centre = (shares + z**2 / (2 * sizes)) / (1 + z**2 / sizes)
    spread = (shares * (1 - shares) / sizes + (z / (2 * sizes)).square()).sqrt()
    half = z * spread / (1 + z**2 / sizes)
    return torch.stack([centre - half, centre + half], dim=-1).clamp(0, 1)


def closer_p_value(
    ranks: Tensor, others: Tensor, balls: Sequence[tuple[float, int]]
) -> float:
    r"""Return the p-value of "the first posterior is closer than the second".

    Null hypothesis: the first posterior's largest deviation D = max sup|F_U − id| over
    its probes is no smaller than the second's. The second's is at least that of a ball
    fixed before the test pairs were seen, with mean excess :math:`E[e]`,
    :math:`e = s (1\{U \le u\} - u)`. So the first is closer if *every* deviation of
    its own is smaller: an intersection–union test (Berger 1982), whose p-value is the
    largest of the paired one-sided t-tests, with no price for their number. The
    second's P balls are tried in turn, at the price of Bonferroni's factor P.

    Asymptotic in the number of pairs through the t-tests; conservative.

    Args:
        ranks: Ranks of the first posterior's probes, with shape ``(P, n)``.
        others: Ranks of the second's on the same pairs, with shape ``(P', n)``.
        balls: Level u and sign s of each of the second's probes.
    """
    smallest = 1.0
    for row, (level, sign) in zip(others.double(), balls, strict=True):
        excess = sign * ((row <= level).double() - level)  # (n,)
        largest = max(_largest_p_value(own, excess) for own in ranks.double())
        smallest = min(smallest, len(balls) * largest)
    return smallest


def _largest_p_value(ranks: Tensor, excess: Tensor) -> float:
    """Return the largest p-value, over all levels and signs, of a smaller deviation.

    For each level u the excess is compared with s (1{U ≤ u} − u). Between two ranks
    that is linear in u, so the extremes are at the ranks, with the rank's own pair
    counted (s = 1) or not (s = −1).
    """
    n = len(ranks)
    ordered, order = ranks.sort()
    counts = torch.arange(n + 1, dtype=ranks.dtype, device=ranks.device) / n
    products = torch.cat([excess.new_zeros(1), excess[order].cumsum(0)]) / n
    mean, variance = excess.mean(), excess.var(correction=0)
    statistics = []
    for sign, share, product in (
        (1, counts[1:], products[1:]),
        (-1, counts[:-1], products[:-1]),
    ):
        spread = (
            variance + share * (1 - share) - 2 * sign * (product - mean * share)
        ).clamp_min(1e-12)
        gap = mean - sign * (share - ordered)
        statistics.append(gap / (spread / (n - 1)).sqrt())
    return float(student_t.sf(float(torch.cat(statistics).min()), n - 1))
