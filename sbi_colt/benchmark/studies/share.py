"""How many of the pairs to train on, and what it brings to look at all of them.

Each run simulates pairs anew, trains on a share of them and tests on the others, as
`run_colt` does. Counted are rejections by the test pairs alone, and by every pair
(`sbi_colt.run_colt`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sbi_colt.benchmark.tasks.settings import make_task
from sbi_colt.config import CoLTConfig
from sbi_colt.randomness import generator_from
from sbi_colt.run_colt import colt_on_draws
from sbi_colt.sampling.parallel import in_parallel, one_thread

__all__ = ["Problem", "share_lines"]

_SHARES = (0.2, 0.3, 0.5, 0.7)
_NUM_TASKS = 4  # tasks with other seeds than those of the tables of power
_FIRST_SEED = 10
_NUM_SAMPLES = 300


@dataclass(frozen=True)
class Problem:
    """An error of the benchmark's tasks and a number of pairs to find it with.

    Args:
        task: Name of the task.
        alpha: Size of the error; 0 for none.
        dims: Dimensions of x and θ.
        num_pairs: Pairs.
    """

    task: str
    alpha: float
    dims: tuple[int, int]
    num_pairs: int

    @property
    def label(self) -> str:
        """Name and size of the error, dimensions and pairs."""
        name = f"{self.task} {self.alpha:g}" if self.alpha else "none"
        return f"{name} {self.dims} {self.num_pairs}"


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
        tasks = [(problem, share, i) for share in _SHARES for i in range(repetitions)]
        found = list(in_parallel(_run, tasks, num_workers))
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
    yield "Error, its size, dimensions of x and theta, number of pairs; power at level"
    yield "0.05 by the test pairs alone, and behind the stroke by every pair. Standard"
    yield f"errors are at most {error:.2f}, of the mean {error / math.sqrt(count):.2f}."


def _line(label: str, powers: list[float]) -> str:
    both = zip(powers[::2], powers[1::2], strict=True)
    return f"{label:<36}" + "".join(f"{f'{a:.2f}/{b:.2f}':>11}" for a, b in both)


def _run(problem: Problem, share: float, index: int) -> tuple[bool, bool]:
    """Return whether the test pairs, and every pair, reject."""
    seed = _FIRST_SEED + index % _NUM_TASKS
    task = make_task(problem.task, problem.alpha, problem.dims, seed)
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
