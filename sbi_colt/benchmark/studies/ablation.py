"""Measure the default's power without each of its probes, and with further ones.

A probe gives each member of a bag (a true θ and the posterior draws at the same x) one
number; the default combines several probes. All probes are trained once, and each set
of probes is tested on the same pairs. Another column tells how long each probe takes to
fit.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator
from functools import partial
from statistics import fmean

from sbi_colt.benchmark.studies.shared import (
    JOBS,
    QUIET,
    Problem,
    in_parallel_with_bar,
    seconds_of,
)
from sbi_colt.benchmark.tables import aligned
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.colt import CoLT
from sbi_colt.config import CoLTConfig
from sbi_colt.randomness import generator_from
from sbi_colt.sampling.parallel import one_thread
from sbi_colt.stats.redraw import combined_p_value
from sbi_colt.stats.uniformity import pooled_anderson_darling

OPTIONS = JOBS | QUIET
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
    Problem("bias", 0.2, (10, 10), 250),
    Problem("bias", 0.25, (30, 30), 250),
)
_SEEDS = (20, 21)  # of tasks, with other seeds than in the tables of power
_NUM_SAMPLES = 200
_NUM_REDRAWS = 499
_FULL = "the default"
_DEFAULT = CoLTConfig().probes
_SETS = {
    _FULL: set(_DEFAULT),
    **{f"without {name}": set(_DEFAULT) - {name} for name in _DEFAULT},
    "with energy": {*_DEFAULT, "energy"},
    "with a random centre": {*_DEFAULT, "random"},
}


def run(options: argparse.Namespace, num_batches: int = 20) -> Iterator[str]:
    """Yield a table of mean power for each set of probes."""
    jobs = [(problem, seed, num_batches) for problem in _PROBLEMS for seed in _SEEDS]
    found = in_parallel_with_bar(_rejections, jobs, options, "Training sets")
    counts: Counter[tuple[str, Problem]] = Counter()
    for (problem, _, _), rejections in zip(jobs, found, strict=True):
        for name, count in rejections.items():
            counts[name, problem] += count
    batches = len(_SEEDS) * num_batches
    powers = {s: {p: counts[s, p] / batches for p in _PROBLEMS} for s in _SETS}
    default = powers[_FULL]
    yield aligned(("probes", "mean power", "fit"), 24, 10, 8) + "   largest change"
    for name, own in powers.items():
        mean = f"{fmean(own.values()):.3f}"
        if name == _FULL:
            yield aligned((name, mean), 24, 10)
            continue
        most = max(default, key=lambda p, own=own: abs(own[p] - default[p]))
        left_out = name.removeprefix("without ")
        cost = f"{_fit_seconds(left_out):.3f} s" if left_out != name else ""
        change = f"{most.task} {default[most]:.2f} to {own[most]:.2f}"
        yield aligned((name, mean, cost), 24, 10, 8) + f"   {change}"
    error = math.sqrt(0.25 / (len(_PROBLEMS) * batches))
    yield f"Means over {len(_PROBLEMS)} errors, with standard errors of at most"
    yield f"{error:.2f}; those of differences are smaller, because all sets see the"
    yield "same batches. Column fit: seconds to fit the left-out probe alone, on 100"
    yield "pairs with 500 draws of 10 parameters (relief: 2 parameters)."


def _rejections(problem: Problem, seed: int, num_batches: int) -> Counter[str]:
    """Return the number of batches that each set of probes rejects."""
    generator = generator_from(seed, "ablation", problem.label)
    task = problem.make(seed)
    draw = partial(task.draws, problem.num_pairs, _NUM_SAMPLES, generator)
    probes = (*_DEFAULT, *sorted(set().union(*_SETS.values()) - set(_DEFAULT)))
    config = CoLTConfig(probes=probes, num_redraws=_NUM_REDRAWS)
    rejections: Counter[str] = Counter()
    with one_thread():
        colt = CoLT(config, seed=seed).fit(draw(), show_progress_bar=False)
        for batch in range(num_batches):
            result = colt.test(draw())
            kinds = [_kind(probe.name) for probe in result.probes]
            for name, chosen in _SETS.items():
                own = [i for i, kind in enumerate(kinds) if kind in chosen]
                p_value = combined_p_value(
                    result.evidence.table.under(own),
                    result.evidence.truth,
                    pooled_anderson_darling,
                    _NUM_REDRAWS,
                    generator_from(seed, "ablation", batch),
                )
                rejections[name] += p_value <= 0.05
    return rejections


def _kind(name: str) -> str:
    """Return the name in the registry; "marginal[3]" is one of "marginal"."""
    return name.partition("[")[0]


def _fit_seconds(probe: str) -> float:
    """Return the least of three times of fitting one probe by itself."""
    dim = 2 if probe == "relief" else 10  # relief takes at most two parameters
    task = GaussianTask("covariance", 0.6, 10, dim)
    draws = task.draws(100, 500, generator_from(0, "ablation"))
    fit = partial(CoLT(CoLTConfig(probes=(probe,)), seed=0).fit, draws)
    return min(seconds_of(partial(fit, show_progress_bar=False)) for _ in range(3))
