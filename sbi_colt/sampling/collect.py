"""A posterior over many xs: which sampler fits, and all of its draws.

Samplers that take many xs at once run block after block; the others run at one x at a
time through joblib; an ensemble runs each of its components in one of these ways.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.checks import warn_caller
from sbi_colt.randomness import derive_seed, generator_from, shuffle_draws
from sbi_colt.sampling.checkpoint import Checkpoint
from sbi_colt.sampling.messages import Estimate
from sbi_colt.sampling.options import RunOptions
from sbi_colt.sampling.parallel import in_parallel
from sbi_colt.sampling.pool import Pool, PosteriorSamples, SamplingError, propose
from sbi_colt.sampling.posteriors import Sampler, sampler_for, with_x_shape
from sbi_colt.sampling.sbi_internals import (
    EnsemblePosterior,
    NeuralPosterior,
    component_weights,
    device_of,
    is_timeout,
)

__all__ = ["collect"]

# xs in one block of a sampler of unknown speed, where there is a time limit: the clock
# is looked at between blocks.
_TIMED_BLOCK = 16
# xs of the reference draws of a checkpoint, for samplers that take many xs at once.
_REFERENCE_XS = 16
# Samplers that take one x at a time may be too slow at some xs: they try so many.
_REFERENCE_ATTEMPTS = 5
# xs at which a posterior that sbi did not make must give the same draws twice before it
# counts as one that sets a seed itself; discrete draws may agree at some by chance.
_TWICE_XS = 20


def collect(
    posterior: Any,
    xs: Tensor,
    num_samples: int,
    options: RunOptions,
    checkpoint: Checkpoint,
    progress: tqdm,
) -> PosteriorSamples:
    """Draw at every x, with the draws at each x shuffled."""
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
            result = _Run(sampler, xs, *rest).result()
        except (NotImplementedError, AssertionError):
            # Some classes have a batched form that only raises.
            if not sampler.batched or not hasattr(posterior, "sample"):
                raise
            sampler = sampler_for(posterior, xs, use_batched_sampling=False)
            result = _Run(sampler, xs, *rest).result()
    shuffle_draws(result.samples, generator_from(options.seed, "shuffle"))
    return result


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
    pool: Pool | None = None
    mask = torch.ones(len(xs), dtype=torch.bool)
    given_up = torch.zeros(len(xs), dtype=torch.bool)
    acceptance = torch.full((len(xs),), math.nan)
    for c, component in enumerate(posterior.posteriors):
        shares = (chosen == c).sum(dim=1)  # (N,)
        who = shares.nonzero().flatten()
        if not len(who):
            continue
        seconds = options.seconds_left()
        if seconds is not None:  # an equal part of the time that is left
            seconds /= len(weights) - c
        part = collect(
            component,
            xs[who],
            int(shares.max()),
            replace(
                options,
                seed=derive_seed(options.seed, "component", c),
                max_sampling_time=seconds,
            ),
            checkpoint.child(f"component-{c}", component=c),
            tqdm(disable=True),
        )
        if pool is None:
            pool = Pool.empty(num_samples, len(xs), part.samples)
        wanted = torch.arange(len(part.samples)).unsqueeze(1) < shares[who]
        pool.add(who, part.samples, wanted)
        mask[who] &= part.mask
        given_up[who] |= part.given_up
        acceptance[who] = torch.fmin(acceptance[who], part.acceptance)
        progress.update(int((pool.counts == num_samples).sum()) - progress.n)
    assert pool is not None
    pool.samples[:, ~mask.to(pool.samples.device)] = math.nan
    return PosteriorSamples(pool.samples, mask, acceptance, given_up)


@dataclass(frozen=True)
class _Run:
    """One sampler at all xs, as in `collect`."""

    sampler: Sampler
    xs: Tensor
    num_samples: int
    options: RunOptions
    checkpoint: Checkpoint
    progress: tqdm

    def result(self) -> PosteriorSamples:
        """Make the draws, or those that the checkpoint does not hold."""
        batched = self.sampler.batched
        self.checkpoint.recognise(self._reference_draws, batched)
        pool = self._in_blocks() if batched else self._one_by_one()
        if pool is None:
            raise SamplingError(
                "max_sampling_time: no x was finished in the time allowed; raise it."
            )
        result = pool.result(self.sampler.prior is not None, self.options.is_late())
        if self.sampler.is_foreign and self._repeats_itself():
            warn_caller(
                "posterior: it gives the same draws whenever it meets the same x, "
                "although the random numbers differ. If it sets a random seed itself, "
                "or uses the same noise for all xs, draws at different xs can depend "
                "on each other, and p-values can be wrong: let it use torch's or "
                "NumPy's global random numbers. If it looks up draws that were stored "
                "for each x, nothing is wrong."
            )
        return result

    def _repeats_itself(self) -> bool:
        """Return whether draws at the same x are equal though random numbers differ.

        Bags that share their noise are not independent: with one noise for 60 xs and
        10 draws at each, the level 0.05 became 0.74 on the parameter side and 0.40 on
        the data side (200 runs with an exact posterior).

        Two draws are made twice, in two calls, and at two places of a call where the
        sampler takes many xs. A posterior of independent draws is cleared at the first
        x. One without any noise is not meant: its draws at one x are all the same.
        """
        few = replace(self, num_samples=2)
        options = replace(self.options, max_sampling_time=None)
        in_two_calls, in_one_call, has_noise = True, self.sampler.batched, False
        for i in range(min(len(self.xs), _TWICE_XS)):
            place = torch.full((2 if self.sampler.batched else 1,), i)
            try:
                first, second = (
                    few._propose(place, options, "twice", i, turn)[0] for turn in (0, 1)
                )  # (2, 2 or 1, d)
            except Exception:  # it takes no other number of draws than that of the run
                return False
            in_two_calls &= torch.equal(first, second)
            in_one_call &= torch.equal(first[:, 0], first[:, -1])
            has_noise |= not torch.equal(first[0, 0], first[1, 0])
            if not in_two_calls and not in_one_call:
                return False
        return has_noise

    def _reference_draws(self) -> Tensor:
        """Return the draws by which a checkpoint recognises a posterior.

        They come from several xs, evenly spread, or from one x if the sampler takes
        long. They depend on nothing but seed, xs and posterior. Proposals outside the
        prior's support are NaN: another support is another posterior.
        """
        num_xs = len(self.xs)
        if self.sampler.batched:
            most = 1 if self.sampler.is_costly else _REFERENCE_XS
            most = min(num_xs, most, self.sampler.block(self.num_samples))
        else:
            most = min(num_xs, _REFERENCE_ATTEMPTS)
        spread = torch.linspace(0, num_xs - 1, most).long()
        if self.sampler.is_foreign and not self.sampler.batched:
            few = replace(self, num_samples=math.ceil(self.num_samples / most))
            one = replace(self.options, max_sampling_time=None)
            parts = [few._propose(x, one, "reference")[0] for x in spread.split(1)]
            return torch.cat(parts, dim=1)
        places = spread.unsqueeze(0 if self.sampler.batched else 1)
        options = replace(self.options, max_sampling_time=None)
        timeout: Exception | None = None
        for place in places:
            try:
                draws, accepted = self._propose(place, options, "reference")
                if accepted is None:
                    return draws
                return draws.where(accepted.unsqueeze(-1).to(draws.device), math.nan)
            except Exception as error:
                if not is_timeout(error):
                    raise
                timeout = error
        raise ValueError(
            "checkpoint: the posterior could not be sampled at any of the xs number "
            f"{', '.join(map(str, places.flatten().tolist()))} in a minute each; "
            "without draws to recognise it by, give it a name with "
            'checkpoint_name="…".'
        ) from timeout

    def _propose(
        self, index: Tensor, options: RunOptions, *stream: int | str
    ) -> tuple[Tensor, Tensor | None]:
        xs = self.xs[index]
        return propose(self.sampler, xs, self.num_samples, options, *stream)

    def _estimate(self, num_xs: int) -> Estimate:
        return Estimate(
            num_xs,
            self.num_samples,
            self.options.seconds_left(),
            self.progress,
            self.sampler.grows_with_draws,
        )

    def _in_blocks(self) -> Pool | None:
        """Propose at every x, block by block; then again where draws are missing.

        With a time limit, each block is completed before the next one is begun, so that
        the time is spent on whole xs, in their order. Without one, missing draws of all
        blocks are made together at the end, which takes fewer calls.
        """
        num_samples, num_xs, options = self.num_samples, len(self.xs), self.options
        rest = (self.sampler, self.xs, options, self.progress, "redraw")
        pool: Pool | None = None
        estimate = self._estimate(num_xs)
        # The dimension is not known yet: room for 64 doubles.
        bytes_per_x = num_samples * 64 * 8
        start = num_drawn = 0
        while start < num_xs and not options.is_late():
            most = options.memory_budget // bytes_per_x
            most = max(1, min(self.sampler.block(num_samples), most))
            if options.random_order and self.sampler.is_foreign:
                most = min(most, _TIMED_BLOCK)
            index = torch.arange(start, min(start + most, num_xs))
            block, is_new = self._block(index)
            num_drawn += is_new * len(index)
            estimate.num_xs -= (not is_new) * len(index)
            proposals = block["proposals"].to(options.device)
            if pool is None:
                pool = Pool.empty(num_samples, num_xs, proposals)
            pool.add(index, proposals, block.get("accepted"))
            self.progress.update(int((pool.counts[index] >= num_samples).sum()))
            if options.deadline is not None:
                pool.fill(index, *rest, start)
                if int(pool.given_up.sum()) > options.max_lost * num_xs:
                    break  # which is an error
            estimate.update(num_drawn)
            bytes_per_x = num_samples * proposals.shape[-1] * proposals.element_size()
            start += len(index)
        if pool is not None and options.deadline is None:
            pool.fill(torch.arange(num_xs), *rest)
        return pool

    def _block(self, index: Tensor) -> tuple[dict[str, Tensor], bool]:
        """Return proposals ``(S, n, d)`` with ``accepted``, and whether they are new.

        Without ``accepted``, which has shape ``(S, n)``, all are accepted.
        """
        start, shape = int(index[0]), (self.num_samples, len(index))
        name = f"block-{start:08d}-{len(index)}"
        block = self.checkpoint.load(name) or {}
        if "proposals" in block and block["proposals"].shape[:2] == shape:
            return block, False
        proposals, accepted = self._propose(index, self.options, "block", start)
        block = {"proposals": proposals}
        if accepted is not None:
            block["accepted"] = accepted
        self.checkpoint.save(name, block)
        return block, True

    def _one_by_one(self) -> Pool | None:
        """Sample at one x after another; a worker that dies is replaced once."""
        sampler, xs, options = self.sampler, self.xs, self.options
        pools = self._stored_pools()
        num_stored, has_died = len(pools), False
        self.progress.update(num_stored)
        estimate = self._estimate(len(xs) - num_stored)
        while missing := [i for i in range(len(xs)) if i not in pools]:
            tasks = (
                (sampler, xs[i : i + 1], self.num_samples, options, i) for i in missing
            )
            try:
                for i, pool in in_parallel(_sample_one, tasks, options.num_workers):
                    pools[i] = pool
                    if bool(pool.counts[0] >= self.num_samples):
                        self.progress.update(1)
                        self.checkpoint.save(f"x-{i:08d}", vars(pool))
                    estimate.update(len(pools) - num_stored)
            except Exception as error:
                if not _is_death(error):
                    raise
                if has_died and not any(i in pools for i in missing):
                    raise SamplingError(
                        "num_workers: a worker process died twice in a row, with "
                        f"{len(pools)} of {len(xs)} xs done; the first xs that are not "
                        f"done are {', '.join(map(str, missing[:5]))}. They may have "
                        "run out of memory: use fewer workers. With checkpoint=… what "
                        "is done is kept."
                    ) from error
                has_died = True
        return _joined([pools[i] for i in range(len(xs))], options.device)

    def _stored_pools(self) -> dict[int, Pool]:
        """Return what the checkpoint holds, by the number of the x."""
        found: dict[int, Pool] = {}
        for i in range(len(self.xs)):
            part = self.checkpoint.load(f"x-{i:08d}")
            if part is None or set(part) != set(Pool.__dataclass_fields__):
                continue
            if part["samples"].shape[:2] == (self.num_samples, 1):
                found[i] = Pool(**part)
        return found


def _sample_one(
    sampler: Sampler, x: Tensor, num_samples: int, options: RunOptions, i: int
) -> tuple[int, Pool]:
    """Return i and the draws at one x; they have dimension 0 if time ran out."""
    options = replace(
        options,
        seed=derive_seed(options.seed, "x", i),
        max_sampling_time=options.seconds_left(),
    )
    empty = Pool.empty(num_samples, 1, torch.zeros(0))
    if options.is_late():
        return i, empty
    try:
        proposals, accepted = propose(sampler, x, num_samples, options, "first")
    except Exception as error:
        if is_timeout(error):  # rejection sampling takes too long at this x
            empty.given_up[:] = not options.is_late()
            return i, empty
        is_form = isinstance(error, (TypeError, ValueError))
        if is_form and str(error).startswith("posterior:"):
            raise  # the draws have the wrong form, at this x as at any other
        raise SamplingError(
            f"posterior: sampling failed at x number {i}: "
            f"{type(error).__name__}: {error}"
        ) from error
    pool = Pool.empty(num_samples, 1, proposals)
    first = torch.zeros(1, dtype=torch.long)
    pool.add(first, proposals, accepted)
    pool.fill(first, sampler, x, options, tqdm(disable=True), "redraw")
    pool.samples = pool.samples.cpu()
    return i, pool


def _joined(pools: list[Pool], device: str | torch.device) -> Pool | None:
    """Return pools of one x each as one, or `None` if none has draws."""
    sampled = [pool.samples for pool in pools if pool.samples.shape[-1]]
    if not sampled:
        return None
    whole = Pool.empty(len(sampled[0]), len(pools), sampled[0].to(device))
    for i, pool in enumerate(pools):
        if pool.samples.shape[-1]:
            whole.samples[:, i] = pool.samples[:, 0].to(device)
        for name in ("counts", "proposed", "accepted", "given_up"):
            getattr(whole, name)[i] = getattr(pool, name)[0]
    return whole


def _is_death(error: BaseException) -> bool:
    return isinstance(error, TerminatedWorkerError) or (
        type(error).__name__ in ("KilledWorker", "BrokenProcessPool")
    )
