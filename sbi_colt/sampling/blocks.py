"""Samplers that take many xs at once: block after block."""

from __future__ import annotations

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.sampling.checkpoint import Checkpoint
from sbi_colt.sampling.estimate import Estimate
from sbi_colt.sampling.options import RunOptions
from sbi_colt.sampling.pool import Pool, PosteriorSamples, SamplingError
from sbi_colt.sampling.posteriors import BLOCK_DRAWS, Sampler
from sbi_colt.sampling.propose import accepted_of, own_randomness, proposals_at

__all__ = ["fill", "run_in_blocks"]


def run_in_blocks(
    sampler: Sampler,
    xs: Tensor,
    num_samples: int,
    options: RunOptions,
    checkpoint: Checkpoint,
    progress: tqdm,
) -> PosteriorSamples:
    """Propose at every x, block by block; then again where draws are missing.

    With a time limit, each block is completed before the next one is begun, so that the
    time is spent on whole xs, in their order. Without one, missing draws of all blocks
    are made together at the end, which takes fewer calls.
    """
    pool: Pool | None = None
    estimate = Estimate(
        len(xs),
        num_samples,
        options.seconds_left(),
        progress,
        sampler.grows_with_draws,
    )
    # The dimension is not known yet: room for 64 doubles.
    bytes_per_x = num_samples * 64 * 8
    start = num_drawn = 0
    while start < len(xs) and not options.is_late():
        most = min(sampler.block(num_samples), options.memory_budget // bytes_per_x)
        index = torch.arange(start, min(start + max(1, most), len(xs)))
        name = f"block-{start:08d}-{len(index)}"
        block = _stored_block(checkpoint, name, (num_samples, len(index)))
        if block is None:
            block = _new_block(sampler, xs, num_samples, options, index)
            _store_block(checkpoint, name, *block)
            num_drawn += len(index)
        else:
            estimate.num_xs -= len(index)
        proposals, accepted = block[0].to(options.device), block[1]
        if pool is None:
            pool = Pool.empty(num_samples, len(xs), proposals.shape[-1], proposals)
        pool.add(index, proposals, accepted)
        progress.update(int((pool.counts[index] >= num_samples).sum()))
        if options.deadline is not None:
            fill(pool, sampler, xs, options, progress, index, ("redraw", start))
            if int(pool.given_up.sum()) > options.max_lost * len(xs):
                break  # which is an error
        estimate.update(num_drawn)
        bytes_per_x = num_samples * proposals.shape[-1] * proposals.element_size()
        start += len(index)
    if pool is None:
        raise SamplingError(
            "max_sampling_time: no x was reached in the time allowed; raise it."
        )
    if options.deadline is None:
        fill(pool, sampler, xs, options, progress, torch.arange(len(xs)), ("redraw",))
    return pool.result(sampler.prior is not None, options.is_late())


def fill(
    pool: Pool,
    sampler: Sampler,
    xs: Tensor,
    options: RunOptions,
    progress: tqdm | None,
    index: Tensor,
    stream: tuple[int | str, ...],
) -> None:
    """Propose again where draws are missing, until each x is full or given up.

    Args:
        pool: The draws so far.
        sampler: How to sample.
        xs: All observations.
        options: Seed and limits.
        progress: Progress bar over xs, or `None`.
        index: The xs to look at.
        stream: Name of the random stream.
    """
    num_samples = len(pool.samples)
    attempt = 0
    while not options.is_late():
        # Given up: acceptance below the least by three standard errors and more.
        most = pool.accepted + 3 * (pool.accepted + 1).sqrt() + 3
        is_short = pool.counts < num_samples
        pool.given_up = is_short & (most < options.min_acceptance * pool.proposed)
        short = index[is_short[index] & ~pool.given_up[index]]
        if not len(short) or int(pool.given_up.sum()) > options.max_lost * len(xs):
            return
        # Enough for the typical x at its acceptance so far, within one block.
        rate = (pool.accepted[short] + 1) / (pool.proposed[short] + 2)
        missing = num_samples - pool.counts[short]
        wanted = float((1.2 * missing / rate).median()) + 10
        num = int(min(wanted, max(1, BLOCK_DRAWS // len(short))))
        with own_randomness(options.seed, *stream, attempt):
            proposals = proposals_at(sampler, xs[short], num, options.seconds_left())
        pool.add(short, proposals, accepted_of(sampler, proposals))
        if progress is not None:
            progress.update(int((pool.counts[short] >= num_samples).sum()))
        attempt += 1


def _new_block(
    sampler: Sampler,
    xs: Tensor,
    num_samples: int,
    options: RunOptions,
    index: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """Return proposals ``(S, n, d)`` and which of them count, ``(S, n)``."""
    with own_randomness(options.seed, "block", int(index[0])):
        proposals = proposals_at(
            sampler, xs[index], num_samples, options.seconds_left()
        )
    return proposals, accepted_of(sampler, proposals)


def _store_block(
    checkpoint: Checkpoint, name: str, proposals: Tensor, accepted: Tensor | None
) -> None:
    more = {} if accepted is None else {"accepted": accepted}
    checkpoint.save(name, {"proposals": proposals, **more})


def _stored_block(
    checkpoint: Checkpoint, name: str, shape: tuple[int, int]
) -> tuple[Tensor, Tensor | None] | None:
    part = checkpoint.load(name)
    if part is None or "proposals" not in part or part["proposals"].shape[:2] != shape:
        return None
    return part["proposals"], part.get("accepted")
