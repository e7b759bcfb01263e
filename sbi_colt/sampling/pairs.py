"""Pairs (θ, x) from a prior and a simulator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sbi.utils.user_input_checks import process_prior
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.randomness import derive_seed, generator_from, isolated_rng, resolve_seed
from sbi_colt.sampling.parallel import in_parallel

__all__ = ["SimulationError", "simulate_pairs"]

# Parameters in one call of a simulator that takes batches, and in one task otherwise.
_BLOCK = 256
_TASK = 16
# Times that a simulator is tried to find out how it wants to be called.
_TRIALS = 20
# Give up when this many simulations for each pair asked for have not been enough.
_MAX_ATTEMPTS = 20


class SimulationError(RuntimeError):
    """The simulator failed too often; the message has its own words."""


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
    if isinstance(num_simulations, bool) or not isinstance(
        num_simulations, (int, np.integer)
    ):
        raise TypeError(f"num_simulations: expected an int, got {num_simulations!r}.")
    if num_simulations < 1:
        raise ValueError(
            f"num_simulations: expected at least 1, got {num_simulations}."
        )
    if not callable(simulator):
        raise TypeError(
            f"simulator: expected a function of θ, got {type(simulator).__name__}."
        )
    seed = resolve_seed(seed)
    with isolated_rng(generator_from(seed, "prior")), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Prior was provided as a sequence")
        prior, _, is_numpy = process_prior(prior)
    call = _Call(simulator, is_numpy)
    with isolated_rng(generator_from(seed, "trial")):
        call.find_convention(prior)
    kept_thetas: list[Tensor] = []
    kept_xs: list[Tensor] = []
    num_kept = num_tried = 0
    failures: list[str] = []
    progress = tqdm(
        total=num_simulations,
        desc="Simulating pairs",
        disable=not show_progress_bar,
        leave=False,
    )
    with progress:
        while num_kept < num_simulations:
            if num_tried >= _MAX_ATTEMPTS * num_simulations + _BLOCK:
                raise SimulationError(_failure_message(num_kept, num_tried, failures))
            wanted = num_simulations - num_kept
            if num_tried:  # as many as the failures so far suggest
                wanted = math.ceil(wanted * num_tried / max(num_kept, num_tried / 20))
            with isolated_rng(generator_from(seed, "theta", num_tried)):
                thetas = torch.as_tensor(prior.sample((wanted,))).float()
            for start, xs, errors in _simulate(
                call, thetas, seed, num_tried, num_workers
            ):
                failures += errors
                good = [j for j, x in enumerate(xs) if x is not None]
                kept_thetas += [thetas[start + j] for j in good]
                kept_xs += [x for x in xs if x is not None]
                progress.update(min(len(good), num_simulations - num_kept))
                num_kept += len(good)
            num_tried += wanted
    if failures:
        warnings.warn(
            f"simulator: {len(failures)} of {num_tried} simulations failed and were "
            f"replaced by others; the first said: {failures[0]}",
            stacklevel=3,
        )
    shapes = {tuple(x.shape) for x in kept_xs}
    if len(shapes) > 1:
        raise ValueError(
            f"simulator: expected data of one shape, got {sorted(shapes)}; pad them, "
            "or summarise them to a fixed size."
        )
    thetas = torch.stack(kept_thetas[:num_simulations])
    return thetas, torch.stack(kept_xs[:num_simulations])


class _Call:
    """A simulator behind one convention: parameters ``(n, d)`` to a list of n data."""

    def __init__(self, simulator: Callable, is_numpy: bool):
        self.simulator = simulator
        self.is_numpy = is_numpy
        self.batched = False
        self.last_error = ""

    def find_convention(self, prior: Any) -> None:
        """Find out whether the simulator takes a batch and whether it wants NumPy.

        A function of one θ may take ``(n, d)`` for a θ of its own: it counts as batched
        only if three and five parameters give three and five times what one gives,
        and if each has noise of its own (``theta + torch.randn(d)`` has not).
        """
        for _ in range(_TRIALS):  # a simulator that sometimes fails may do so here
            thetas = torch.as_tensor(prior.sample((5,))).float()
            for is_numpy in (self.is_numpy, not self.is_numpy):
                self.is_numpy = is_numpy
                one, first = self._try(thetas[0]), self._try(thetas[:1])
                few, many = self._try(thetas[:3]), self._try(thetas)
                if one is None:
                    self.batched = first is not None and first.shape[:1] == (1,)
                elif few is not None and many is not None:
                    shape = many.shape[1:]
                    # A batched one may take a single θ of d numbers for d parameters.
                    forms = (tuple(shape), (1, *shape), (thetas.shape[1], *shape))
                    self.batched = (
                        (few.shape[:1], many.shape[:1]) == ((3,), (5,))
                        and few.shape[1:] == shape
                        and tuple(one.shape) in forms
                        and not self._shares_noise(thetas)
                    )
                if self.batched or one is not None:
                    return
        raise SimulationError(
            f"simulator: each of {_TRIALS} trials failed, with a batch and with one θ, "
            f"in torch and in NumPy; the last said: {self.last_error}."
        )

    def _shares_noise(self, thetas: Tensor) -> bool:
        same = thetas[:1].expand(3, -1).clone()
        first, second = self._try(same), self._try(same)
        if first is None or second is None:
            return False
        is_random = not torch.equal(first, second)
        return is_random and torch.equal(first[0], first[1])

    def _try(self, thetas: Tensor) -> Tensor | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a form that it was not made for
                return self._output(thetas)
        except Exception as error:
            self.last_error = f"{type(error).__name__}: {error}"
            return None

    def _output(self, thetas: Tensor) -> Tensor:
        output = self.simulator(thetas.numpy() if self.is_numpy else thetas)
        output = torch.as_tensor(output)
        return output if output.is_floating_point() else output.float()

    def _single_output(self, theta: Tensor) -> Tensor:
        """Return the data of one θ: a scalar as ``(1,)``, ``(1, k)`` as ``(k,)``."""
        output = self._output(theta)
        if output.ndim == 0:
            return output.reshape(1)
        return output[0] if output.ndim == 2 and len(output) == 1 else output

    def __call__(self, thetas: Tensor) -> tuple[list[Tensor | None], list[str]]:
        """Return the data of each θ, `None` for a failure, and what failures said."""
        if self.batched:
            try:
                output = self._output(thetas)
                if len(output) == len(thetas):
                    output = output.unsqueeze(1) if output.ndim == 1 else output
                    return self._finite(list(output))
            except Exception:
                pass  # one bad θ spoils a batch: find it by simulating one by one
        outputs: list[Tensor | None] = []
        errors: list[str] = []
        for theta in thetas:
            try:
                if self.batched:
                    output = self._output(theta.unsqueeze(0))[0]
                    outputs.append(output.reshape(1) if output.ndim == 0 else output)
                else:
                    outputs.append(self._single_output(theta))
            except Exception as error:
                outputs.append(None)
                errors.append(f"{type(error).__name__}: {error}")
        outputs, more = self._finite(outputs)
        return outputs, errors + more

    @staticmethod
    def _finite(
        outputs: list[Tensor] | list[Tensor | None],
    ) -> tuple[list[Tensor | None], list[str]]:
        good = [x if x is not None and x.isfinite().all() else None for x in outputs]
        bad = sum(x is not None and not bool(x.isfinite().all()) for x in outputs)
        return good, ["it returned NaN or infinity"] * bad


def _simulate(
    call: _Call, thetas: Tensor, seed: int, offset: int, num_workers: int
) -> Iterator[tuple[int, list[Tensor | None], list[str]]]:
    """Simulate in blocks of fixed size with a seed each: workers do not matter."""
    size = _BLOCK if call.batched else _TASK
    tasks = (
        (call, thetas[start : start + size], start, derive_seed(seed, offset, start))
        for start in range(0, len(thetas), size)
    )
    yield from in_parallel(_simulate_block, tasks, num_workers)


def _simulate_block(
    call: _Call, thetas: Tensor, start: int, seed: int
) -> tuple[int, list[Tensor | None], list[str]]:
    with isolated_rng(generator_from(seed, "simulate")):
        return start, *call(thetas)


def _failure_message(num_kept: int, num_tried: int, failures: list[str]) -> str:
    said = f"; the first said: {failures[0]}" if failures else ""
    if num_kept == 0:
        return f"simulator: every one of {num_tried} simulations failed{said}."
    return (
        f"simulator: only {num_kept} of {num_tried} simulations succeeded{said}. Mend "
        "it, or narrow the prior to where it works."
    )
