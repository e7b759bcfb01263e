"""The adapter: one set of posterior draws for every diagnostic.

`draw_posterior_samples` draws K times at every x from anything that sbi can train, and
from what sbi did not make; `draw` simulates the pairs first. ``posteriors`` lists
how each posterior is sampled. What holds for all of them:

*Order.* The draws of each x are shuffled: the first k are as good a sample as any k,
though chains and ensembles hand theirs out in order. The members of an ensemble are
chosen for each x by itself; sbi's own batched sampling chooses them once for all xs,
which makes the xs' draws depend on each other.

*Leakage.* Draws are proposed without rejection; those in the prior's support are kept,
and only xs that are short are drawn again. An x whose acceptance is below
``min_acceptance``, or that is not finished within ``max_sampling_time``, is left out
with a warning; which xs are left out depends on q and x alone, so what remains is as
valid a test. More than ``max_lost`` of them is an error, which carries what was drawn.

*Seeds.* A seed means the same draws for any number of workers, any backend of joblib
and any memory budget down to one block (65,536 draws). Batched and single sampling use
random numbers differently; a time limit shrinks the blocks of vector-field and MCMC
posteriors, which gives other draws. A seed cannot hold for a sampler that keeps random
numbers of its own (a callable's NumPy generator, say). The caller's random state and
posterior are left as they were.
"""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.arrays import check_finite, in_one_precision
from sbi_colt.draws import Draws, clean_pairs
from sbi_colt.pair_keys import make_pair_keys
from sbi_colt.randomness import digest, resolve_seed
from sbi_colt.sampling.checkpoint import Checkpoint, fingerprint
from sbi_colt.sampling.collect import RunOptions, run
from sbi_colt.sampling.pairs import simulate_pairs
from sbi_colt.sampling.pool import PosteriorSamples, SamplingError

__all__ = [
    "PosteriorSamples",
    "SamplingError",
    "draw",
    "draw_at_pairs",
    "draw_posterior_samples",
    "sample_posterior",
]


def draw(
    posterior: Any,
    prior: Any,
    simulator: Any,
    num_simulations: int,
    num_posterior_samples: int,
    *,
    seed: int | None = None,
    num_workers: int = 1,
    show_progress_bar: bool = True,
    device: str | torch.device = "cpu",
    **options: Any,
) -> Draws:
    """Simulate pairs and draw from the posterior at each x.

    Args:
        posterior: What to draw from, as in `draw_posterior_samples`.
        prior: Prior: a torch distribution, a list of them, or anything that sbi's
            `process_prior` takes.
        simulator: Function from parameters to data, of a batch ``(n, d)`` or of a
            single θ ``(d,)``, in torch or NumPy. Pairs for which it raises or returns
            NaN or infinity are dropped, counted and replaced.
        num_simulations: Pairs, N.
        num_posterior_samples: Draws per x, S.
        seed: Seed of simulation and sampling.
        num_workers: Processes for simulators and samplers that take one at a time.
        show_progress_bar: Whether to show progress.
        device: Device of the draws.
        **options: Further options of `draw_posterior_samples`.

    Returns:
        The draws; xs that could not be sampled are left out with a warning.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> prior = MultivariateNormal(torch.zeros(2), torch.eye(2))
        >>> def simulator(thetas):
        ...     return thetas + torch.randn_like(thetas)
        >>> def q(xs, num):
        ...     return xs / 2 + torch.randn(num, *xs.shape)
        >>> draw(q, prior, simulator, 30, 10, seed=0, show_progress_bar=False)
        Draws(num_pairs=30, num_posterior_samples=10, dim=2, x_shape=(2,))
    """
    seed = _seed_of_run(seed, options.get("checkpoint"))
    thetas, xs = simulate_pairs(
        prior,
        simulator,
        num_simulations,
        seed=seed,
        num_workers=num_workers,
        show_progress_bar=show_progress_bar,
    )
    return draw_at_pairs(
        posterior,
        thetas,
        xs,
        num_posterior_samples,
        seed=seed,
        num_workers=num_workers,
        show_progress_bar=show_progress_bar,
        device=device,
        **options,
    )


