"""Pairs (θ, x): handed in, or simulated from a prior and a simulator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.checks import check_integer, warn_caller
from sbi_colt.randomness import derive_seed, generator_from, isolated_rng, resolve_seed
from sbi_colt.sampling.parallel import in_parallel
from sbi_colt.sampling.sbi_internals import process_prior
from sbi_colt.sampling.simulator import SimulationError, Simulator

__all__ = ["make_pairs", "simulate_pairs"]

# Parameters in one call of a simulator that takes batches, and in one task otherwise.
_BLOCK = 256
_TASK = 16
# Give up when this many simulations for each pair asked for have not been enough.
_MAX_ATTEMPTS = 20


def make_pairs(
    prior: Any,
    simulator: Any,
    thetas: Any,
    xs: Any,
    num_simulations: int,
    **simulation: Any,
) -> tuple[Any, Any]:
    """Return the pairs handed in, or simulate them from a prior and a simulator.

    Args:
        prior: Prior, or `None` with ``thetas`` and ``xs``.
        simulator: Simulator, or `None` with ``thetas`` and ``xs``.
        thetas: True parameters of pairs already simulated, or `None`.
        xs: Their observations, or `None`.
        num_simulations: Pairs to simulate.
        **simulation: Further options of `simulate_pairs`.
    """
    lacks_simulator = prior is None or simulator is None
    if thetas is not None and xs is not None and lacks_simulator:
        return thetas, xs
    if prior is not None and simulator is not None and thetas is None and xs is None:
        return simulate_pairs(prior, simulator, num_simulations, **simulation)
    raise ValueError(
        "thetas, xs, prior, simulator: expected either thetas and xs, or prior and "
        "simulator."
    )


def simulate_pairs(
    prior: Any,
    simulator: Callable,
    num_simulations: int,
    *,
    seed: int | None = None,
    num_workers: int = 1,
    show_progress_bar: bool = True,
) -> tuple[Tensor, Tensor]:
    """Draw parameters from the prior and simulate data for each.

    Parameters for which the simulator raises, or returns NaN or infinity, are dropped
    and counted in a warning, and others are simulated in their place: the pairs come
    from the joint distribution given that the simulator succeeds.

    Args:
        prior: Prior, as for sbi's `process_prior`.
        simulator: Function from a batch of parameters ``(n, d)`` to ``(n, …)``, or
            from one θ ``(d,)`` to ``(…)``; torch or NumPy.
        num_simulations: Pairs, N.
        seed: Seed; the caller's random state is left as it was.
        num_workers: Processes for a simulator that takes one θ at a time.
        show_progress_bar: Whether to show progress.

    Returns:
        Parameters ``(N, d)`` and data ``(N, …)``.

    Example:
        >>> from torch.distributions import Normal
        >>> prior = Normal(torch.zeros(1), torch.ones(1))
        >>> thetas, xs = simulate_pairs(
        ...     prior, lambda t: t + 1, 4, seed=0, show_progress_bar=False
        ... )
        >>> torch.equal(xs, thetas + 1)
        True
    """
    num_simulations = check_integer("num_simulations", num_simulations, least=1)
    if not callable(simulator):
        raise TypeError(
            f"simulator: expected a function of θ, got {type(simulator).__name__}."
        )
    seed = resolve_seed(seed)
    with isolated_rng(generator_from(seed, "prior")), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Prior was provided as a sequence")
        prior, _, is_numpy = process_prior(prior)
    with isolated_rng(generator_from(seed, "trial")):
        simulator = Simulator(simulator, prior, is_numpy)
    progress = tqdm(
        total=num_simulations,
        desc="Simulating pairs",
        disable=not show_progress_bar,
        leave=False,
    )
    with progress:
        thetas, xs, num_tried, errors = _simulate_until_enough(
            prior, simulator, num_simulations, seed, num_workers, progress
        )
    if errors:
        warn_caller(
            f"simulator: {len(errors)} of {num_tried} simulations failed and were "
            f"replaced by others; the first error was: {errors[0]}"
        )
    shapes = {tuple(x.shape) for x in xs}
    if len(shapes) > 1:
        raise ValueError(
            f"simulator: expected data of one shape, got {sorted(shapes)}; pad them, "
            "or summarise them to a fixed size."
        )
    return torch.stack(thetas[:num_simulations]), torch.stack(xs[:num_simulations])


def _simulate_until_enough(
    prior: Any,
    simulator: Simulator,
    num_simulations: int,
    seed: int,
    num_workers: int,
    progress: tqdm,
) -> tuple[list[Tensor], list[Tensor], int, list[str]]:
    """Return parameters and data that succeeded, the number tried, and the errors."""
    kept_thetas: list[Tensor] = []
    kept_xs: list[Tensor] = []
    errors: list[str] = []
    num_tried = 0
    while (missing := num_simulations - len(kept_xs)) > 0:
        if num_tried >= _MAX_ATTEMPTS * num_simulations + _BLOCK:
            raise SimulationError(_failure_message(len(kept_xs), num_tried, errors))
        if num_tried:  # as many more as the failures so far suggest
            missing = missing * num_tried / max(len(kept_xs), num_tried / 20)
        wanted = math.ceil(missing)
        with isolated_rng(generator_from(seed, "theta", num_tried)):
            thetas = torch.as_tensor(prior.sample((wanted,))).float().clone()
        for start, xs, failed in _simulate(
            simulator, thetas, seed, num_tried, num_workers
        ):
            errors += failed
            for theta, x in zip(thetas[start:], xs, strict=False):
                if x is not None:
                    kept_thetas.append(theta)
                    kept_xs.append(x)
            progress.update(min(len(kept_xs), num_simulations) - progress.n)
        num_tried += wanted
    return kept_thetas, kept_xs, num_tried, errors


def _simulate(
    simulator: Simulator, thetas: Tensor, seed: int, offset: int, num_workers: int
) -> Iterator[tuple[int, list[Tensor | None], list[str]]]:
    """Simulate in blocks of fixed size, for any number of workers alike."""
    size = _BLOCK if simulator.is_batched else _TASK
    tasks = (
        (
            simulator,
            thetas[start : start + size],
            start,
            derive_seed(seed, offset, start),
        )
        for start in range(0, len(thetas), size)
    )
    yield from in_parallel(_simulate_block, tasks, num_workers)


def _simulate_block(
    simulator: Simulator, thetas: Tensor, start: int, seed: int
) -> tuple[int, list[Tensor | None], list[str]]:
    with isolated_rng(generator_from(seed, "simulate")):
        return start, *simulator(thetas)


def _failure_message(num_kept: int, num_tried: int, errors: list[str]) -> str:
    said = f"; the first error was: {errors[0]}" if errors else ""
    if num_kept == 0:
        return f"simulator: every one of {num_tried} simulations failed{said}."
    return (
        f"simulator: only {num_kept} of {num_tried} simulations succeeded{said}. Mend "
        "the simulator, or narrow the prior to where it works."
    )
