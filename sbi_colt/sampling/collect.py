"""Runs of a sampler over many xs: in blocks, in parallel, or as an ensemble."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.draws import shuffle_draws
from sbi_colt.randomness import derive_seed, generator_from, isolated_rng
from sbi_colt.sampling.checkpoint import Checkpoint
from sbi_colt.sampling.parallel import in_parallel
from sbi_colt.sampling.pool import Pool, PosteriorSamples, SamplingError
from sbi_colt.sampling.posteriors import BLOCK_DRAWS, Sampler, sampler_for, with_x_shape
from sbi_colt.sampling.sbi_internals import (
    EnsemblePosterior,
    NeuralPosterior,
    component_weights,
    device_of,
    is_timeout,
    silent,
)

__all__ = ["RunOptions", "run"]

# How much smaller a time limit makes the blocks of costly samplers.
_SHRINK = 16


@dataclass(frozen=True)
class RunOptions:
    """What a run needs besides the posterior and its xs."""

    seed: int
    deadline: float | None
    num_workers: int
    use_batched_sampling: bool
    memory_budget: int
    min_acceptance: float
    max_lost: float
    device: torch.device

    def seconds_left(self) -> float | None:
        """Seconds until the deadline, or `None`."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline


def run(
    posterior: Any,
    xs: Tensor,
    num_samples: int,
    options: RunOptions,
    checkpoint: Checkpoint,
    progress: tqdm,
) -> PosteriorSamples:
    """Draw at every x, in an order of the draws that means nothing.

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
        result = _run_ensemble(posterior, xs, *rest)
    else:
        if isinstance(posterior, NeuralPosterior):
            posterior = _copy(posterior)  # sampling changes sbi's potentials
            # sbi's networks know floats only.
            xs = with_x_shape(posterior, xs.to(device_of(posterior), torch.float32))
        sampler = sampler_for(posterior, xs, options.use_batched_sampling)
        runner = _run_in_blocks if sampler.batched else _run_in_parallel
        try:
            result = runner(sampler, xs, *rest)
        except (NotImplementedError, AssertionError):
            # A subclass or a foreign class may only pretend to have a batched form.
            if not sampler.batched or not hasattr(posterior, "sample"):
                raise
            sampler = sampler_for(posterior, xs, use_batched_sampling=False)
            result = _run_in_parallel(sampler, xs, *rest)
    shuffle_draws(result.samples, generator_from(options.seed, "shuffle"))
    return result


def _copy(posterior: NeuralPosterior) -> NeuralPosterior:
    try:
        return copy.deepcopy(posterior)
    except Exception:  # what cannot be copied is used as sbi itself would
        return posterior


def _run_in_blocks(
    sampler: Sampler,
    xs: Tensor,
    num_samples: int,
    options: RunOptions,
    checkpoint: Checkpoint,
    progress: tqdm,
) -> PosteriorSamples:
    """Propose once at every x, block by block; then again where draws are missing."""
    pool: Pool | None = None
    # The dimension is not known yet: room for 64 doubles.
    limit = options.memory_budget // (num_samples * 64 * 8)
    block = sampler.block(num_samples)
    if sampler.is_costly and options.deadline is not None:
        block = max(1, block // _SHRINK)  # the clock is looked at between blocks
    size = max(1, min(block, limit))
    start = 0
    while start < len(xs):
        if options.is_late():
            break
        index = torch.arange(start, min(start + size, len(xs)))
        name = f"block-{start:08d}-{len(index)}"
        part = checkpoint.load(name)
        if part is None:
            with _own_randomness(options.seed, "block", start):
                proposals = _propose(sampler, xs[index], num_samples, options)
            accepted = _accepted(sampler, proposals)
            proposals = proposals.to(options.device)
            checkpoint.save(
                name,
                proposals=proposals.cpu().numpy(),
                **({} if accepted is None else {"accepted": accepted.cpu().numpy()}),
            )
        else:
            proposals = torch.from_numpy(part["proposals"]).to(options.device)
            accepted = (
                torch.from_numpy(part["accepted"]) if "accepted" in part else None
            )
        dim = proposals.shape[-1]
        if pool is None:
            pool = Pool.empty(num_samples, len(xs), dim, proposals)
        pool.add(index, proposals, accepted)
        progress.update(int((pool.counts[index] >= num_samples).sum()))
        start += len(index)
        limit = options.memory_budget // (num_samples * dim * proposals.element_size())
        size = max(1, min(block, limit))
    if pool is None:
        raise SamplingError(
            "max_sampling_time: no x was reached in the time allowed; raise it."
        )
    _fill(pool, sampler, xs, options, progress, stream="redraw")
    return pool.result(knows_acceptance=sampler.prior is not None)


def _fill(
    pool: Pool,
    sampler: Sampler,
    xs: Tensor,
    options: RunOptions,
    progress: tqdm | None,
    stream: str,
) -> None:
    """Propose again, only at xs that are short, until all are full or given up."""
    num_samples = len(pool.samples)
    attempt = 0
    while not options.is_late():
        # Given up: acceptance below the least by three standard errors and more.
        most = pool.accepted + 3 * (pool.accepted + 1).sqrt() + 3
        hopeless = most < options.min_acceptance * pool.proposed
        short = (pool.counts < num_samples) & (pool.proposed > 0) & ~hopeless
        short = short.nonzero().flatten()
        if not len(short) or int(hopeless.sum()) > options.max_lost * len(xs):
            return
        # Enough for the typical x at its acceptance so far, within one block.
        rate = (pool.accepted[short] + 1) / (pool.proposed[short] + 2)
        missing = num_samples - pool.counts[short]
        wanted = float((1.2 * missing / rate).median()) + 10
        num = int(min(wanted, max(1, BLOCK_DRAWS // len(short))))
        with _own_randomness(options.seed, stream, attempt):
            proposals = _propose(sampler, xs[short], num, options)
        pool.add(short, proposals, _accepted(sampler, proposals))
        if progress is not None:
            progress.update(int((pool.counts[short] >= num_samples).sum()))
        attempt += 1


def _run_in_parallel(
    sampler: Sampler,
    xs: Tensor,
    num_samples: int,
    options: RunOptions,
    checkpoint: Checkpoint,
    progress: tqdm,
) -> PosteriorSamples:
    """Sample one x at a time through joblib; a worker that dies is replaced once."""
    finished: dict[int, Pool] = {}
    for i in range(len(xs)):
        if (part := checkpoint.load(f"x-{i:08d}")) is not None:
            finished[i] = Pool(**{k: torch.from_numpy(v) for k, v in part.items()})
    progress.update(len(finished))
    deaths = 0
    while len(finished) < len(xs):
        remaining = [i for i in range(len(xs)) if i not in finished]
        try:
            for i, pool in _sample_all(sampler, xs, num_samples, options, remaining):
                finished[i] = pool
                if bool(pool.counts[0] >= num_samples):
                    progress.update(1)
                    arrays = {k: v.cpu().numpy() for k, v in vars(pool).items()}
                    checkpoint.save(f"x-{i:08d}", **arrays)
        except Exception as error:
            if not _is_death(error):
                raise
            pending = [i for i in range(len(xs)) if i not in finished]
            deaths = deaths + 1 if pending == remaining else 1
            if deaths > 1:  # nothing got done since the last one
                raise SamplingError(
                    "num_workers: a worker process died twice in a row, with "
                    f"{len(finished)} of {len(xs)} xs done; the first that are not are "
                    f"{', '.join(map(str, pending[:5]))}. It may have run out of "
                    "memory: use fewer workers. With checkpoint=… what is done is kept."
                ) from error
    pools = [finished[i] for i in range(len(xs))]
    sampled = [pool for pool in pools if pool.samples.shape[-1]]
    if not sampled:
        raise SamplingError(
            "max_sampling_time: no x was finished in the time allowed; raise it."
        )
    whole = Pool.empty(
        num_samples, len(xs), sampled[0].samples.shape[-1], sampled[0].samples
    )
    whole.samples = whole.samples.to(options.device)
    for i, pool in enumerate(pools):
        if pool.samples.shape[-1]:
            whole.samples[:, i] = pool.samples[:, 0].to(options.device)
        for name in ("counts", "proposed", "accepted"):
            getattr(whole, name)[i] = getattr(pool, name)[0]
    return whole.result(knows_acceptance=sampler.prior is not None)


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
        with _own_randomness(options.seed, "first"):
            proposals = _propose(sampler, x, num_samples, options)
    except Exception as error:
        if is_timeout(error):  # sbi's rejection sampler ran out of it
            return i, empty
        if isinstance(error, ValueError):
            raise  # it names what is wrong with the posterior as a whole
        raise SamplingError(
            f"posterior: sampling failed at x number {i}: "
            f"{type(error).__name__}: {error}"
        ) from error
    pool = Pool.empty(num_samples, 1, proposals.shape[-1], proposals)
    first = torch.zeros(1, dtype=torch.long)
    pool.add(first, proposals, _accepted(sampler, proposals))
    _fill(pool, sampler, x, options, None, stream="redraw")
    pool.samples = pool.samples.cpu()
    return i, pool


def _run_ensemble(
    posterior: EnsemblePosterior,
    xs: Tensor,
    num_samples: int,
    options: RunOptions,
    checkpoint: Checkpoint,
    progress: tqdm,
) -> PosteriorSamples:
    """Draw how many draws each component gives, for each x by itself; then those."""
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
    acceptance = torch.full((len(xs),), math.nan)
    filled = torch.zeros(len(xs), dtype=torch.long)
    silent = tqdm(disable=True)
    for c, component in enumerate(posterior.posteriors):
        who = shares[:, c].nonzero().flatten()
        if not len(who):
            continue
        most = int(shares[:, c].max())
        mine = replace(options, seed=derive_seed(options.seed, "component", c))
        if options.deadline is not None:  # an equal part of the time that is left
            left = options.deadline - time.monotonic()
            part_of = left / (len(posterior.posteriors) - c)
            mine = replace(mine, deadline=time.monotonic() + part_of)
        part = run(
            component,
            xs[who],
            most,
            mine,
            checkpoint.child(f"component-{c}", {**checkpoint.header, "component": c}),
            silent,
        )
        if samples is None:
            dim = part.samples.shape[-1]
            samples = Pool.empty(num_samples, len(xs), dim, part.samples).samples
        for column, i in enumerate(who.tolist()):
            count, start = int(shares[i, c]), int(filled[i])
            samples[start : start + count, i] = part.samples[:count, column]
            filled[i] += count
        mask[who] &= part.mask
        acceptance[who] = torch.fmin(acceptance[who], part.acceptance)
        progress.update(int((filled == num_samples).sum()) - progress.n)
    assert samples is not None
    samples[:, ~mask.to(samples.device)] = math.nan
    return PosteriorSamples(samples, mask, acceptance)


@contextmanager
def _own_randomness(seed: int, *stream: int | str) -> Iterator[None]:
    with isolated_rng(generator_from(seed, *stream)):
        yield


def _propose(sampler: Sampler, xs: Tensor, num: int, options: RunOptions) -> Tensor:
    # Without need gradients would cost time and several times the memory.
    with silent(), torch.set_grad_enabled(sampler.with_gradients):
        proposals = _in_pieces(sampler, xs, num, options)
    proposals = torch.as_tensor(proposals)
    if proposals.ndim != 3 or proposals.shape[:2] != (num, len(xs)):
        raise ValueError(
            f"posterior: expected draws of shape ({num}, {len(xs)}, d), "
            f"got {tuple(proposals.shape)}."
        )
    if not proposals.is_floating_point():
        proposals = proposals.float()
    return proposals.detach()


def _in_pieces(sampler: Sampler, xs: Tensor, num: int, options: RunOptions) -> Any:
    """Propose many draws at few xs a piece at a time, where that costs nothing."""
    most = max(1, BLOCK_DRAWS // len(xs))
    if sampler.prior is None or num <= most:
        return sampler.propose(xs, num, options.seconds_left())
    sizes = [most] * (num // most) + ([num % most] if num % most else [])
    pieces = [sampler.propose(xs, size, options.seconds_left()) for size in sizes]
    return torch.cat(pieces)


def _accepted(sampler: Sampler, proposals: Tensor) -> Tensor | None:
    """Return which proposals count: finite, and in the prior's support."""
    finite = proposals.isfinite().all(dim=-1)
    accepted = sampler.accepted(proposals)
    if accepted is None:
        return None if bool(finite.all()) else finite
    return accepted & finite


def _is_death(error: BaseException) -> bool:
    """Return whether an error says that a worker process died."""
    return isinstance(error, TerminatedWorkerError) or (
        type(error).__name__ in ("KilledWorker", "BrokenProcessPool")
    )
