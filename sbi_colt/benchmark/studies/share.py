"""Measure power by the share of the pairs that is used for training.

Each run simulates new pairs, trains on a share of them and tests on the others. The
table counts rejections by the test pairs alone, and rejections by all pairs, because
untrained probes may use the training pairs too (a quarter of an hour on two cores).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from sbi_colt.benchmark.studies.shared import JOBS, Problem
from sbi_colt.config import CoLTConfig
from sbi_colt.randomness import generator_from
from sbi_colt.run_colt import colt_on_draws
from sbi_colt.sampling.parallel import in_parallel, one_thread

OPTIONS = JOBS
_SHARES = (0.2, 0.3, 0.5, 0.7)
_TASK_SEEDS = (10, 11, 12, 13)  # other seeds than in the tables of power
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


def run(options: argparse.Namespace, repetitions: int = 40) -> Iterator[str]:
    """Yield a table of power by the share of pairs to train on."""
    yield f"{'trained on':<36}" + "".join(f"{f'{share:.0%}':>11}" for share in _SHARES)
    wrong = []  # power of each problem with an error, by share and count
    for problem in _PROBLEMS:
        jobs = [(problem, share, i) for share in _SHARES for i in range(repetitions)]
        found = list(in_parallel(_rejected, jobs, options.jobs))
        powers = []
        for start in range(0, len(found), repetitions):
            part = found[start : start + repetitions]
            powers += map(fmean, zip(*part, strict=True))
        if problem.alpha:
            wrong.append(powers)
        yield _line(problem.label, powers)
    yield _line("mean, without none", list(map(fmean, zip(*wrong, strict=True))))
    error = math.sqrt(0.25 / repetitions)
    yield "Lines: error and its size, dimensions of x and theta, number of pairs."
    yield "Columns: power at level 0.05, test pairs only / all pairs. Standard errors"
    yield f"are at most {error:.2f}, of the mean {error / math.sqrt(len(wrong)):.2f}."


def _line(label: str, powers: Sequence[float]) -> str:
    both = zip(powers[::2], powers[1::2], strict=True)
    return f"{label:<36}" + "".join(f"{f'{a:.2f}/{b:.2f}':>11}" for a, b in both)


def _rejected(problem: Problem, share: float, index: int) -> tuple[bool, bool]:
    """Return whether the test pairs reject, and whether all pairs reject."""
    task = problem.make(_TASK_SEEDS[index % len(_TASK_SEEDS)])
    stream = (problem.task, str(problem.alpha), problem.num_pairs, index)
    generator = generator_from(0, "share", *stream)
    config = CoLTConfig(train_fraction=share)
    with one_thread():
        draws = task.draws(problem.num_pairs, _NUM_SAMPLES, generator)
        result = colt_on_draws(
            draws, config=config, seed=index, show_progress_bar=False
        )
    return result.test_p_value <= 0.05, result.p_value <= 0.05
