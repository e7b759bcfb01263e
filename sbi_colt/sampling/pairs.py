"""Pairs (θ, x): handed in, or simulated from a prior and a simulator."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.arrays import as_float_tensor
from sbi_colt.checks import check_integer, warn_caller
from sbi_colt.randomness import derive_seed, generator_from, isolated_rng, resolve_seed
from sbi_colt.sampling.parallel import in_parallel
from sbi_colt.sampling.proposal import check_prior
from sbi_colt.sampling.sbi_internals import SampledPrior, process_prior
from sbi_colt.sampling.simulator import SimulationError, Simulator

__all__ = [
    "PairSource",
    "find_simulator",
    "processed_prior",
    "simulate_at",
    "simulate_pairs",
]

# Parameters in one call of a simulator that takes batches, and in one task otherwise.
_BLOCK = 256
_TASK = 16
# Give up when this many simulations for each pair asked for have not been enough.
_MAX_ATTEMPTS = 20


@dataclass(frozen=True)
class PairSource:
    """Where pairs come from: they are handed in, or a prior and a simulator make them.

    Args:
        prior: Prior, or `None` with ``thetas`` and ``xs``.
        simulator: Simulator. With ``thetas`` and ``xs`` it makes only replicates, and
            may be `None`.
        thetas: True parameters of pairs already simulated, or `None`.
        xs: Their observations, or `None`.
        num_simulations: Pairs to simulate.
    """

    prior: Any = None
    simulator: Any = None
    thetas: Any = None
    xs: Any = None
    num_simulations: int = 0

    def with_simulator(self, seed: int) -> PairSource:
        """Return the same source with a simulator whose convention is known."""
        if self.simulator is not None and self.prior is None and self.thetas is None:
            raise ValueError(
                "prior: expected a prior to simulate parameters from, got None."
            )
        known = find_simulator(self.simulator, self.prior, self.thetas, seed)
        return replace(self, simulator=known)

    def with_pairs(self, **simulation: Any) -> PairSource:
        """Return the same source with its pairs, which are simulated if need be.

        Args:
            **simulation: Further options of `simulate_pairs`.
        """
        names = ("thetas", "xs", "prior", "simulator")
        given = [name for name in names if getattr(self, name) is not None]
        if given[:2] == ["thetas", "xs"]:
            return self
        if given == ["prior", "simulator"]:
            thetas, xs = simulate_pairs(
                self.prior, self.simulator, self.num_simulations, **simulation
            )
            return replace(self, thetas=thetas, xs=xs)
        raise ValueError(
            "thetas, xs, prior, simulator: expected either thetas and xs, or prior and "
            f"simulator, got {', '.join(given) or 'none of them'}."
        )

    @property
    def num_spent(self) -> int:
        """Simulations so far; 0 before the convention of the simulator is known."""
        known = isinstance(self.simulator, Simulator)
        return self.simulator.num_spent if known else 0


def find_simulator(
    function: Any, prior: Any, thetas: Any, seed: int
) -> Simulator | None:
    """Return a simulator whose calling convention is known, or `None` for none.

    Trial calls find the convention, at parameters from the prior or, where pairs are
    handed in, at some of theirs.

    Args:
        function: The user's simulator, or `None`.
        prior: Prior, or `None` with ``thetas``.
        thetas: True parameters of pairs handed in, or `None`.
        seed: Seed of the run.
    """
    if function is None or isinstance(function, Simulator):
        return function
    if not callable(function):
        raise TypeError(
            f"simulator: expected a function of θ, got {type(function).__name__}."
        )
    source, is_numpy = _Given(thetas), isinstance(thetas, np.ndarray)
    if prior is not None:
        source, is_numpy = processed_prior(prior, seed)
    with isolated_rng(generator_from(seed, "trial")):
        return Simulator(function, source, is_numpy)


class _Given:
    """Parameters of pairs, from which some are taken as from a prior."""

    def __init__(self, thetas: Any):
        self.thetas = thetas

    def sample(self, shape: tuple[int]) -> Tensor:
        thetas = as_float_tensor(self.thetas, "thetas")
        return thetas[torch.randint(len(thetas), shape)].cpu()


def processed_prior(prior: Any, seed: int) -> tuple[Any, bool]:
    """Return the prior as sbi has it, and whether the user's one gives NumPy arrays.

    A prior without ``log_prob``, which sbi refuses, can be sampled all the same.
    """
    check_prior(prior)
    with isolated_rng(generator_from(seed, "prior")), warnings.catch_warnings():
        if getattr(prior, "lacks_density", False):
            return prior, False
        if hasattr(prior, "sample") and not hasattr(prior, "log_prob"):
            is_numpy = isinstance(prior.sample((1,)), np.ndarray)
            return SampledPrior(prior), is_numpy
        warnings.filterwarnings("ignore", "Prior was provided as a sequence")
        prior, _, is_numpy = process_prior(prior)
    return prior, is_numpy


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
    seed = resolve_seed(seed)
    known = find_simulator(simulator, prior, None, seed)
    if known is None:
        raise TypeError("simulator: expected a function of θ, got None.")
    prior, _ = processed_prior(prior, seed)
    progress = tqdm(
        total=num_simulations,
        desc="Simulating pairs",
        disable=not show_progress_bar,
        leave=False,
    )
    with progress:
        thetas, xs, num_tried, errors = _simulate_until_enough(
            prior, known, num_simulations, seed, num_workers, progress
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
        for start, xs, failed in simulate_at(
            simulator, thetas, num_workers, seed, num_tried
        ):
            errors += failed
            for theta, x in zip(thetas[start:], xs, strict=False):
                if x is not None:
                    kept_thetas.append(theta)
                    kept_xs.append(x)
            progress.update(min(len(kept_xs), num_simulations) - progress.n)
        num_tried += wanted
    return kept_thetas, kept_xs, num_tried, errors


def simulate_at(
    simulator: Simulator,
    thetas: Tensor,
    num_workers: int,
    seed: int,
    *stream: int | str,
) -> Iterator[tuple[int, list[Tensor | None], list[str]]]:
    """Simulate once at each θ, in blocks whose size does not depend on the workers.

    Yields, for each block, the place of its first θ, its data (`None` for a failure)
    and the errors of the failures. Each block has a random stream of its own.
    """
    size = _BLOCK if simulator.is_batched else _TASK
    tasks = (
        (
            simulator,
            thetas[start : start + size],
            start,
            derive_seed(seed, *stream, start),
        )
        for start in range(0, len(thetas), size)
    )
    for *block, spent in in_parallel(_simulate_block, tasks, num_workers):
        simulator.num_spent += spent
        yield tuple(block)


def _simulate_block(
    simulator: Simulator, thetas: Tensor, start: int, seed: int
) -> tuple[int, list[Tensor | None], list[str], int]:
    """Return what `simulate_at` yields, and the number of simulations spent."""
    simulator = copy.copy(simulator)  # in this process or another, it counts for itself
    simulator.num_spent = 0
    with isolated_rng(generator_from(seed, "simulate")):
        outputs, errors = simulator(thetas)
    return start, outputs, errors, simulator.num_spent


def _failure_message(num_kept: int, num_tried: int, errors: list[str]) -> str:
    said = f"; the first error was: {errors[0]}" if errors else ""
    if num_kept == 0:
        return f"simulator: every one of {num_tried} simulations failed{said}."
    return (
        f"simulator: only {num_kept} of {num_tried} simulations succeeded{said}. Mend "
        "the simulator, or narrow the prior to where it works."
    )
