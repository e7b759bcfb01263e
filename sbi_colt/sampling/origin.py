"""Do parameters come from the prior or the proposal that they should come from?

Pairs from another distribution reject a correct posterior, and nothing in the verdict
would show why. So parameters are compared with draws, and a warning says what differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from scipy.stats import ks_2samp
from torch import Tensor

from sbi_colt.arrays import as_tensor
from sbi_colt.checks import warn_caller
from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.sampling.focus import Weighing
from sbi_colt.sampling.pairs import PairSource, processed_prior
from sbi_colt.sampling.sbi_internals import prior_of

__all__ = ["warn_if_not_of_prior"]

_LEVEL = 1e-4
_NUM_OF_PRIOR = 5000  # draws that parameters are compared with
_FEWEST_OF_PRIOR = 200  # of them that look like draws of a proposal
_NUM_COMPARED = 1000  # draws of a prior that is compared with another one
_MAX_SUMS = 50  # pairs of parameters whose sums are compared
_NOT_OF_PRIOR = (
    "thetas: they do not look like draws from the prior (p = {p}). If they were "
    "simulated from a proposal, such as an earlier round or a truncated prior, a "
    "correct posterior is rejected: hand in prior=… and proposal=…, or use x_o=… If "
    "pairs were left out because of their x alone, the verdict on parameters is valid."
)
_NOT_OF_PROPOSAL = (
    "thetas: they do not look like draws from the proposal (p = {p}), so that a "
    "correct posterior may be rejected. Check that proposal=… is the distribution that "
    "they were simulated from; a function must return log w, w = proposal / prior."
)
_ANOTHER_PRIOR = (
    "prior: its draws do not look like those of the prior that the posterior was "
    "trained with (p = {p}). With another prior a correct posterior is rejected: hand "
    "in the prior of the training."
)


def warn_if_not_of_prior(
    posterior: Any, source: PairSource, weighing: Weighing | None, seed: int
) -> None:
    """Warn where pairs do not come from the prior or the proposal that they should.

    The prior is the one handed in, or the one that sbi keeps with its posterior; where
    both are there and pairs are simulated, the two are compared.
    """
    known, given = prior_of(posterior), None
    if source.prior is not None:
        given, _ = processed_prior(source.prior, seed)
    if source.thetas is None:
        if known is not None and given is not None:
            with isolated_rng(generator_from(seed, "compared prior")):
                thetas = torch.as_tensor(given.sample((_NUM_COMPARED,)))
            _warn_if_not_from(known, thetas, seed, _ANOTHER_PRIOR)
        return
    known = known if given is None else given
    thetas = as_tensor(source.thetas, "thetas")
    if source.xs is None or known is None or thetas.ndim != 2 or not len(thetas):
        return
    if weighing is None:
        _warn_if_not_from(known, thetas, seed, _NOT_OF_PRIOR)
    else:
        _warn_if_not_from(known, thetas, seed, _NOT_OF_PROPOSAL, weighing.log_weight)


def _warn_if_not_from(
    prior: Any,
    thetas: Tensor,
    seed: int,
    message: str,
    log_weight: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Warn where parameters do not look like draws from a prior, or from a proposal.

    Null hypothesis: the parameters come from the prior, or from π̃ = w π. Parameters,
    sums and differences of two, and sizes of all these are compared with draws by
    Kolmogorov–Smirnov tests, with Bonferroni's adjustment, at a level of 1 in 10,000,
    so that a warning is no accident.

    Args:
        prior: The prior, as sbi processed it.
        thetas: Parameters, with shape ``(N, d)``.
        seed: Seed of the draws.
        message: What the warning says, with ``{p}`` in the place of the p-value.
        log_weight: From parameters ``(n, d)`` to log w; `None` for the prior itself.
            Draws of the prior are kept in proportion to w.
    """
    thetas = thetas.detach().double().cpu()
    thetas = thetas[thetas.isfinite().all(dim=1)]
    with isolated_rng(generator_from(seed, "draws of the prior")):
        drawn = torch.as_tensor(prior.sample((_NUM_OF_PRIOR,))).double().cpu()
        if log_weight is not None:
            weights = log_weight(drawn.float())
            chance = torch.rand(len(drawn), dtype=torch.float64).log()
            drawn = drawn[chance < weights - weights.max()]
    if drawn.shape[1:] != thetas.shape[1:] or not len(thetas):
        return  # that is checked elsewhere
    if len(drawn) < _FEWEST_OF_PRIOR:
        return  # the prior hardly comes near the proposal
    middle = drawn.median(dim=0).values
    scale = (drawn - middle).abs().median(dim=0).values.clamp_min(1e-300)
    own, of_prior = (_aspects((t - middle) / scale).numpy() for t in (thetas, drawn))
    p_value = 1.0
    for column in range(own.shape[1]):
        compared: Any = ks_2samp(own[:, column], of_prior[:, column], method="asymp")
        p_value = min(p_value, compared.pvalue * own.shape[1])
    if p_value <= _LEVEL:
        warn_caller(message.format(p=f"{p_value:.1g}"))


def _aspects(points: Tensor) -> Tensor:
    """Return parameters, sums and differences of two, and their sizes, ``(N, c)``."""
    first, second = torch.combinations(torch.arange(points.shape[1])).T[:, :_MAX_SUMS]
    one, other = points[:, first], points[:, second]
    columns = torch.cat([points, one + other, one - other], dim=1)
    return torch.cat([columns, columns.abs()], dim=1)
