"""Which probes carry the default: power with one left out, and with others added.

All probes are trained on the same pairs, and all sets of them see the same batches, so
that differences are those of the sets. Beside the power stands what each probe takes to
be fitted by itself.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from statistics import fmean

from tqdm.auto import tqdm

from sbi_colt.benchmark.studies.share import Problem
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.benchmark.tasks.settings import make_task
from sbi_colt.colt import CoLT
from sbi_colt.config import CoLTConfig
from sbi_colt.probes.ball import ProbeSpec
from sbi_colt.randomness import generator_from
from sbi_colt.sampling.parallel import in_parallel, one_thread
from sbi_colt.stats.redraw import combined_p_value
from sbi_colt.stats.uniformity import pooled_anderson_darling

__all__ = ["ablation_lines"]

# Errors that the default finds in part.
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
_SEEDS = (20, 21)  # of tasks, other than those of the tables of power
_NUM_SAMPLES = 200
_NUM_REDRAWS = 499
_DEFAULT = "the default"


def ablation_lines(
    num_batches: int = 20, num_workers: int = 2, show_progress_bar: bool = True
) -> Iterator[str]:
    """Yield a table of mean power for each set of probes.

    Args:
        num_batches: Test batches of each error and task seed.
        num_workers: Processes.
        show_progress_bar: Whether to show progress.
    """
    tasks = [(problem, seed, num_batches) for problem in _PROBLEMS for seed in _SEEDS]
    progress = tqdm(
        in_parallel(_run, tasks, num_workers),
        total=len(tasks),
        desc="Training sets",
        disable=not show_progress_bar,
    )
    powers: dict[str, dict[Problem, list[float]]] = {}
    for (problem, _, _), rejected in zip(tasks, progress, strict=True):
        for name, count in rejected.items():
            values = powers.setdefault(name, {}).setdefault(problem, [])
            values.append(count / num_batches)
    means = {
        name: {problem: fmean(values) for problem, values in own.items()}
        for name, own in powers.items()
    }
    default = means.pop(_DEFAULT)
    yield f"{'probes':<24}{'mean power':>10}{'fit':>8}   changes most"
    yield f"{_DEFAULT:<24}{fmean(default.values()):>10.3f}"
    for name, own in means.items():
        most = max(default, key=lambda problem: abs(own[problem] - default[problem]))
        change = f"{most.task} {default[most]:.2f} to {own[most]:.2f}"
        left_out = name.removeprefix("without ")
        cost = f"{_fit_seconds(left_out):.3f} s" if left_out != name else ""
        yield f"{name:<24}{fmean(own.values()):>10.3f}{cost:>8}   {change}"
    error = math.sqrt(0.25 / (len(_PROBLEMS) * len(_SEEDS) * num_batches))
    yield f"Means over {len(_PROBLEMS)} errors, with standard errors up to {error:.2f},"
    yield "of differences less: all sets see the same batches. Fit: of the probe left"
    yield "out, by itself, on 100 pairs with 500 draws of 10 parameters (relief: 2)."


def _run(problem: Problem, seed: int, num_batches: int) -> Counter[str]:
    """Return how often each set of probes rejects."""
    default = [spec.name for spec in CoLTConfig().specs]
    parameters = [
        ProbeSpec(f"theta{i}", coordinates="global", kind="coordinate", index=i)
        for i in range(problem.dims[1])
    ]
    sets = {_DEFAULT: default}
    for name in default:
        sets[f"without {name}"] = [other for other in default if other != name]
    sets["with a random centre"] = [*default, "random"]
    sets["with each parameter"] = [*default, *(spec.name for spec in parameters)]
    config = CoLTConfig(probes=(*default, "random", *parameters))
    task = make_task(problem.task, problem.alpha, problem.dims, seed)
    generator = generator_from(seed, "ablation", problem.label)
    size = (problem.num_pairs, _NUM_SAMPLES)
    rejected: Counter[str] = Counter()
    with one_thread():
        colt = CoLT(config, seed=seed)
        colt.fit(task.draws(*size, generator), show_progress_bar=False)
        for batch in range(num_batches):
            result = colt.test(task.draws(*size, generator))
            tables, truth = result.evidence.tables, result.evidence.truth
            names = [probe.name for probe in result.probes]
            for name, probes in sets.items():
                # Some are not for every dimension: such sets are the default then.
                index = [names.index(probe) for probe in probes if probe in names]
                p_value = combined_p_value(
                    tables[index],
                    truth,
                    pooled_anderson_darling,
                    _NUM_REDRAWS,
                    generator_from(batch, "ablation"),
                )
                rejected[name] += p_value <= 0.05
    return rejected


def _fit_seconds(probe: str) -> float:
    """Return the least of three times of fitting one probe by itself."""
    dim = 2 if probe == "relief" else 10  # which is not for more
    task = GaussianTask("covariance", 0.6, 10, dim)
    draws = task.draws(100, 500, generator_from(0, "ablation"))
    seconds = []
    for _ in range(3):
        colt = CoLT(CoLTConfig(probes=(probe,)), seed=0)
        start = time.perf_counter()
        colt.fit(draws, show_progress_bar=False)
        seconds.append(time.perf_counter() - start)
    return min(seconds)
