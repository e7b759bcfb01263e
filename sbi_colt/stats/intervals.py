"""Confidence bounds of distances and of shares."""

from __future__ import annotations

import math

import torch
from scipy.stats import norm
from torch import Tensor

__all__ = ["distance_margin", "wilson_interval"]


def distance_margin(n: int, num_probes: int, confidence: float) -> float:
    r"""Return the margin :math:`\sqrt{\log(2P/δ) / (2n)}` of a certified distance.

    With probability at least ``confidence`` = 1 − δ, no probe's empirical statistic
    exceeds its true deviation by more than this (Massart 1990, and a union bound).

    Example:
        >>> round(distance_margin(100, 1, 0.95), 4)
        0.1358
    """
    return math.sqrt(math.log(2 * num_probes / (1 - confidence)) / (2 * n))


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
