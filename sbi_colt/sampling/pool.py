"""Accepted draws, collected by x, and the result of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Pool", "PosteriorSamples", "SamplingError"]


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


@dataclass
class Pool:
    """Accepted draws of n xs, filled up as they come."""

    samples: Tensor  # (S, n, d)
    counts: Tensor  # (n,), how many of the S are there
    proposed: Tensor  # (n,)
    accepted: Tensor  # (n,), those beyond S included
    given_up: Tensor  # (n,), whether too few proposals were accepted

    @classmethod
    def empty(cls, num_samples: int, num_xs: int, dim: int, like: Tensor) -> Pool:
        samples = torch.full(
            (num_samples, num_xs, dim), math.nan, dtype=like.dtype, device=like.device
        )
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

    def result(self, knows_acceptance: bool, is_late: bool) -> PosteriorSamples:
        """Return what is there; xs with too few draws count as left out.

        Args:
            knows_acceptance: Whether the sampler can leave the prior's support.
            is_late: Whether time ran out.
        """
        mask = self.counts >= len(self.samples)
        self.samples[:, ~mask.to(self.samples.device)] = math.nan
        rate = self.accepted / self.proposed  # NaN for xs never reached
        return PosteriorSamples(
            self.samples,
            mask,
            rate if knows_acceptance else rate * math.nan,
            ~mask & self.given_up if is_late else ~mask,
        )
