"""Proposals of a sampler, and a pool of those accepted: S draws for each x.

`propose` is the only place that calls a user's posterior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.arrays import as_output
from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.sampling.options import RunOptions
from sbi_colt.sampling.posteriors import BLOCK_DRAWS, Sampler
from sbi_colt.sampling.sbi_internals import silent

__all__ = ["Pool", "PosteriorSamples", "SamplingError", "propose"]


class SamplingError(RuntimeError):
    """Sampling could not be finished; the message says what to do.

    ``partial`` holds what was drawn, where there is anything.
    """

    def __init__(self, message: str, partial: PosteriorSamples | None = None):
        super().__init__(message)
        self.partial = partial


@dataclass(frozen=True, eq=False)
class PosteriorSamples:
    """Posterior draws, and which xs have them.

    Args:
        samples: Draws with shape ``(S, N, d)``; NaN for the xs left out.
        mask: Which xs are complete, with shape ``(N,)``.
        acceptance: Share of each x's proposals inside the prior's support, with shape
            ``(N,)``; NaN for samplers that cannot leave it.
        given_up: Which xs were given up because too few of their proposals are finite
            and inside the prior's support, with shape ``(N,)``. Time ran out for the
            others that are not complete.
    """

    samples: Tensor
    mask: Tensor
    acceptance: Tensor
    given_up: Tensor

    def select(self, index: Tensor) -> PosteriorSamples:
        """Return the xs at ``index``, in this order."""
        here = index.to(self.samples.device)
        return PosteriorSamples(
            self.samples[:, here],
            self.mask[index],
            self.acceptance[index],
            self.given_up[index],
        )


@dataclass
class Pool:
    """Accepted draws of n xs, filled up as they come."""

    samples: Tensor  # (S, n, d)
    counts: Tensor  # (n,), how many of the S are there
    proposed: Tensor  # (n,)
    accepted: Tensor  # (n,), those beyond S included
    given_up: Tensor  # (n,), whether too few proposals were accepted

    @classmethod
    def empty(cls, num_samples: int, num_xs: int, like: Tensor) -> Pool:
        """Return an empty pool for draws of the dimension, type and device of some."""
        samples = like.new_full((num_samples, num_xs, like.shape[-1]), math.nan)
        zeros = torch.zeros(num_xs, dtype=torch.long)
        return cls(samples, zeros, zeros.clone(), zeros.clone(), zeros.bool())

    def add(self, index: Tensor, proposals: Tensor, accepted: Tensor | None) -> None:
        """Add proposals ``(m, k, d)`` to the k xs at ``index``."""
        num_samples, num = len(self.samples), len(proposals)
        proposals = proposals.to(self.samples)
        fresh = bool((self.counts[index] == 0).all())
        if accepted is None or bool(accepted.all()):
            arrived = torch.full((len(index),), num)
        else:
            arrived = accepted.sum(dim=0).cpu()
            order = (~accepted).byte().argsort(dim=0, stable=True)  # accepted first
            order = order.to(proposals.device).unsqueeze(-1).expand_as(proposals)
            proposals = proposals.gather(0, order)
        self.proposed[index] += num
        self.accepted[index] += arrived
        if fresh:
            rows = min(num, num_samples)
            block = proposals[:rows]
            filled = torch.arange(rows).unsqueeze(1) < arrived  # (rows, k)
            block[~filled.to(block.device)] = math.nan
            self.samples[:rows, index.to(self.samples.device)] = block
            self.counts[index] = arrived.clamp_max(rows)
            return
        for column, i in enumerate(index.tolist()):
            start = int(self.counts[i])
            stop = min(num_samples, start + int(arrived[column]))
            self.samples[start:stop, i] = proposals[: stop - start, column]
            self.counts[i] = stop

    def fill(
        self,
        index: Tensor,
        sampler: Sampler,
        xs: Tensor,
        options: RunOptions,
        progress: tqdm,
        *stream: int | str,
    ) -> None:
        """Propose again at the xs of ``index`` until each is full or given up.

        ``xs`` are all observations; ``stream`` names the random stream.
        """
        num_samples, attempt = len(self.samples), 0
        while not options.is_late():
            # Given up: acceptance below the least by three standard errors and more.
            most = self.accepted + 3 * (self.accepted + 1).sqrt() + 3
            is_short = self.counts < num_samples
            self.given_up = is_short & (most < options.min_acceptance * self.proposed)
            short = index[is_short[index] & ~self.given_up[index]]
            if not len(short) or int(self.given_up.sum()) > options.max_lost * len(xs):
                return
            # Enough for the typical x at its acceptance so far, within one block.
            rate = (self.accepted[short] + 1) / (self.proposed[short] + 2)
            missing = num_samples - self.counts[short]
            wanted = float((1.2 * missing / rate).median()) + 10
            num = int(min(wanted, max(1, BLOCK_DRAWS // len(short))))
            self.add(
                short, *propose(sampler, xs[short], num, options, *stream, attempt)
            )
            progress.update(int((self.counts[short] >= num_samples).sum()))
            attempt += 1

    def result(self, knows_acceptance: bool, is_late: bool) -> PosteriorSamples:
        """Return what is there; xs with too few draws count as left out."""
        mask = self.counts >= len(self.samples)
        self.samples[:, ~mask.to(self.samples.device)] = math.nan
        rate = self.accepted / self.proposed  # NaN for xs never reached
        return PosteriorSamples(
            self.samples,
            mask,
            rate if knows_acceptance else rate * math.nan,
            ~mask & self.given_up if is_late else ~mask,
        )


def propose(
    sampler: Sampler, xs: Tensor, num: int, options: RunOptions, *stream: int | str
) -> tuple[Tensor, Tensor | None]:
    """Draw ``num`` times at each x, with a random stream of its own.

    The posterior gets a copy of ``xs``. Returns proposals with shape ``(num, n, d)``,
    and which of them are accepted, with shape ``(num, n)``, or `None` for all.
    """
    most = max(1, BLOCK_DRAWS // len(xs))
    if sampler.prior is None:
        most = num
    # Independent draws at few xs come a piece at a time, to save memory.
    sizes = [min(most, num - start) for start in range(0, num, most)]
    with (
        isolated_rng(generator_from(options.seed, *stream)),
        silent(),
        torch.set_grad_enabled(sampler.with_gradients),  # they cost time and memory
    ):
        seconds = options.seconds_left()
        pieces = [sampler.propose(xs.clone(), size, seconds) for size in sizes]
    checked = [
        _checked(piece, size, len(xs))
        for piece, size in zip(pieces, sizes, strict=True)
    ]
    proposals = checked[0] if len(checked) == 1 else torch.cat(checked)
    return proposals, sampler.accepted(proposals)


def _checked(proposals: Any, num: int, num_xs: int) -> Tensor:
    """Return draws as floats ``(num, num_xs, d)``; a single x may have no axis."""
    shape = f"draws of shape ({num}, {num_xs}, d)"
    draws = as_output(proposals, "posterior", shape)
    if num_xs == 1 and draws.ndim in (1, 2) and len(draws) == num:
        draws = draws.reshape(num, 1, -1)
    if draws.ndim != 3 or draws.shape[:2] != (num, num_xs) or draws.shape[2] == 0:
        raise ValueError(
            f"posterior: expected {shape}, d >= 1, got {tuple(draws.shape)}."
        )
    return draws
