"""Posterior draws: the only room that knows sbi's posteriors."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor

from sbi_colt.randomness import generator_from, isolated_rng, resolve_seed

__all__ = ["draw_posterior_samples"]


def draw_posterior_samples(
    posterior: Any,
    xs: Tensor,
    num_samples: int,
    *,
    seed: int | None = None,
    num_workers: int = 1,
    show_progress_bar: bool = True,
    use_batched_sampling: bool = True,
) -> Tensor:
    """Draw from q(θ | x) for every x.

    Args:
        posterior: A posterior obtained from sbi.
        xs: Observations, with shape ``(N, …)``.
        num_samples: Draws per x, S.
        seed: Seed; the caller's random state is left as it was.
        num_workers: Processes for samplers that have no batched form.
        show_progress_bar: Whether to show progress.
        use_batched_sampling: Whether to sample all xs at once.

    Returns:
        Draws with shape ``(S, N, d)``.
    """
    if isinstance(num_samples, bool) or int(num_samples) != num_samples:
        raise TypeError(f"num_posterior_samples: expected an int, got {num_samples!r}.")
    if num_samples < 1:
        raise ValueError(
            f"num_posterior_samples: expected at least 1, got {num_samples}."
        )
    generator = generator_from(resolve_seed(seed), "samples")
    with isolated_rng(generator), warnings.catch_warnings():
        # sbi speaks of batches that it chose itself.
        warnings.filterwarnings("ignore", "Capping max_sampling_batch_size")
        warnings.filterwarnings("ignore", "Note that for batched sampling")
        samples = posterior.sample_batched(
            (int(num_samples),), x=xs, show_progress_bars=show_progress_bar
        )
    if not isinstance(samples, Tensor) or samples.ndim != 3:
        got = tuple(samples.shape) if hasattr(samples, "shape") else type(samples)
        raise ValueError(
            f"posterior: expected draws of shape ({num_samples}, {len(xs)}, d), "
            f"got {got}."
        )
    if samples.shape[:2] != (num_samples, len(xs)):
        raise ValueError(
            f"posterior: expected draws of shape ({num_samples}, {len(xs)}, d), "
            f"got {tuple(samples.shape)}."
        )
    return samples
