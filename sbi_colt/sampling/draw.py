"""The front of this room: draws at pairs, and draws at any xs.

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
import warnings
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.arrays import as_tensor, check_finite, in_one_precision
from sbi_colt.checks import check_integer, checked_device, warn_caller
from sbi_colt.draws import Draws, clean_pairs
from sbi_colt.pair_keys import make_pair_keys
from sbi_colt.randomness import digest, generator_from, resolve_seed
from sbi_colt.sampling.checkpoint import Checkpoint
from sbi_colt.sampling.collect import collect
from sbi_colt.sampling.messages import report_given_up, report_late
from sbi_colt.sampling.options import RunOptions
from sbi_colt.sampling.pairs import find_simulator, make_pairs
from sbi_colt.sampling.pool import PosteriorSamples, SamplingError
from sbi_colt.sampling.replicates import (
    FEWEST,
    ReplicateOptions,
    choose_pairs,
    draws_of_posterior,
    num_replicated,
    replicate,
)
from sbi_colt.sampling.simulator import Simulator

__all__ = [
    "PosteriorSamples",
    "SamplingError",
    "Spent",
    "add_data_side",
    "draw",
    "draw_at_pairs",
    "draw_posterior_samples",
    "make_draws",
    "ready_pairs",
    "run_seed",
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
    return make_draws(
        posterior,
        prior,
        simulator,
        None,
        None,
        num_simulations,
        num_posterior_samples,
        seed=run_seed(seed, options.get("checkpoint")),
        num_workers=num_workers,
        show_progress_bar=show_progress_bar,
        device=device,
        **options,
    )[0]


def make_draws(
    posterior: Any,
    prior: Any,
    simulator: Any,
    thetas: Any,
    xs: Any,
    num_simulations: int,
    num_posterior_samples: int,
    *,
    seed: int,
    device: str | torch.device,
    num_workers: int,
    show_progress_bar: bool,
    num_replicates: int = 0,
    num_replicated_pairs: int | None = None,
    parameter_side: bool = True,
    **options: Any,
) -> tuple[Draws, Spent]:
    """Return draws at pairs that are handed in or simulated, and what they cost.

    This is the first half of every front door; the arguments are those of `diagnose`.
    Without a ``parameter_side`` only the data side is made: just the pairs that get
    replicates are simulated, and the posterior is drawn from once at each of them.
    """
    device = checked_device(device)  # before the simulations
    common = {
        "seed": seed,
        "num_workers": num_workers,
        "show_progress_bar": show_progress_bar,
    }
    clock = Clock()
    before = simulator.num_spent if isinstance(simulator, Simulator) else 0
    how = ReplicateOptions(
        num_replicates,
        num_replicated_pairs,
        checkpoint=options.get("checkpoint"),
        checkpoint_name=options.get("checkpoint_name"),
        **common,
    )
    known, thetas, xs, number = ready_pairs(
        prior,
        simulator,
        thetas,
        xs,
        num_simulations,
        num_posterior_samples,
        num_replicated_pairs,
        parameter_side,
        **common,
    )
    how = replace(how, num_replicated_pairs=number)
    clock.add("simulation")
    if known is not None and not parameter_side:
        draws = draw_for_data_side(posterior, thetas, xs, known, how, device, **options)
        clock.add("sampling and replicates")
    else:
        sampling = {"device": device, **common, **options}
        draws = draw_at_pairs(posterior, thetas, xs, num_posterior_samples, **sampling)
        clock.add("sampling")
        if known is not None and how.num_replicates:
            draws = add_data_side(draws, thetas, xs, known, how)
            clock.add("replicates")
    num_spent = 0 if known is None else known.num_spent - before
    return _with_enough_drawn(draws), Spent(clock.seconds, num_spent)


def ready_pairs(
    prior: Any,
    simulator: Any,
    thetas: Any,
    xs: Any,
    num_simulations: int,
    num_posterior_samples: int,
    num_replicated_pairs: int | None,
    parameter_side: bool,
    *,
    seed: int,
    **simulation: Any,
) -> tuple[Simulator | None, Any, Any, int | None]:
    """Return simulator, parameters, data and the number of pairs that get replicates.

    Where only the data side is wanted, only those pairs are simulated: as many as the
    user asks for, or as many as ``num_simulations`` pairs would have beside a parameter
    side. The arguments are those of `make_draws`.
    """
    check_integer("num_posterior_samples", num_posterior_samples, least=1)
    if not parameter_side and thetas is None:
        check_integer("num_simulations", num_simulations, least=1)
        num_simulations = num_replicated_pairs or num_replicated(num_simulations)
        num_replicated_pairs = num_simulations
    known = find_simulator(simulator, prior, thetas, seed)
    pairs = make_pairs(
        prior, known, thetas, xs, num_simulations, seed=seed, **simulation
    )
    return known, *pairs, num_replicated_pairs


def _with_enough_drawn(draws: Draws) -> Draws:
    """Return draws without a data side that has too few draws of the posterior."""
    data = draws.predictive
    if data is None or data.num_drawn >= FEWEST:
        return draws
    text = (
        f"posterior: only {data.num_drawn} of {len(data.mask)} bags on the data side "
        f"have a draw of the posterior and its replicates; at least {FEWEST} are "
        "needed. Use more pairs (num_simulations, num_replicated_pairs), more "
        "posterior draws per x, or more time."
    )
    if draws.num_posterior_samples == 0:
        raise SamplingError(text)
    warn_caller(f"{text} The data side is left out.")
    return draws.with_predictive(None)


@dataclass(frozen=True)
class Spent:
    """What draws cost.

    Args:
        seconds: Seconds by step.
        num_simulations: Simulations, trial calls and failures included.
    """

    seconds: dict[str, float]
    num_simulations: int


class Clock:
    """Seconds by step: each step ends where it is added."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.start = time.perf_counter()

    def add(self, step: str) -> None:
        """End a step."""
        now = time.perf_counter()
        self.seconds[step] = now - self.start
        self.start = now


