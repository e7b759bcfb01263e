"""One call of a sampler: its own random state, its own copy of the xs, checked draws.

`proposals_at` is the only place that calls a user's posterior.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.sampling.options import RunOptions
from sbi_colt.sampling.posteriors import BLOCK_DRAWS, Sampler
from sbi_colt.sampling.sbi_internals import is_timeout, silent

__all__ = ["accepted_of", "own_randomness", "proposals_at", "reference_draws"]

# xs of the reference draws of a checkpoint: for quick samplers, and for others at most.
_REFERENCE_XS = 16
_REFERENCE_ATTEMPTS = 5


@contextmanager
def own_randomness(seed: int, *stream: int | str) -> Iterator[None]:
    """Lend the global random state of one stream of a seed."""
    with isolated_rng(generator_from(seed, *stream)):
        yield


def proposals_at(
    sampler: Sampler, xs: Tensor, num: int, seconds: float | None
) -> Tensor:
    """Return ``num`` draws at each x, not yet restricted to the prior's support.

    Args:
        sampler: How to sample.
        xs: Observations, with shape ``(n, …)``; the posterior gets a copy.
        num: Draws per x.
        seconds: Most seconds, for samplers that take a limit, or `None`.

    Returns:
        Draws with shape ``(num, n, d)``.
    """
    # Gradients would cost time and several times the memory.
    with silent(), torch.set_grad_enabled(sampler.with_gradients):
        most = max(1, BLOCK_DRAWS // len(xs))
        if sampler.prior is None or num <= most:
            sizes = [num]
        else:  # independent draws at few xs: a piece at a time, to save memory
            sizes = [most] * (num // most) + ([num % most] if num % most else [])
        pieces = [sampler.propose(xs.clone(), size, seconds) for size in sizes]
    checked = [
        _checked(piece, size, len(xs))
        for piece, size in zip(pieces, sizes, strict=True)
    ]
    return checked[0] if len(checked) == 1 else torch.cat(checked)


def accepted_of(sampler: Sampler, proposals: Tensor) -> Tensor | None:
    """Return which proposals count: finite, and in the prior's support."""
    finite = proposals.isfinite().all(dim=-1)
    accepted = sampler.accepted(proposals)
    if accepted is None:
        return None if bool(finite.all()) else finite
    return accepted & finite


def reference_draws(
    sampler: Sampler, xs: Tensor, num_samples: int, options: RunOptions
) -> Tensor:
    """Return the draws by which a checkpoint recognises a posterior.

    They are made as all others are, with a random stream of their own: at 16 xs, evenly
    spread, by samplers that take many xs at once, and at one x by those that take one x
    at a time or that take long. They depend on nothing but seed, xs and posterior.
    """
    if sampler.batched:
        most = 1 if sampler.is_costly else _REFERENCE_XS
        num_xs = min(len(xs), most, sampler.block(num_samples))
        places = [torch.linspace(0, len(xs) - 1, num_xs).long()]
    else:
        spread = torch.linspace(0, len(xs) - 1, min(len(xs), _REFERENCE_ATTEMPTS))
        places = list(spread.long().unsqueeze(1))
    timeout: Exception | None = None
    for place in places:
        try:
            with own_randomness(options.seed, "reference"):
                return proposals_at(sampler, xs[place], num_samples, None)
        except Exception as error:
            if not is_timeout(error):
                raise
            timeout = error  # rejection sampling may be slow at some xs: try another
    raise ValueError(
        "checkpoint: the posterior could not be sampled at any of the xs number "
        f"{', '.join(str(int(place)) for place in places)} in a minute each; without "
        'draws to recognise it by, give it a name with checkpoint_name="…".'
    ) from timeout


def _checked(proposals: Any, num: int, num_xs: int) -> Tensor:
    expected = f"posterior: expected draws of shape ({num}, {num_xs}, d)"
    if proposals is None:
        raise ValueError(f"{expected}, got None.")
    try:
        proposals = torch.as_tensor(proposals)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{expected}, got {type(proposals).__name__}.") from error
    if proposals.is_complex():
        raise ValueError(
            f"posterior: expected real draws, got {proposals.dtype}; return real and "
            "imaginary parts as parameters of their own."
        )
    if proposals.ndim != 3 or proposals.shape[:2] != (num, num_xs):
        raise ValueError(f"{expected}, got {tuple(proposals.shape)}.")
    if proposals.shape[2] == 0:
        raise ValueError(f"{expected} with d >= 1, got {tuple(proposals.shape)}.")
    if not proposals.is_floating_point():
        proposals = proposals.float()
    return proposals.detach()
