"""What several commands share: options, problems and timing."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from sbi_colt.benchmark.tasks.settings import make_task
from sbi_colt.benchmark.tasks.task import Task
from sbi_colt.sampling.parallel import in_parallel

__all__ = [
    "JOBS",
    "MODELS",
    "QUIET",
    "RESULTS",
    "Problem",
    "at_least",
    "count_option",
    "dims_option",
    "flag",
    "grid_options",
    "in_parallel_with_bar",
    "only_option",
    "out_option",
    "seconds_of",
]

Options = dict[str, dict[str, Any]]


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an option that is an integer with a smallest value."""

    def integer(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"expected an integer >= {least}, got {text!r}"
            )
        return int(text)

    return integer


def _dims(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"expected two sizes such as 3,3, got {text}")
    return int(parts[0]), int(parts[1])


def count_option(text: str, default: int | None = None) -> dict[str, Any]:
    """Return the settings of an option that is a positive integer."""
    return {"type": at_least(1), "default": default, "help": text}


def flag(text: str) -> dict[str, Any]:
    """Return the settings of an option without a value."""
    return {"action": "store_true", "help": text}


JOBS: Options = {"--jobs": count_option("number of processes (default: 2)", 2)}
QUIET: Options = {"--quiet": flag("show no progress bar")}
MODELS: Options = {
    "--models": {
        "type": Path,
        "default": Path("published-models"),
        "metavar": "FOLDER",
        "help": "folder of trained posteriors (default: %(default)s)",
    }
}
RESULTS: Options = {"results": {"type": Path, "help": "the CSV file"}}


def only_option(metavar: str, *names: str | int) -> dict[str, Any]:
    """Return the settings of an option that chooses among names; by default all."""
    text = f"only these of {', '.join(map(str, names))}"
    settings = {"type": type(names[0]), "choices": names, "default": names}
    return {"nargs": "+", "metavar": metavar, "help": text, **settings}


def dims_option(text: str) -> Options:
    """Return an option for pairs of dimensions, with a text of help."""
    settings = {"nargs": "+", "type": _dims, "metavar": "X,THETA", "help": text}
    return {"--dims": settings}


def out_option(name: str) -> Options:
    """Return the option for the CSV file that a command fills, with its default."""
    text = "the CSV file (default: %(default)s)"
    out = {"type": Path, "default": Path(name), "metavar": "FILE", "help": text}
    return {"--out": out}


def grid_options(name: str) -> Options:
    """Return the options of a command that runs a grid, with the name of its file."""
    return {**JOBS, **QUIET, **out_option(name)}


def in_parallel_with_bar(
    function: Callable, jobs: Sequence[tuple], options: argparse.Namespace, title: str
) -> Iterator[Any]:
    """Yield the results of jobs in their order, with the options of JOBS and QUIET."""
    results = in_parallel(function, jobs, options.jobs)
    yield from tqdm(results, total=len(jobs), desc=title, disable=options.quiet)


@dataclass(frozen=True)
class Problem:
    """An error to find, and the number of pairs to find it with."""

    task: str
    alpha: float  # size of the error; 0 for none
    dims: tuple[int, int]  # of x and θ
    num_pairs: int

    @property
    def label(self) -> str:
        """Name and size of the error, dimensions and number of pairs."""
        name = f"{self.task} {self.alpha:g}" if self.alpha else "none"
        return f"{name} {self.dims} {self.num_pairs}"

    def make(self, seed: int) -> Task:
        """Return the task with a seed."""
        return make_task(self.task, self.alpha, self.dims, seed)


def seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