def add_data_side(
    draws: Draws, thetas: Any, xs: Any, simulator: Simulator, how: ReplicateOptions
) -> Draws:
    """Return draws with a data side: replicates at members of their bags.

    Args:
        draws: The parameter side, made at these pairs.
        thetas: True parameters of all pairs handed in or simulated, ``(N, d)``.
        xs: Their observations, with shape ``(N, …)``.
        simulator: The simulator.
        how: How many replicates, and how.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # xs with a NaN were reported before
        thetas, xs, mask = clean_pairs(thetas, xs)
    chosen = choose_pairs(len(thetas), how)
    places = mask.cpu().nonzero().flatten()[chosen]  # among the pairs handed in
    here = chosen.to(thetas.device)
    primes, drawn = draws_of_posterior(draws, places, thetas[here], how.seed)
    primes = primes.to(thetas.dtype)  # the simulator gets θ' in the precision of θ*
    return draws.with_predictive(
        replicate(simulator, xs[here].to(primes.device), primes, how, drawn)
    )


def draw_for_data_side(
    posterior: Any,
    thetas: Any,
    xs: Any,
    simulator: Simulator,
    how: ReplicateOptions,
    device: torch.device,
    **options: Any,
) -> Draws:
    """Return draws without a parameter side: one θ' at each x that gets replicates.

    An x at which the posterior cannot be sampled keeps its true parameter as θ'.
    """
    pairs = Draws(thetas, xs, cast(Tensor, None)).to(device)
    chosen = choose_pairs(len(pairs), how).to(device)
    result = sample_posterior(
        posterior,
        pairs.xs[chosen],
        1,
        seed=how.seed,
        num_workers=how.num_workers,
        show_progress_bar=how.show_progress_bar,
        device=device,
        **options,
    )
    _check_dimension(result.samples, pairs.dim)
    complete = result.mask.to(device).unsqueeze(1)
    of_posterior = torch.where(
        complete, result.samples[0].to(pairs.thetas), pairs.thetas[chosen]
    )
    return pairs.with_predictive(
        replicate(simulator, pairs.xs[chosen], of_posterior, how, result.mask)
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
    precision = as_tensor(thetas, "thetas").dtype
    thetas, xs, mask = clean_pairs(thetas, xs, stacklevel=4)
    keys = make_pair_keys(thetas, xs)  # repeats are refused before the work begins
    result = sample_posterior(
        posterior, xs, num_posterior_samples, device=device, **options
    )
    _check_dimension(result.samples, thetas.shape[1])
    complete = result.mask
    samples = result.samples[:, complete.to(result.samples.device)]
    here = complete.to(thetas.device)
    thetas, xs = thetas[here].to(device), xs[here].to(device)
    index = mask.cpu().nonzero().flatten()[complete]
    kept = torch.zeros(len(mask), dtype=torch.bool)
    kept[index] = True
    if precision.is_floating_point:  # half precision came as single from clean_pairs
        thetas = thetas.to(precision)
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


def _check_dimension(samples: Tensor, dim: int) -> None:
    if samples.shape[-1] != dim:
        raise ValueError(
            f"posterior: expected draws of dimension {dim}, that of thetas, got "
            f"{samples.shape[-1]}."
        )


def _checked_xs(xs: Any) -> Tensor:
    """Return observations as a tensor of finite floats with shape ``(N, …)``."""
    xs = as_tensor(xs, "xs")
    if not xs.is_floating_point():
        xs = xs.float()
    if xs.ndim == 0 or len(xs) == 0:
        raise ValueError(f"xs: expected shape (N, …), got {tuple(xs.shape)}.")
    check_finite(xs, "xs")
    return xs
