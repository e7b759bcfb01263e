"""Statistics of how far ranks are from uniform, and the exact p-value of one probe."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import kstwo
from torch import Tensor

__all__ = [
    "anderson_darling",
    "ks_p_value",
    "ks_statistic",
    "largest_ks",
    "pooled_anderson_darling",
    "worst_ball",
]

_NUM_CELLS = 4096  # more ranks than this are counted in as many cells, not sorted


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

    Of more than 4096 ranks the integral that this is equal to is a sum over 4095 points
    (Choulakian, Lockhart and Stephens 1994), because counting is faster than sorting.
    Re-drawn statistics are computed as the observed one is, so p-values stay exact.

    Args:
        ranks: Ranks in [0, 1], with shape ``(..., n)``.

    Example:
        >>> round(anderson_darling(torch.tensor([0.25, 0.75])).item(), 3)
        0.249
    """
    n = ranks.shape[-1]
    if n > _NUM_CELLS:
        return _counted_anderson_darling(ranks)
    tiny = torch.finfo(ranks.dtype).eps
    ordered = _sorted(ranks.clamp(tiny, 1 - tiny))
    odd = 2 * torch.arange(1, n + 1, dtype=ranks.dtype, device=ranks.device) - 1
    logs = ordered.log().add_(ordered.flip(-1).neg_().log1p_())
    return -n - logs.mul_(odd).sum(dim=-1) / n


def _counted_anderson_darling(ranks: Tensor) -> Tensor:
    r"""Return A² from the shares of ranks below the points u = j / m, 0 < j < m.

    .. math:: A^2 \approx \frac nm \sum_u \frac{(F_n(u) - u)^2}{u (1 - u)}
    """
    n, last = ranks.shape[-1], _NUM_CELLS - 1
    cells = (ranks * _NUM_CELLS).int().clamp_max_(last).reshape(-1, n)
    cells += _NUM_CELLS * torch.arange(len(cells), device=cells.device).int()[:, None]
    counts = torch.bincount(cells.flatten(), minlength=len(cells) * _NUM_CELLS)
    shares = counts.reshape(len(cells), _NUM_CELLS)[:, :-1].cumsum(dim=1) / n
    u = torch.arange(1, _NUM_CELLS, dtype=shares.dtype, device=shares.device)
    u /= _NUM_CELLS
    squares = shares.sub_(u).square_() @ (1 / (u * (1 - u)))
    return (n / _NUM_CELLS * squares).reshape(ranks.shape[:-1]).to(ranks.dtype)


def pooled_anderson_darling(ranks: Tensor) -> Tensor:
    r"""Return :math:`\log \sum_p \exp(A_p^2 / 2)` over probes.

    A compromise between the maximum (one strong probe) and the sum (many weak ones).
    For large values the p-value of A² falls like exp(−1.2 A²), so that this statistic
    orders results nearly as the harmonic mean of the p-values does.

    Args:
        ranks: Ranks with shape ``(..., P, n)``.

    Returns:
        Statistics with shape ``(...)``.
    """
    return torch.logsumexp(anderson_darling(ranks) / 2, dim=-1)


def largest_ks(ranks: Tensor) -> Tensor:
    """Return the largest KS statistic of ranks ``(..., P, n)`` over P probes.

    All probes have the same n, so the largest statistic has the smallest p-value.
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


def worst_ball(ranks: Tensor) -> tuple[float, int]:
    """Return the share u at which |F_n(u) − u| is largest, and the sign of F_n(u) − u.

    The ball that holds the share u of q is the one whose share F(u) of p differs most.

    Args:
        ranks: Ranks in [0, 1], with shape ``(n,)``.
    """
    ordered = ranks.sort().values
    n = len(ordered)
    upper = torch.arange(1, n + 1, dtype=ranks.dtype, device=ranks.device) / n
    over, under = upper - ordered, ordered - upper + 1 / n
    index = int(torch.maximum(over, under).argmax())
    return float(ordered[index]), 1 if over[index] >= under[index] else -1
