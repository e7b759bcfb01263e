"""``ablation``: which probes the default needs, and how long each takes to fit.

A probe gives each member of a bag (a true θ and the posterior draws at the same x) one
number; the default combines several probes. Each set of probes is trained and tested on
the same pairs, so that differences in power are differences between the sets.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator
from statistics import fmean

from tqdm.auto import tqdm

from sbi_colt.benchmark.studies.options import add_jobs, add_quiet, show
from sbi_colt.benchmark.studies.problem import Problem
from sbi_colt.benchmark.studies.timing import seconds_of
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.colt import CoLT
from sbi_colt.config import PROBES, CoLTConfig
from sbi_colt.randomness import generator_from
from sbi_colt.sampling.parallel import in_parallel, one_thread

__all__ = ["ablation_lines", "add_options", "run"]

DESCRIPTION = (
    "Measure the default's power without each of its probes, and with a further one, "
    "and how long each probe takes to fit (about twenty minutes on two cores)."
)
# Errors that the default finds in some batches and misses in others.
_PROBLEMS = (
    Problem("mean", 0.08, (3, 3), 100),
    Problem("covariance", 0.25, (3, 3), 100),
    Problem("anisotropic", 0.12, (10, 10), 100),
    Problem("t", 0.12, (10, 10), 100),
    Problem("modes", 0.08, (10, 10), 100),
    Problem("curved-mean", 0.12, (3, 3), 100),
    Problem("curved-covariance", 0.3, (3, 3), 100),
    Problem("curved-t", 0.2, (3, 3), 100),
    Problem("curved-modes", 0.12, (3, 3), 100),
    Problem("curved-anisotropic", 1.5, (10, 10), 100),
    Problem("curved-collapse", 0.12, (10, 10), 100),
    Problem("curved-blind", 1.0, (10, 10), 100),
    Problem("tree", 0.25, (1, 2), 400),
    Problem("lobes", 1.0, (2, 2), 300),
)
_SEEDS = (20, 21)  # of tasks, with other seeds than in the tables of power
_NUM_SAMPLES = 200
_NUM_REDRAWS = 499
_DEFAULT = "the default"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_jobs(parser)
    add_quiet(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    return show(
        ablation_lines(num_workers=options.jobs, show_progress_bar=not options.quiet)
    )


def ablation_lines(
    num_batches: int = 20, num_workers: int = 2, show_progress_bar: bool = True
) -> Iterator[str]:
    """Yield a table of mean power for each set of probes.

    Args:
        num_batches: Test batches of each error and task seed.
        num_workers: Processes.
        show_progress_bar: Whether to show progress.
    """
    means = _mean_powers(num_batches, num_workers, show_progress_bar)
    default = means.pop(_DEFAULT)
    yield f"{'probes':<24}{'mean power':>10}{'fit':>8}   largest change"
    yield f"{_DEFAULT:<24}{fmean(default.values()):>10.3f}"
    for name, own in means.items():
        most = max(default, key=lambda problem: abs(own[problem] - default[problem]))
        change = f"{most.task} {default[most]:.2f} to {own[most]:.2f}"
        left_out = name.removeprefix("without ")
        cost = f"{_fit_seconds(left_out):.3f} s" if left_out != name else ""
        yield f"{name:<24}{fmean(own.values()):>10.3f}{cost:>8}   {change}"
    error = math.sqrt(0.25 / (len(_PROBLEMS) * len(_SEEDS) * num_batches))
    yield f"Means over {len(_PROBLEMS)} errors, with standard errors of at most"
    yield f"{error:.2f}; those of differences are smaller, because all sets see the"
    yield "same batches. Column fit: seconds to fit the left-out probe alone, on 100"
    yield "pairs with 500 draws of 10 parameters (relief: 2 parameters)."


def _mean_powers(
    num_batches: int, num_workers: int, show_progress_bar: bool
) -> dict[str, dict[Problem, float]]:
    """Return the power of each set of probes by problem, as a mean over task seeds."""
    jobs = [(problem, seed, num_batches) for problem in _PROBLEMS for seed in _SEEDS]
    progress = tqdm(
        in_parallel(_rejections, jobs, num_workers),
        total=len(jobs),
        desc="Training sets",
        disable=not show_progress_bar,
    )
    powers: dict[str, dict[Problem, list[float]]] = {}
    for (problem, _, _), rejections in zip(jobs, progress, strict=True):
        for name, count in rejections.items():
            values = powers.setdefault(name, {}).setdefault(problem, [])
            values.append(count / num_batches)
    return {
        name: {problem: fmean(values) for problem, values in own.items()}
        for name, own in powers.items()
    }


def _sets() -> dict[str, tuple[str, ...]]:
    """Return the sets of probes by name, the default first."""
    default = tuple(name for name in PROBES if name in CoLTConfig().probes)
    without = {
        f"without {name}": tuple(other for other in default if other != name)
        for name in default
    }
    return {_DEFAULT: default, **without, "with a random centre": (*default, "random")}


def _rejections(problem: Problem, seed: int, num_batches: int) -> Counter[str]:
    """Return the number of batches that each set of probes rejects."""
    task = problem.make(seed)
    generator = generator_from(seed, "ablation", problem.label)
    size = (problem.num_pairs, _NUM_SAMPLES)
    rejections: Counter[str] = Counter()
    with one_thread():
        train = task.draws(*size, generator)
        fitted = {
            name: CoLT(
                CoLTConfig(probes=probes, num_redraws=_NUM_REDRAWS), seed=seed
            ).fit(train, show_progress_bar=False)
            for name, probes in _sets().items()
        }
        for _ in range(num_batches):
            test = task.draws(*size, generator)
            for name, colt in fitted.items():
                rejections[name] += colt.test(test).p_value <= 0.05
    return rejections


def _fit_seconds(probe: str) -> float:
    """Return the least of three times of fitting one probe by itself."""
    dim = 2 if probe == "relief" else 10  # relief takes at most two parameters
    task = GaussianTask("covariance", 0.6, 10, dim)
    draws = task.draws(100, 500, generator_from(0, "ablation"))
    colt = CoLT(CoLTConfig(probes=(probe,)), seed=0)
    return min(
        seconds_of(lambda: colt.fit(draws, show_progress_bar=False)) for _ in range(3)
    )
