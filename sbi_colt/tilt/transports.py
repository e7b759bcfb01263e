r"""Would moved or stretched draws look like the truths?

A tilt multiplies q, so that it can only move mass to where q has some. It describes a
shift or a wrong width of a Gaussian, but for a posterior with an edge, with modes or
with skew these two errors look like a wrong shape to it. A transport changes the draws
themselves: with the mean m and the standard deviation s of the draws at x,

.. math:: θ \mapsto m + s \, (a_j(x) + r_j(x) \, (θ - m) / s)

moves them by the truths' mean error a (a shift) and stretches them by the ratio r of
the right width to q's (a width). Both are constant, or follow terms of x. If the truths
are like the draws so changed, nothing else is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from sbi_colt.tilt.bags import Bags
from sbi_colt.tilt.families import WITH_X
from sbi_colt.tilt.sizes import Errors

__all__ = ["transported"]

_RIDGE = 5.0  # of regressions on terms of x, in pairs
_NUM_STEPS = 8  # of the regression of widths
_LARGEST = 3.0  # of the logarithm of a ratio of widths


def transported(bags: Bags, terms: Tensor) -> Iterator[tuple[tuple[str, ...], Bags]]:
    """Yield families of errors, the simplest first, and bags without these errors.

    Args:
        bags: Truths and draws.
        terms: Terms of single features of x, with shape ``(N, T)``, standardised.
    """
    errors = Errors.of(bags).errors  # (N, d)
    constant = torch.ones(len(bags), 1, dtype=torch.float64)
    of_x = torch.cat([constant, terms.double()], dim=1)
    zero, one = torch.zeros_like(errors), torch.ones_like(errors)
    for design, more in ((constant, ""), (of_x, WITH_X))[: 1 + bool(terms.shape[1])]:
        moves = _means(errors, design)
        yield ("shift" + more,), _changed(bags, moves, one)
        yield ("width" + more,), _changed(bags, zero, _spreads(errors, design))
        both = _changed(bags, moves, _spreads(errors - moves, design))
        yield ("shift" + more, "width" + more), both


def _means(errors: Tensor, design: Tensor) -> Tensor:
    """Return the mean of errors ``(N, d)`` that a design ``(N, T)`` predicts."""
    return design @ torch.linalg.solve(_ridged(design.T @ design), design.T @ errors)


def _spreads(errors: Tensor, design: Tensor) -> Tensor:
    """Return standard deviations of errors about zero, ``(N, d)``.

    Their logarithms are linear in the design, by maximum likelihood of Gaussians.
    """
    squares = errors.square()
    logs = squares.mean(dim=0).clamp_min(1e-12).log().expand_as(errors).clone()
    for _ in range(_NUM_STEPS if design.shape[1] > 1 else 0):
        # One step of Newton's method for the log variance, with expected information.
        gaps = (squares / logs.exp() - 1).clamp(-1, 10)
        logs = (logs + _means(gaps, design)).clamp(-2 * _LARGEST, 2 * _LARGEST)
    return (logs / 2).exp()


def _ridged(inner: Tensor) -> Tensor:
    ridge = torch.full((len(inner),), _RIDGE, dtype=inner.dtype)
    ridge[0] = 0.0  # the constant
    return inner + ridge.diag()


def _changed(bags: Bags, moves: Tensor, ratios: Tensor) -> Bags:
    """Return bags whose draws are moved and stretched; the truths stay."""
    rows = torch.arange(len(bags))
    weights = bags.weights.clone()
    weights[rows, bags.truth] = 0
    weights = (weights / weights.sum(dim=1, keepdim=True)).unsqueeze(2)  # (N, M, 1)
    truths = bags.members[rows, bags.truth]
    mean = (weights * bags.members).sum(dim=1, keepdim=True)
    centred = bags.members - mean
    scale = (weights * centred.square()).sum(dim=1, keepdim=True).sqrt()
    members = mean + scale * moves.unsqueeze(1) + ratios.unsqueeze(1) * centred
    members[rows, bags.truth] = truths
    return Bags(members, bags.truth, bags.log_weights)