def draw_at_pairs(
    posterior: Any,
    thetas: Any,
    xs: Any,
    num_posterior_samples: int,
    *,
    device: str | torch.device = "cpu",
    **options: Any,
) -> Draws:
    """Draw from the posterior at the xs of pairs already simulated.

    Pairs that repeat are refused; pairs whose x is not finite or cannot be sampled are
    left out with a warning, and the draws' ``mask`` and ``index`` tell which.

    Args:
        posterior: What to draw from, as in `draw_posterior_samples`.
        thetas: True parameters, with shape ``(N, d)``.
        xs: Observations, with shape ``(N, …)``.
        num_posterior_samples: Draws per x, S.
        device: Device of the draws.
        **options: Further options of `draw_posterior_samples`.
    """
    thetas, xs, mask = clean_pairs(thetas, xs, stacklevel=4)
    keys = make_pair_keys(thetas, xs)  # repeats are refused before the work begins
    result = sample_posterior(
        posterior, xs, num_posterior_samples, device=device, **options
    )
    if result.samples.shape[-1] != thetas.shape[1]:
        raise ValueError(
            f"posterior: expected draws of dimension {thetas.shape[1]}, that of "
            f"thetas, got {result.samples.shape[-1]}."
        )
    complete = result.mask.cpu()
    here = complete.to(thetas.device)
    samples = result.samples[:, complete.to(result.samples.device)]
    thetas, xs = thetas[here].to(device), xs[here].to(device)
    index = mask.cpu().nonzero().flatten()[complete]
    kept = torch.zeros(len(mask), dtype=torch.bool)
    kept[index] = True
    thetas, samples = in_one_precision(thetas, "thetas", samples, "samples")
    check_finite(samples, "posterior")
    keys = None if keys is None else keys[complete]
    return Draws(thetas, xs, samples, mask=kept, index=index, keys=keys)


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
        max_sampling_time: Most seconds for the whole call, or `None`.
        num_workers: Processes for samplers that take one x at a time. With 1, a joblib
            backend that you have set (``joblib.parallel_config``) decides.
        show_progress_bar: Whether to show progress over xs.
        use_batched_sampling: Whether to prefer samplers that take many xs at once.
        checkpoint: A folder that keeps what is done. A run that was killed goes on
            from there and gives the same draws as one that was not.
        max_lost: Largest share of xs that may be left out before it is an error.
        min_acceptance: An x is given up when the share of its proposals inside the
            prior's support is clearly below this.
        memory_budget: Most bytes of proposals held at a time, besides the result.
        device: Device of the result.

    Returns:
        Draws with shape ``(S, N, d)``; NaN for xs left out, of which a warning tells.

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
    max_sampling_time: float | None = None,
    num_workers: int = 1,
    show_progress_bar: bool = True,
    use_batched_sampling: bool = True,
    checkpoint: str | os.PathLike | None = None,
    max_lost: float = 0.1,
    min_acceptance: float = 1e-3,
    memory_budget: int = 2**30,
    device: str | torch.device = "cpu",
) -> PosteriorSamples:
    """Draw as `draw_posterior_samples` does, and say which xs were left out."""
    xs = _checked_xs(xs)
    num_samples = _checked_number(num_samples)
    _check_options(
        max_sampling_time, num_workers, max_lost, min_acceptance, memory_budget
    )
    seed = _seed_of_run(seed, checkpoint)
    options = RunOptions(
        seed=seed,
        deadline=None
        if max_sampling_time is None
        else time.monotonic() + max_sampling_time,
        num_workers=num_workers,
        use_batched_sampling=use_batched_sampling,
        memory_budget=memory_budget,
        min_acceptance=min_acceptance,
        max_lost=max_lost,
        device=torch.device(device),
    )
    header = {
        "seed": seed,
        "num_samples": num_samples,
        "xs": digest(xs),
        "posterior": f"{type(posterior).__name__} {fingerprint(posterior)}",
    }
    kept = Checkpoint(checkpoint, header)
    progress = tqdm(
        total=len(xs),
        desc=f"Drawing {num_samples} posterior samples per x",
        unit="x",
        disable=not show_progress_bar,
        leave=False,
    )
    with progress:
        result = run(posterior, xs, num_samples, options, kept, progress)
    _report_losses(result, max_lost)
    return result


