"""``share``: power by the share of the pairs that is used for training.

Each run simulates new pairs, trains on a share of them and tests on the others, as
`sbi_colt.run_colt` does. The table counts rejections by the test pairs alone, and
rejections by all pairs (untrained probes may use the training pairs too).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

from sbi_colt.benchmark.studies.options import add_jobs, show
from sbi_colt.benchmark.studies.problem import Problem
from sbi_colt.config import CoLTConfig
from sbi_colt.randomness import generator_from
from sbi_colt.run_colt import colt_on_draws
from sbi_colt.sampling.parallel import in_parallel, one_thread

__all__ = ["add_options", "run", "share_lines"]

DESCRIPTION = (
    "Measure power by the share of the pairs that is used for training, counting "
    "rejections by the test pairs alone and by all pairs (a quarter of an hour on two "
    "cores)."
)
_SHARES = (0.2, 0.3, 0.5, 0.7)
_NUM_TASKS = 4  # with other seeds than in the tables of power
_FIRST_SEED = 10
_NUM_SAMPLES = 300
_PROBLEMS = (
    Problem("covariance", 0.0, (3, 3), 200),
    Problem("mean", 0.08, (3, 3), 200),
    Problem("covariance", 0.2, (3, 3), 200),
    Problem("anisotropic", 0.15, (10, 10), 200),
    Problem("blind", 1.0, (50, 10), 100),
    Problem("curved-mean", 0.15, (3, 3), 200),
    Problem("curved-t", 0.2, (3, 3), 200),
    Problem("curved-modes", 0.15, (3, 3), 200),
    Problem("curved-anisotropic", 1.5, (10, 10), 200),
    Problem("curved-mean", 0.05, (3, 3), 1000),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_jobs(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    return show(share_lines(num_workers=options.jobs))


def share_lines(repetitions: int = 40, num_workers: int = 2) -> Iterator[str]:
    """Yield a table of power by the share of pairs to train on.

    Args:
        repetitions: Runs behind each number.
        num_workers: Processes.
    """
    heads = "".join(f"{f'{share:.0%}':>11}" for share in _SHARES)
    yield f"{'trained on':<36}{heads}"
    totals = [0.0] * (2 * len(_SHARES))
    for problem in _PROBLEMS:
        jobs = [(problem, share, i) for share in _SHARES for i in range(repetitions)]
        found = list(in_parallel(_rejected, jobs, num_workers))
        powers = []
        for start in range(0, len(found), repetitions):
            part = found[start : start + repetitions]
            powers += [sum(each) / repetitions for each in zip(*part, strict=True)]
        if problem.alpha:
            totals = [a + b for a, b in zip(totals, powers, strict=True)]
        yield _line(problem.label, powers)
    count = sum(problem.alpha > 0 for problem in _PROBLEMS)
    yield _line("mean, without none", [total / count for total in totals])
    error = math.sqrt(0.25 / repetitions)
    yield "Lines: error and its size, dimensions of x and theta, number of pairs."
    yield "Columns: power at level 0.05, test pairs only / all pairs. Standard errors"
    yield f"are at most {error:.2f}, of the mean {error / math.sqrt(count):.2f}."


def _line(label: str, powers: list[float]) -> str:
    both = zip(powers[::2], powers[1::2], strict=True)
    return f"{label:<36}" + "".join(f"{f'{a:.2f}/{b:.2f}':>11}" for a, b in both)


def _rejected(problem: Problem, share: float, index: int) -> tuple[bool, bool]:
    """Return whether the test pairs reject, and whether all pairs reject."""
    seed = _FIRST_SEED + index % _NUM_TASKS
    task = problem.make(seed)
    stream = (problem.task, str(problem.alpha), problem.num_pairs, index)
    with one_thread():
        draws = task.draws(
            problem.num_pairs, _NUM_SAMPLES, generator_from(0, "share", *stream)
        )
        result = colt_on_draws(
            draws,
            config=CoLTConfig(train_fraction=share),
            seed=index,
            show_progress_bar=False,
        )
    return result.test_p_value <= 0.05, result.p_value <= 0.05
