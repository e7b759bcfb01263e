"""Measure power by the share of the pairs that is used for training.

Each run simulates new pairs, trains on a share of them and tests on the others. The
table counts rejections by the test pairs alone, and rejections by all pairs, because
untrained probes may use the training pairs too (a quarter of an hour on two cores).

A second table says what the verdict over both sides costs where the data side sees
nothing, so that its p-value is uniform: the expected power of three ways to combine it
with the p-value of all pairs: the smaller of both with weights (which diagnose takes)
or without, and Fisher's.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from scipy.special import lambertw

from sbi_colt.benchmark.studies.shared import JOBS, Problem
from sbi_colt.benchmark.tables import aligned
from sbi_colt.config import CoLTConfig
from sbi_colt.randomness import generator_from
from sbi_colt.run_colt import colt_on_draws
from sbi_colt.sampling.parallel import in_parallel, one_thread
from sbi_colt.stats.combine import SHARE_OF_PARAMETERS

_SHARES = (0.2, 0.3, 0.5, 0.7)
_DEFAULT = CoLTConfig().train_fraction
_LEVEL = 0.05
OPTIONS = {
    **JOBS,
    "--shares": {
        "nargs": "+",
        "type": float,
        "default": list(_SHARES),
        "metavar": "SHARE",
        "help": "shares of the pairs to train on (default: 0.2 0.3 0.5 0.7)",
    },
}
_TASK_SEEDS = (10, 11, 12, 13)  # other seeds than in the tables of power
_NUM_SAMPLES = 300
Cell = tuple[float | str, ...]  # numbers side by side in one place of a table
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
    """Yield a table of power by the share of pairs to train on, and one of verdicts."""
    shares = options.shares
    yield _line("trained on", [(f"{share:.0%}",) for share in shares])
    tables: tuple[list[list[Cell]], list[list[Cell]]] = ([], [])  # without "none"
    verdicts = []
    for problem in _PROBLEMS:
        jobs = [(problem, share, i) for share in shares for i in range(repetitions)]
        found = list(in_parallel(_p_values, jobs, options.jobs))
        parts = [found[i : i + repetitions] for i in range(0, len(found), repetitions)]
        by_share = dict(zip(shares, parts, strict=True))
        rows = (
            [_powers(part) for part in by_share.values()],
            _verdicts(by_share.get(_DEFAULT, [])),
        )
        if problem.alpha:
            for table, row in zip(tables, rows, strict=True):
                table.append(row)
        yield _line(problem.label, rows[0])
        verdicts.append(_line(problem.label, rows[1]))
    yield _line("mean, without none", _means(tables[0]))
    error = math.sqrt(0.25 / repetitions)
    yield "Lines: error and its size, dimensions of x and theta, number of pairs."
    yield "Columns: power at level 0.05, test pairs only / all pairs. Standard errors"
    yield f"are at most {error:.2f}, of the mean {error / len(tables[0]) ** 0.5:.2f}."
    if _DEFAULT in shares:
        yield ""
        titles = ("alone", "weighted", "equal", "Fisher")
        yield _line("both sides", [(title,) for title in titles])
        yield from verdicts
        yield _line("mean, without none", _means(tables[1]))
        yield f"Power, trained on {_DEFAULT:.0%}, of the parameter side alone, and of"
        yield "both sides if the data side sees nothing: by the smaller p-value with"
        yield f"weights {SHARE_OF_PARAMETERS:g} and {1 - SHARE_OF_PARAMETERS:.2g}, with"
        yield "equal weights, or by Fisher's product."


def _powers(p_values: Sequence[tuple[float, float]]) -> Cell:
    return tuple(fmean(p <= _LEVEL for p in own) for own in zip(*p_values, strict=True))


def _verdicts(p_values: Sequence[tuple[float, float]]) -> list[Cell]:
    """Return the power of all pairs alone, and of the ways to combine both sides."""
    ways = (
        lambda p: float(p <= _LEVEL),
        lambda p: _smaller(p, SHARE_OF_PARAMETERS),
        lambda p: _smaller(p, 0.5),
        _fisher,
    )
    return [(fmean(way(p) for _, p in p_values),) for way in ways] if p_values else []


def _means(rows: Sequence[Sequence[Cell]]) -> list[Cell]:
    columns = zip(*rows, strict=True)
    return [tuple(map(fmean, zip(*column, strict=True))) for column in columns]


def _line(label: str, cells: Sequence[Cell]) -> str:
    texts = (
        "/".join(own if isinstance(own, str) else f"{own:.2f}" for own in cell)
        for cell in cells
    )
    return aligned((label, *texts), 36, 11)


def _smaller(p_value: float, share: float) -> float:
    """Return the chance that the smaller of two weighted p-values rejects.

    The other p-value is uniform. With w the share of this one, both reject at the
    level from w t and (1 − w) t on, where (1 − w t) (1 − (1 − w) t) = 1 − level.
    """
    product = share * (1 - share)
    t = (1 - math.sqrt(1 - 4 * product * _LEVEL)) / (2 * product)
    return 1.0 if p_value <= share * t else (1 - share) * t


def _fisher(p_value: float) -> float:
    """Return the chance that Fisher's product p U has a p-value of at most the level.

    The product's p-value is c (1 − log c), which is the level at
    c = −level / W(−level / e), W the lower branch of Lambert's function.
    """
    critical = -_LEVEL / float(lambertw(-_LEVEL / math.e, k=-1).real)
    return min(1.0, critical / p_value)


def _p_values(problem: Problem, share: float, index: int) -> tuple[float, float]:
    """Return the p-values of the test pairs and of all pairs."""
    task = problem.make(_TASK_SEEDS[index % len(_TASK_SEEDS)])
    stream = (problem.task, str(problem.alpha), problem.num_pairs, index)
    generator = generator_from(0, "share", *stream)
    config = CoLTConfig(train_fraction=share)
    settings = {"config": config, "seed": index, "show_progress_bar": False}
    with one_thread():
        draws = task.draws(problem.num_pairs, _NUM_SAMPLES, generator)
        result = colt_on_draws(draws, **settings)
    return result.test_p_value, result.p_value