def _report_losses(result: PosteriorSamples, max_lost: float) -> None:
    lost = (~result.mask).nonzero().flatten()
    if not len(lost):
        return
    total = len(result.mask)
    # Worst first; NaN (unknown) last.
    order = result.acceptance[lost].nan_to_num(nan=2.0).argsort()
    named = ", ".join(
        f"{int(i)} ({_percent(result.acceptance[i])})" for i in lost[order][:5]
    )
    more = ", …" if len(lost) > 5 else ""
    message = (
        f"posterior: {len(lost)} of {total} xs could not be sampled in the time and "
        "number of proposals allowed. Their indices, with the share of proposals "
        f"inside the prior's support: {named}{more}."
    )
    if len(lost) > max_lost * total:
        raise SamplingError(
            f"{message} That is more than max_lost = {max_lost:g}. The posterior leaks "
            "out of the prior's support or is slow: retrain it, raise "
            "max_sampling_time, or lower min_acceptance.",
            result,
        )
    warnings.warn(f"{message} They are left out.", stacklevel=5)


def _seed_of_run(seed: int | None, checkpoint: str | os.PathLike | None) -> int:
    """Return the seed; without one, that of the run that is to be resumed."""
    known = None if checkpoint is None else Checkpoint.known_header(checkpoint)
    if seed is None and known is not None:
        return int(known["seed"])
    return resolve_seed(seed)


def _check_options(
    max_sampling_time: Any,
    num_workers: Any,
    max_lost: Any,
    min_acceptance: Any,
    memory_budget: Any,
) -> None:
    for name, value, expected, good in (
        (
            "max_sampling_time",
            max_sampling_time,
            "seconds >= 0 or None",
            lambda v: v is None or v >= 0,
        ),
        ("num_workers", num_workers, "an integer, not 0", lambda v: v == int(v) != 0),
        ("max_lost", max_lost, "a share in [0, 1]", lambda v: 0 <= v <= 1),
        ("min_acceptance", min_acceptance, "a share in (0, 1]", lambda v: 0 < v <= 1),
        ("memory_budget", memory_budget, "a number of bytes", lambda v: v >= 1),
    ):
        try:
            fine = not isinstance(value, str) and good(value)
        except (TypeError, ValueError):
            fine = False
        if not fine:
            raise ValueError(f"{name}: expected {expected}, got {value!r}.")


def _percent(value: Tensor) -> str:
    return "unknown" if value.isnan() else f"{float(value):.2g}"


def _checked_xs(xs: Any) -> Tensor:
    if isinstance(xs, (list, tuple)):
        raise TypeError(
            f"xs: expected a torch or NumPy array, got a {type(xs).__name__}; stack "
            f"its {len(xs)} entries with torch.stack or numpy.stack."
        )
    xs = torch.as_tensor(xs)
    if not xs.is_floating_point():
        xs = xs.float()
    if xs.ndim == 0 or len(xs) == 0:
        raise ValueError(f"xs: expected shape (N, …), got {tuple(xs.shape)}.")
    if not xs.isfinite().all():
        raise ValueError(
            "xs: expected finite values, got NaN or infinity; leave those pairs out."
        )
    return xs


def _checked_number(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        raise TypeError(f"num_samples: expected an int, got {number!r}.")
    if number < 1:
        raise ValueError(f"num_samples: expected at least 1, got {number}.")
    return int(number)
