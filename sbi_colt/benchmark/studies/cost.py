"""Time fit and test of the default on 100 pairs with 500 draws, beside C2ST.

C2ST trains for 1000 epochs. Further lines give the exponents with which the default's
time grows in the numbers of pairs, draws and parameters (a minute).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator

import torch
from tqdm.auto import tqdm

from sbi_colt.baselines import C2ST
from sbi_colt.benchmark.studies.shared import QUIET, seconds_of
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.colt import CoLT
from sbi_colt.draws import Draws

OPTIONS = QUIET
_BASE = {"N": 100, "K": 500, "d": 10}
_LARGEST = 10  # how many times N, K and d are made larger


def run(options: argparse.Namespace) -> Iterator[str]:
    """Yield the default's time beside that of C2ST, and exponents in N, K and d."""
    jobs = [(_default, _BASE), (_c2st, _BASE)]
    jobs += [(_default, _BASE | {name: _LARGEST * _BASE[name]}) for name in _BASE]
    progress = tqdm(jobs, disable=options.quiet)
    ours, theirs, *grown = [_least_seconds(call, **size) for call, size in progress]
    yield (
        f"Fit and test of the default: {ours:.2f} s; of C2ST, 1000 epochs: "
        f"{theirs:.2f} s; ratio {ours / theirs:.2f}"
    )
    for (name, base), seconds in zip(_BASE.items(), grown, strict=True):
        exponent = math.log(seconds / ours) / math.log(_LARGEST)
        size = f"{name} from {base} to {_LARGEST * base}"
        yield f"{size}: {seconds:.2f} s, exponent {exponent:.2f}"


def _least_seconds(
    call: Callable[[Draws, Draws], object], N: int, K: int, d: int
) -> float:
    """Return the least of three times, on N pairs with K draws of d parameters."""
    generator = torch.Generator().manual_seed(0)
    task = GaussianTask("covariance", 0.6, d, d)
    train, test = (task.draws(N, K, generator) for _ in range(2))
    return min(seconds_of(lambda: call(train, test)) for _ in range(3))


def _default(train: Draws, test: Draws) -> None:
    CoLT(seed=0).fit(train, show_progress_bar=False).test(test)


def _c2st(train: Draws, test: Draws) -> None:
    C2ST(epochs=1000, learning_rate=1e-5, seed=0).fit(train).test(test)
