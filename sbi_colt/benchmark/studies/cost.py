"""``cost``: the time of the default beside C2ST, and how it grows."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator

import torch
from tqdm.auto import tqdm

from sbi_colt.baselines import C2ST
from sbi_colt.benchmark.studies.options import add_quiet, show
from sbi_colt.benchmark.studies.timing import seconds_of
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.colt import CoLT
from sbi_colt.draws import Draws

__all__ = ["add_options", "cost_lines", "run"]

DESCRIPTION = (
    "Time fit and test of the default on 100 pairs with 500 draws, beside C2ST with "
    "1000 epochs, and give the exponents with which the time grows in the numbers of "
    "pairs, draws and parameters (a minute)."
)
_BASE = {"N": 100, "K": 500, "d": 10}
_LARGEST = 10  # how many times N, K and d are made larger
_REPETITIONS = 3


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_quiet(parser)


def run(options: argparse.Namespace) -> int:
    """Print the times."""
    return show(cost_lines(show_progress_bar=not options.quiet))


def cost_lines(show_progress_bar: bool = True) -> Iterator[str]:
    """Yield the default's time beside that of C2ST, and exponents in N, K and d."""
    larger = {name: _BASE | {name: _LARGEST * _BASE[name]} for name in _BASE}
    jobs = [(_default, _BASE), (_c2st, _BASE)]
    jobs += [(_default, size) for size in larger.values()]
    progress = tqdm(jobs, disable=not show_progress_bar)
    ours, theirs, *grown = [_least_seconds(run, **size) for run, size in progress]
    yield (
        f"Fit and test of the default: {ours:.2f} s; of C2ST, 1000 epochs: "
        f"{theirs:.2f} s; ratio {ours / theirs:.2f}"
    )
    for (name, base), seconds in zip(_BASE.items(), grown, strict=True):
        exponent = math.log(seconds / ours) / math.log(_LARGEST)
        yield (
            f"{name} from {base} to {_LARGEST * base}: {seconds:.2f} s, exponent "
            f"{exponent:.2f}"
        )


def _least_seconds(
    run: Callable[[Draws, Draws], object], N: int, K: int, d: int
) -> float:
    """Return the least of several times, on N pairs with K draws of d parameters."""
    generator = torch.Generator().manual_seed(0)
    task = GaussianTask("covariance", 0.6, d, d)
    train, test = (task.draws(N, K, generator) for _ in range(2))
    return min(seconds_of(lambda: run(train, test)) for _ in range(_REPETITIONS))


def _default(train: Draws, test: Draws) -> None:
    CoLT(seed=0).fit(train, show_progress_bar=False).test(test)


def _c2st(train: Draws, test: Draws) -> None:
    C2ST(epochs=1000, learning_rate=1e-5, seed=0).fit(train).test(test)
