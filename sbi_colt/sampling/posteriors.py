"""How each kind of posterior is sampled.

=====================  ============================  =========  =====================
posterior              sampled here by               runs       bounded by
=====================  ============================  =========  =====================
Direct (NPE, MNPE)     estimator, then prior's       batched    proposals, time
                       support
NPE-A, one round       as Direct                     batched    proposals, time
NPE-A, several rounds  ``sample`` (the correction    parallel   proposals, time
                       is skipped when batched)
VectorField (NPSE,     ``sample_batched`` without    batched    proposals, time
FMPE), SDE and ODE     rejection, then support                  between blocks
VectorField, iid       ``sample``                    parallel   proposals, time
MCMC, vectorised       ``sample_batched``            batched    time between blocks
slice sampler
MCMC, other samplers,  ``sample``                    parallel   time between xs
or iid trials
Rejection              ``sample``                    parallel   60 s per x, time
Importance             ``sample``, SIR               parallel   time between xs
VI, amortized          ``sample_batched``            batched    time between blocks
VI, single x           ``train`` and ``sample``      parallel   time between xs
FilteredDirect         ``sample`` without            parallel   proposals, time
                       rejection, then support
Ensemble               each component as above,      as the     as the components
                       shares drawn for each x       components
Callable               ``q(xs, num_samples)``        batched    time between blocks
Object with sample     ``sample((num,), x=x)``       parallel   time between xs
=====================  ============================  =========  =====================

*Batched* samplers see a block of xs at once; *parallel* ones see one x at a time, as a
batch of one, and run through joblib. *Proposals* means that an x is given up when the
prior's support accepts too small a share of its draws; *time*, that
``max_sampling_time`` can stop it. Samplers that solve equations or run chains cannot
be stopped inside a block, which takes some seconds.

Importance sampling resamples from 32 proposals per draw, as sbi does by default: where
the proposal is far wider than the posterior, its draws are too wide.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sbi_colt.sampling.sbi_internals import (
    DirectPosterior,
    FilteredDirectPosterior,
    ImportanceSamplingPosterior,
    MCMCPosterior,
    NPE_A_Posterior,
    RejectionPosterior,
    VectorFieldPosterior,
    VIPosterior,
    composes_trials,
    corrects_for_proposal,
    is_amortized,
    is_vectorised,
    samples_like,
    trained_x_shape,
    within_support,
)

__all__ = ["BLOCK_DRAWS", "Sampler", "sampler_for", "with_x_shape"]

# Draws that one block of xs proposes at a time. Independent of every option, so that
# a seed means the same draws whatever the memory budget or the number of workers.
BLOCK_DRAWS = 2**16
# The same for samplers that take hundreds of steps for a draw. Larger blocks would not
# be quicker, and time limits are looked at between blocks.
_COSTLY_BLOCK_DRAWS = 2**12
# Markov chains that run at once; four times as many would be a tenth quicker.
_BLOCK_CHAINS = 256
# The most that rejection sampling may take for one x: it cannot be stopped by a count.
_SECONDS_PER_X = 60.0


@dataclass(frozen=True)
class Sampler:
    """One way of drawing from a posterior.

    Args:
        propose: Function of xs ``(n, …)``, a number of draws and a number of seconds
            (or `None`) that returns draws with shape ``(num, n, d)``, or with shape
            ``(num, d)`` at a single x.
        batched: Whether ``propose`` takes many xs at once; if not, n is 1.
        block: Most xs in one call, for a number of draws.
        prior: Where proposals may leave the prior's support, the prior.
        is_costly: Whether draws at a single x take seconds.
        grows_with_draws: Whether half of the draws take half of the time.
        with_gradients: Whether the sampler itself needs gradients.
        is_foreign: Whether sbi did not make the posterior, so its speed is unknown.
    """

    propose: Callable[[Tensor, int, float | None], Any]
    batched: bool
    block: Callable[[int], int] = lambda num: max(1, BLOCK_DRAWS // num)
    prior: Any = None
    is_costly: bool = False
    grows_with_draws: bool = False
    with_gradients: bool = False
    is_foreign: bool = False

    def accepted(self, proposals: Tensor) -> Tensor | None:
        """Return which proposals are finite and in the support, or `None` for all."""
        finite = proposals.isfinite().all(dim=-1)
        if self.prior is None:
            return None if bool(finite.all()) else finite
        # A copy: a user's prior may change what it is given.
        inside = within_support(self.prior, proposals.clone())
        return inside.reshape(finite.shape) & finite


def sampler_for(posterior: Any, xs: Tensor, use_batched_sampling: bool) -> Sampler:
    """Return how to sample a posterior at these xs; not for ensembles."""
    _check_condition(posterior, xs)
    if samples_like(posterior, DirectPosterior):
        return _direct(posterior, xs, use_batched_sampling)
    if samples_like(posterior, NPE_A_Posterior):
        can_batch = not corrects_for_proposal(posterior)
        return _direct(posterior, xs, use_batched_sampling and can_batch)
    if samples_like(posterior, FilteredDirectPosterior):
        return _direct(posterior, xs, False)
    if samples_like(posterior, VectorFieldPosterior):
        can_batch = not composes_trials(posterior) and not _is_iid(posterior, xs)
        return _direct(posterior, xs, use_batched_sampling and can_batch, costly=True)
    if samples_like(posterior, MCMCPosterior):
        can_batch = is_vectorised(posterior) and not _is_iid(posterior, xs)
        if use_batched_sampling and can_batch:
            chains = max(1, posterior.num_chains)
            return Sampler(
                _batched(posterior),
                batched=True,
                block=lambda num: max(1, _BLOCK_CHAINS // min(num, chains)),
                is_costly=True,
            )
        return Sampler(_single(posterior, xs), batched=False, with_gradients=True)
    if samples_like(posterior, RejectionPosterior):
        propose = _single(posterior, xs, takes_time=True)
        return Sampler(propose, batched=False, with_gradients=True)
    if samples_like(posterior, ImportanceSamplingPosterior):
        return Sampler(_single(posterior, xs, method="sir"), batched=False)
    if samples_like(posterior, VIPosterior):
        if is_amortized(posterior):
            return Sampler(_batched(posterior), batched=True)
        return Sampler(_single_vi(posterior, xs), batched=False, with_gradients=True)
    return _foreign(posterior, xs, use_batched_sampling)


def _direct(posterior: Any, xs: Tensor, batched: bool, costly: bool = False) -> Sampler:
    """Propose without rejection; the prior's support is imposed afterwards."""
    make = _batched if batched else _single
    draws = _COSTLY_BLOCK_DRAWS if costly else BLOCK_DRAWS
    return Sampler(
        make(posterior, xs, reject_outside_prior=False),
        batched=batched,
        block=lambda num: max(1, draws // num),
        prior=posterior.prior,
        is_costly=costly,
        grows_with_draws=True,
    )


def _foreign(posterior: Any, xs: Tensor, use_batched_sampling: bool) -> Sampler:
    """Return how to sample what sbi did not make."""
    x, foreign = xs[:1], partial(Sampler, with_gradients=True, is_foreign=True)
    if not isinstance(posterior, type):  # a class in the place of an object
        has_batched = use_batched_sampling and hasattr(posterior, "sample_batched")
        if has_batched and _takes_x(posterior.sample_batched, x):
            return foreign(_batched(posterior), batched=True)
        if hasattr(posterior, "sample") and _takes_x(posterior.sample, x):
            return foreign(_single(posterior, xs), batched=False)
        if callable(posterior) and _takes(_function_of(posterior), x, 1):
            return foreign(lambda x, num, _: posterior(x, num), batched=True)
    name = getattr(posterior, "__name__", type(posterior).__name__)
    raise TypeError(
        "posterior: expected a posterior of sbi, a callable q(xs, num_samples) that "
        "returns (num_samples, len(xs), d), or an object with sample((num,), x=x); "
        f"got {name}, which is none of these. Draws already made go into Draws."
    )


def _function_of(posterior: Callable) -> Callable:
    """Return the function that a call runs; a module need not have one."""
    if not isinstance(posterior, nn.Module):
        return posterior
    has_forward = type(posterior).forward is not nn.Module.forward
    return posterior.forward if has_forward else lambda: None


def _takes_x(method: Callable, x: Tensor) -> bool:
    """Return whether a method for sampling can be called as those of sbi are."""
    return _takes(method, (1,), x=x, **_silent(method))


def _takes(function: Callable, *args: Any, **kwargs: Any) -> bool:
    """Return whether a function can be called with these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function that does not tell
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _batched(posterior: Any, _: Tensor | None = None, **options: Any) -> Callable:
    options |= _silent(posterior.sample_batched)
    known = inspect.signature(posterior.sample_batched).parameters.values()
    takes_time = any(
        p.name == "max_sampling_time"
        or (p.kind is p.VAR_KEYWORD and isinstance(posterior, DirectPosterior))
        for p in known
    )
    # sbi's own rejection does not end by itself.
    rejects = takes_time and "reject_outside_prior" not in options

    def propose(xs: Tensor, num: int, seconds: float | None) -> Any:
        limit = {}
        if rejects:
            most = _SECONDS_PER_X * len(xs)
            limit["max_sampling_time"] = most if seconds is None else seconds
        return posterior.sample_batched(torch.Size((num,)), x=xs, **options, **limit)

    return propose


def _single(
    posterior: Any, xs: Tensor, takes_time: bool = False, **options: Any
) -> Callable:
    options |= _silent(posterior.sample)
    as_batch = not _is_iid(posterior, xs)

    def propose(x: Tensor, num: int, seconds: float | None) -> Any:
        limit = {}
        if takes_time:
            most = _SECONDS_PER_X if seconds is None else seconds
            limit["max_sampling_time"] = min(most, _SECONDS_PER_X)
        x = x if as_batch else x[0]
        return posterior.sample(torch.Size((num,)), x=x, **options, **limit)

    return propose


def _single_vi(posterior: VIPosterior, xs: Tensor) -> Callable:
    as_batch = not _is_iid(posterior, xs)

    def propose(x: Tensor, num: int, _: float | None) -> Any:
        local = copy.deepcopy(posterior)  # the user's own keeps its x
        local.set_default_x(x if as_batch else x[0])
        local.train(
            show_progress_bar=False, retrain_from_scratch=True, quality_control=False
        )
        return local.sample(torch.Size((num,)))

    return propose


def _silent(method: Callable) -> dict[str, bool]:
    """Return the option that silences sbi's own progress bars, where there is one."""
    known = inspect.signature(method).parameters
    return {"show_progress_bars": False} if "show_progress_bars" in known else {}


def _is_iid(posterior: Any, xs: Tensor) -> bool:
    """Return whether each x holds several iid trials of what was trained on."""
    shape = trained_x_shape(posterior)
    return shape is not None and xs.ndim - 1 == len(shape) + 1


def with_x_shape(posterior: Any, xs: Tensor) -> Tensor:
    """Return xs in the shape that a posterior was trained on, if only axes differ."""
    shape = trained_x_shape(posterior)
    if shape is None or _is_iid(posterior, xs) or xs[0].numel() != math.prod(shape):
        return xs
    return xs.reshape(len(xs), *shape)


def _check_condition(posterior: Any, xs: Tensor) -> None:
    shape = trained_x_shape(posterior)
    if shape is None or tuple(xs.shape[1:]) == shape:
        return
    iid = _is_iid(posterior, xs) and tuple(xs.shape[2:]) == shape
    if iid and not isinstance(posterior, DirectPosterior):
        return
    raise ValueError(
        f"xs: expected observations of shape {shape}, which the posterior was trained "
        f"on, got {tuple(xs.shape[1:])}."
    )
