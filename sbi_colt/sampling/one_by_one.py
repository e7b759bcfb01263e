"""Samplers that take one x at a time: through joblib, in parallel if wanted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.randomness import derive_seed
from sbi_colt.sampling.blocks import fill
from sbi_colt.sampling.checkpoint import Checkpoint
from sbi_colt.sampling.estimate import Estimate
from sbi_colt.sampling.options import RunOptions
from sbi_colt.sampling.parallel import in_parallel
from sbi_colt.sampling.pool import Pool, PosteriorSamples, SamplingError
from sbi_colt.sampling.posteriors import Sampler
from sbi_colt.sampling.propose import accepted_of, own_randomness, proposals_at
from sbi_colt.sampling.sbi_internals import is_timeout

__all__ = ["run_one_by_one"]


def run_one_by_one(
    sampler: Sampler,
    xs: Tensor,
    num_samples: int,
    options: RunOptions,
    checkpoint: Checkpoint,
    progress: tqdm,
) -> PosteriorSamples:
    """Sample at one x after another; a worker that dies is replaced once."""
    finished = _stored_pools(checkpoint, len(xs), num_samples)
    progress.update(len(finished))
    estimate = Estimate(
        len(xs) - len(finished),
        num_samples,
        options.seconds_left(),
        progress,
        sampler.grows_with_draws,
    )
    num_stored = len(finished)
    deaths = 0
    while len(finished) < len(xs):
        remaining = [i for i in range(len(xs)) if i not in finished]
        try:
            for i, pool in _sample_all(sampler, xs, num_samples, options, remaining):
                finished[i] = pool
                if bool(pool.counts[0] >= num_samples):
                    progress.update(1)
                    checkpoint.save(f"x-{i:08d}", vars(pool))
                estimate.update(len(finished) - num_stored)
        except Exception as error:
            if not _is_death(error):
                raise
            pending = [i for i in range(len(xs)) if i not in finished]
            deaths = deaths + 1 if pending == remaining else 1
            if deaths > 1:  # nothing got done since the last one
                raise SamplingError(
                    "num_workers: a worker process died twice in a row, with "
                    f"{len(finished)} of {len(xs)} xs done; the first xs that are not "
                    f"done are {', '.join(map(str, pending[:5]))}. They may have run "
                    "out of memory: use fewer workers. With checkpoint=… what is done "
                    "is kept."
                ) from error
    pools = [finished[i] for i in range(len(xs))]
    return _joined(pools, num_samples, options, sampler.prior is not None)


def _stored_pools(
    checkpoint: Checkpoint, num_xs: int, num_samples: int
) -> dict[int, Pool]:
    """Return what a checkpoint holds, by the number of the x."""
    found: dict[int, Pool] = {}
    for i in range(num_xs):
        part = checkpoint.load(f"x-{i:08d}")
        if part is None or set(part) != set(Pool.__dataclass_fields__):
            continue
        if part["samples"].shape[:2] == (num_samples, 1):
            found[i] = Pool(**part)
    return found


def _joined(
    pools: list[Pool], num_samples: int, options: RunOptions, knows_acceptance: bool
) -> PosteriorSamples:
    sampled = [pool for pool in pools if pool.samples.shape[-1]]
    if not sampled:
        raise SamplingError(
            "max_sampling_time: no x was finished in the time allowed; raise it."
        )
    like = sampled[0].samples
    whole = Pool.empty(num_samples, len(pools), like.shape[-1], like)
    whole.samples = whole.samples.to(options.device)
    for i, pool in enumerate(pools):
        if pool.samples.shape[-1]:
            whole.samples[:, i] = pool.samples[:, 0].to(options.device)
        for name in ("counts", "proposed", "accepted", "given_up"):
            getattr(whole, name)[i] = getattr(pool, name)[0]
    return whole.result(knows_acceptance, options.is_late())


def _sample_all(
    sampler: Sampler,
    xs: Tensor,
    num_samples: int,
    options: RunOptions,
    indices: list[int],
) -> Iterator[tuple[int, Pool]]:
    seconds = options.seconds_left()  # monotonic clocks of processes do not agree
    until = None if seconds is None else time.time() + seconds
    remote = replace(options, device=torch.device("cpu"), deadline=None)
    tasks = ((sampler, xs[i : i + 1], num_samples, remote, until, i) for i in indices)
    yield from in_parallel(_sample_one, tasks, options.num_workers)


def _sample_one(
    sampler: Sampler,
    x: Tensor,
    num_samples: int,
    options: RunOptions,
    until: float | None,
    i: int,
) -> tuple[int, Pool]:
    seconds = None if until is None else until - time.time()
    if seconds is not None:
        options = replace(options, deadline=time.monotonic() + seconds)
    options = replace(options, seed=derive_seed(options.seed, "x", i))
    empty = Pool.empty(num_samples, 1, 0, torch.zeros(0))
    if options.is_late():
        return i, empty
    try:
        with own_randomness(options.seed, "first"):
            proposals = proposals_at(sampler, x, num_samples, options.seconds_left())
    except Exception as error:
        if is_timeout(error):  # rejection sampling takes too long at this x
            empty.given_up[:] = not options.is_late()
            return i, empty
        if isinstance(error, ValueError) and str(error).startswith("posterior:"):
            raise  # the draws have the wrong form, at this x as at any other
        raise SamplingError(
            f"posterior: sampling failed at x number {i}: "
            f"{type(error).__name__}: {error}"
        ) from error
    pool = Pool.empty(num_samples, 1, proposals.shape[-1], proposals)
    first = torch.zeros(1, dtype=torch.long)
    pool.add(first, proposals, accepted_of(sampler, proposals))
    fill(pool, sampler, x, options, None, first, ("redraw",))
    pool.samples = pool.samples.cpu()
    return i, pool


def _is_death(error: BaseException) -> bool:
    """Return whether an error says that a worker process died."""
    return isinstance(error, TerminatedWorkerError) or (
        type(error).__name__ in ("KilledWorker", "BrokenProcessPool")
    )
