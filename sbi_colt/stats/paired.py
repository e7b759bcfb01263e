"""Which of two posteriors is closer, on the same pairs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from scipy.stats import t as student_t
from torch import Tensor

__all__ = ["closer_p_value"]


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
