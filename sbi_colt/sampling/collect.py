"""A posterior over many xs: a copy of it, the sampler that fits, all of its draws."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.draws import shuffle_draws
from sbi_colt.randomness import derive_seed, generator_from
from sbi_colt.sampling.blocks import run_in_blocks
from sbi_colt.sampling.checkpoint import Checkpoint
from sbi_colt.sampling.one_by_one import run_one_by_one
from sbi_colt.sampling.options import RunOptions
from sbi_colt.sampling.pool import Pool, PosteriorSamples
from sbi_colt.sampling.posteriors import Sampler, sampler_for, with_x_shape
from sbi_colt.sampling.propose import reference_draws
from sbi_colt.sampling.sbi_internals import (
    EnsemblePosterior,
    NeuralPosterior,
    component_weights,
    device_of,
)

__all__ = ["collect"]


def collect(
    posterior: Any,
    xs: Tensor,
    num_samples: int,
    options: RunOptions,
    checkpoint: Checkpoint,
    progress: tqdm,
) -> PosteriorSamples:
    """Draw at every x, with the draws at each x shuffled.

    Args:
        posterior: What to draw from.
        xs: Observations, with shape ``(N, …)``.
        num_samples: Draws per x, S.
        options: Seed, limits, workers and device.
        checkpoint: Where finished parts are kept.
        progress: Progress bar over xs.
    """
    rest = (num_samples, options, checkpoint, progress)
    if isinstance(posterior, EnsemblePosterior):
        result = _collect_ensemble(posterior, xs, *rest)
    else:
        if isinstance(posterior, NeuralPosterior):
            posterior = _copy(posterior)  # sampling changes sbi's potentials
            # sbi's networks know floats only.
            xs = with_x_shape(posterior, xs.to(device_of(posterior), torch.float32))
        sampler = sampler_for(posterior, xs, options.use_batched_sampling)
        try:
            result = _run(sampler, xs, *rest)
        except (NotImplementedError, AssertionError):
            # Some classes have a batched form that only raises.
            if not sampler.batched or not hasattr(posterior, "sample"):
                raise
            sampler = sampler_for(posterior, xs, use_batched_sampling=False)
            result = _run(sampler, xs, *rest)
    shuffle_draws(result.samples, generator_from(options.seed, "shuffle"))
    return result


def _run(
    sampler: Sampler,
    xs: Tensor,
    num_samples: int,
    options: RunOptions,
    checkpoint: Checkpoint,
    progress: tqdm,
) -> PosteriorSamples:
    checkpoint.recognise(
        lambda: reference_draws(sampler, xs, num_samples, options), sampler.batched
    )
    run = run_in_blocks if sampler.batched else run_one_by_one
    return run(sampler, xs, num_samples, options, checkpoint, progress)


def _copy(posterior: NeuralPosterior) -> NeuralPosterior:
    try:
        return copy.deepcopy(posterior)
    except Exception:  # a posterior that cannot be copied is used as it is
        return posterior


def _collect_ensemble(
    posterior: EnsemblePosterior,
    xs: Tensor,
    num_samples: int,
    options: RunOptions,
    checkpoint: Checkpoint,
    progress: tqdm,
) -> PosteriorSamples:
    """Choose how many draws each component gives at each x; then make those draws."""
    weights = component_weights(posterior)
    chosen = torch.multinomial(
        weights.expand(len(xs), -1),
        num_samples,
        replacement=True,
        generator=generator_from(options.seed, "components"),
    )  # (N, S)
    shares = torch.stack(
        [(chosen == c).sum(dim=1) for c in range(len(weights))], dim=1
    )  # (N, C)
    samples: Tensor | None = None
    mask = torch.ones(len(xs), dtype=torch.bool)
    given_up = torch.zeros(len(xs), dtype=torch.bool)
    acceptance = torch.full((len(xs),), math.nan)
    filled = torch.zeros(len(xs), dtype=torch.long)
    for c, component in enumerate(posterior.posteriors):
        who = shares[:, c].nonzero().flatten()
        if not len(who):
            continue
        mine = replace(options, seed=derive_seed(options.seed, "component", c))
        if options.deadline is not None:  # an equal part of the time that is left
            left = options.deadline - time.monotonic()
            part_of = left / (len(posterior.posteriors) - c)
            mine = replace(mine, deadline=time.monotonic() + part_of)
        part = collect(
            component,
            xs[who],
            int(shares[:, c].max()),
            mine,
            checkpoint.child(f"component-{c}", component=c),
            tqdm(disable=True),
        )
        if samples is None:
            dim = part.samples.shape[-1]
            samples = Pool.empty(num_samples, len(xs), dim, part.samples).samples
        for column, i in enumerate(who.tolist()):
            count, start = int(shares[i, c]), int(filled[i])
            samples[start : start + count, i] = part.samples[:count, column]
            filled[i] += count
        mask[who] &= part.mask
        given_up[who] |= part.given_up
        acceptance[who] = torch.fmin(acceptance[who], part.acceptance)
        progress.update(int((filled == num_samples).sum()) - progress.n)
    assert samples is not None
    samples[:, ~mask.to(samples.device)] = math.nan
    return PosteriorSamples(samples, mask, acceptance, given_up)
