"""Draws of a posterior at any xs.

*Order.* The draws of each x are shuffled: the first k are as good a sample as any k.
The components of an ensemble are chosen for each x separately; sbi's own batched
sampling chooses them once for all xs, which makes the draws of different xs dependent.

*Missing xs.* Draws are proposed without rejection and those in the prior's support are
kept. An x whose acceptance is clearly below ``min_acceptance`` is given up. A run that
reaches ``max_sampling_time`` returns the xs that are complete, at least 20. Both are
warnings, or errors that carry what was drawn. With a time limit the xs are sampled in
random order, so which xs are missing depends on chance, on q and on x, never on the
true parameter: the test of the rest is valid.

*Seeds.* A seed means the same draws for any number of workers, any backend of joblib
and any memory budget down to one block (65,536 draws). Batched and single sampling use
random numbers differently, and so do runs with a time limit. A seed has no effect on a
sampler that keeps random numbers of its own. The caller's random state and posterior
are left as they were. A posterior that sbi did not make and that sets a seed itself
gives draws at different xs that share their noise; two calls more find that out, and a
warning says so.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.arrays import as_tensor, check_finite
from sbi_colt.checks import check_integer, checked_device
from sbi_colt.randomness import digest, generator_from, resolve_seed
from sbi_colt.sampling.checkpoint import Checkpoint
from sbi_colt.sampling.collect import collect
from sbi_colt.sampling.messages import report_given_up, report_late
from sbi_colt.sampling.options import RunOptions
from sbi_colt.sampling.pool import PosteriorSamples

__all__ = ["check_dimension", "draw_posterior_samples", "run_seed", "sample_posterior"]


def draw_posterior_samples(
    posterior: Any,
    xs: Any,
    num_samples: int,
    *,
    seed: int | None = None,
    max_sampling_time: float | None = None,
    num_workers: int = 1,
    show_progress_bar: bool = True,
    use_batched_sampling: bool = True,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_name: str | None = None,
    max_lost: float = 0.1,
    min_acceptance: float = 1e-3,
    memory_budget: int = 2**30,
    device: str | torch.device = "cpu",
) -> Tensor:
    """Draw from q(θ | x) for every x.

    Args:
        posterior: A posterior of sbi, a callable ``q(xs, num_samples)`` that returns
            ``(num_samples, len(xs), d)``, or an object with ``sample((num,), x=x)``,
            where x has shape ``(1, …)``.
        xs: Observations, with shape ``(N, …)``.
        num_samples: Draws per x, S.
        seed: Seed; the caller's random state is left as it was.
        max_sampling_time: Most seconds for the whole call, or `None`. The xs that are
            complete by then are returned; samplers are not stopped inside a block.
        num_workers: Processes for samplers that take one x at a time. With 1, a joblib
            backend that you have set (``joblib.parallel_config``) decides.
        show_progress_bar: Whether to show progress over xs.
        use_batched_sampling: Whether to prefer samplers that take many xs at once.
        checkpoint: A folder that keeps what is done. A run that was killed goes on
            from there and gives the same draws as one that was not; without a seed it
            takes the seed of the run that made the folder. A few draws are made again
            to make sure that the posterior is the same; ``sampling.checkpoint`` says
            how.
        checkpoint_name: A name for the posterior, for samplers whose draws do not
            follow the seed. You vouch that runs with this name and folder have the same
            posterior; draws are not compared.
        max_lost: Largest share of xs that may be given up before it is an error. xs
            that are missing because time ran out do not count.
        min_acceptance: An x is given up when the share of its proposals inside the
            prior's support is clearly below this.
        memory_budget: Most bytes of proposals held at a time, besides the result.
        device: Device of the result.

    Returns:
        Draws with shape ``(S, N, d)``; NaN for xs left out, which a warning reports.

    Example:
        >>> def q(xs, num_samples):
        ...     return xs + torch.randn(num_samples, *xs.shape)
        >>> xs = torch.zeros(5, 2)
        >>> draw_posterior_samples(q, xs, 10, show_progress_bar=False).shape
        torch.Size([10, 5, 2])
    """
    return sample_posterior(
        posterior,
        xs,
        num_samples,
        seed=seed,
        max_sampling_time=max_sampling_time,
        num_workers=num_workers,
        show_progress_bar=show_progress_bar,
        use_batched_sampling=use_batched_sampling,
        checkpoint=checkpoint,
        checkpoint_name=checkpoint_name,
        max_lost=max_lost,
        min_acceptance=min_acceptance,
        memory_budget=memory_budget,
        device=device,
    ).samples


def sample_posterior(
    posterior: Any,
    xs: Any,
    num_samples: int,
    *,
    seed: int | None = None,
    device: str | torch.device = "cpu",
    **options: Any,
) -> PosteriorSamples:
    """Draw as `draw_posterior_samples` does, and say which xs were left out."""
    start = time.monotonic()
    xs = _checked_xs(xs)
    num_samples = check_integer("num_samples", num_samples, least=1)
    seed = run_seed(seed, options.get("checkpoint"))
    unknown = set(options) - set(RunOptions.__dataclass_fields__)
    if unknown:
        raise TypeError(
            f"{min(unknown)}: there is no such option of draw_posterior_samples."
        )
    run = RunOptions(seed=seed, device=checked_device(device), **options)
    known = Checkpoint.known_header(run.checkpoint) or {}
    run = replace(run, random_order=known.get("random_order", run.random_order))
    header = {
        "seed": seed,
        "num_samples": num_samples,
        "xs": digest(xs),
        "checkpoint_name": run.checkpoint_name,
        "random_order": run.random_order,
    }
    checkpoint = Checkpoint(run.checkpoint, header)
    order = torch.arange(len(xs))
    if run.random_order:
        order = torch.randperm(len(xs), generator=generator_from(seed, "order"))
    progress = tqdm(
        total=len(xs),
        desc=f"Drawing {num_samples} posterior samples per x",
        unit="x",
        disable=not run.show_progress_bar,
        leave=False,
    )
    with progress:
        result = collect(posterior, xs[order], num_samples, run, checkpoint, progress)
    if run.random_order:
        result = result.select(order.argsort())
    report_given_up(result, run.max_lost)
    report_late(result, time.monotonic() - start, run.checkpoint)
    return result


def run_seed(seed: int | None, checkpoint: str | os.PathLike | None = None) -> int:
    """Return the seed of a run: the only place that decides it.

    Without a seed, a run that resumes a checkpoint takes the seed of the run that made
    the folder, and any other run a random one.
    """
    known = Checkpoint.known_header(checkpoint)
    if seed is None and known is not None:
        return known["seed"]
    return resolve_seed(seed)


def _checked_xs(xs: Any) -> Tensor:
    """Return observations as a tensor of finite floats with shape ``(N, …)``."""
    xs = as_tensor(xs, "xs")
    if not xs.is_floating_point():
        xs = xs.float()
    if xs.ndim == 0 or len(xs) == 0:
        raise ValueError(f"xs: expected shape (N, …), got {tuple(xs.shape)}.")
    check_finite(xs, "xs")
    return xs


def check_dimension(samples: Tensor, dim: int) -> None:
    """Raise unless draws have the dimension of the true parameters."""
    if samples.shape[-1] != dim:
        raise ValueError(
            f"posterior: expected draws of dimension {dim}, that of thetas, got "
            f"{samples.shape[-1]}."
        )
