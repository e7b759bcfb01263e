"""Does the focused distance follow the truth from one observation to the next?

The posteriors are those of NPE from ``sbi-colt benchmark published``, by default with
1000 simulations; those that its folder lacks are trained. The truth at each of the ten
observations of that study is the accuracy of a classifier (C2ST) between draws of the
posterior and of the true one. Only posteriors whose truth spans at least 0.15 count.

Beside the distance of ``diagnose(…, x_o=x_o)`` stand that of its parameter side alone,
`CoLTResult.at` after a run over the whole prior, and the statistic of sbi's `LC2ST`.
The last two are amortized: one run serves all observations, and has about twice as many
simulations as a focused run. Spearman's rank correlations are over the ten observations
of a posterior.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from sbi.diagnostics.lc2st import LC2ST
from scipy.stats import spearmanr
from threadpoolctl import threadpool_limits

from sbi_colt.benchmark.row_files import append_rows, rows_so_far
from sbi_colt.benchmark.studies.shared import (
    JOBS,
    MODELS,
    QUIET,
    in_parallel_with_bar,
    only_option,
    out_option,
)
from sbi_colt.benchmark.tables import aligned
from sbi_colt.benchmark.tasks.published import PROBLEMS
from sbi_colt.benchmark.tasks.published.trained import (
    TRAINED,
    Trained,
    load_or_train,
    observations,
    read_or_measure,
)
from sbi_colt.diagnose import diagnose
from sbi_colt.randomness import derive_seed, generator_from, isolated_rng
from sbi_colt.run_colt import run_colt
from sbi_colt.sampling.at_xs import draw_posterior_samples
from sbi_colt.sampling.parallel import one_thread

OPTIONS = {
    **JOBS,
    **QUIET,
    **MODELS,
    "--task": only_option("TASK", *PROBLEMS),
    "--simulations": {**only_option("NUMBER", 1000, 10_000), "default": (1000,)},
    **out_option("observations.csv"),
}
_NUM_PAIRS, _NUM_DRAWS = 2000, 200  # of a focused run
_NUM_AT_X = 1000  # draws at x_o for LC2ST
_SPAN = 0.15  # of the truth, for a posterior to count
_NUM_OTHERS = 12_000  # simulations of `at` and LC2ST
_METHODS = ("focused", "parameters", "at", "lc2st")
_WIDTHS = (30, 7, 6, 9, 12, 7, 7)


@dataclass(frozen=True)
class ObservationKey:
    """One method at one observation."""

    posterior: Trained
    method: str
    observation: int


@dataclass(frozen=True)
class ObservationRow:
    """The truth at the observation, and what the method says of it."""

    key: ObservationKey
    c2st: float
    distance: float
    num_spent: int  # simulations


def run(options: argparse.Namespace) -> Iterator[str]:
    """Yield a table of all rows of the CSV file; each distance is a row."""
    asked = [
        which
        for which in TRAINED
        if which.estimator.startswith("npe")
        and which.task in options.task
        and which.num_simulations in options.simulations
    ]
    _fill([(which, "truth", 0) for which in asked], options)
    truths = defaultdict(list)
    for row in rows_so_far(options.out, ObservationRow):
        if row.key.method == "truth":
            truths[row.key.posterior].append(row.c2st)
    chosen = [p for p in asked if max(truths[p]) - min(truths[p]) >= _SPAN]
    number = range(len(next(iter(truths.values()))))
    _fill([(p, "focused", i) for i in number for p in chosen], options)
    _fill([(p, method, 0) for p in chosen for method in ("at", "lc2st")], options)
    yield from observation_lines(rows_so_far(options.out, ObservationRow))


def _fill(
    jobs: Sequence[tuple[Trained, str, int]], options: argparse.Namespace
) -> None:
    """Measure what the file lacks."""
    done = {row.key for row in rows_so_far(options.out, ObservationRow)}
    left = [(*job, options.models) for job in jobs if ObservationKey(*job) not in done]
    for rows in in_parallel_with_bar(_measure, left, options, "Runs"):
        append_rows(options.out, rows, options.command_line)


def _measure(
    which: Trained, method: str, observation: int, folder: Path
) -> list[ObservationRow]:
    """Return the rows of a run: at one observation if focused, otherwise at all."""
    seed = derive_seed(0, "observations study", which.name, method, str(observation))
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior, seconds = load_or_train(which, folder)
        c2sts = read_or_measure(which, posterior, seconds, folder).c2sts
        xs = observations(which.task)

        def row(name: str, i: int, distance: float, spent: int) -> ObservationRow:
            key = ObservationKey(which, name, i)
            return ObservationRow(key, round(c2sts[i], 4), distance, spent)

        if method == "focused":
            parts = _focused(which, posterior, xs[observation], seed)
            return [row(name, observation, *part) for name, part in parts.items()]
        if method == "truth":
            return [row(method, i, float("nan"), 0) for i in range(len(xs))]
        distance_at = (_at if method == "at" else _lc2st)(which, posterior, seed)
        return [row(method, i, distance_at(x), _NUM_OTHERS) for i, x in enumerate(xs)]


def _focused(
    which: Trained, posterior: Any, x_o: torch.Tensor, seed: int
) -> dict[str, tuple[float, int]]:
    """Return the distances of a focused run, and the simulations that it spent."""
    report: Any = diagnose(
        posterior,
        which.problem.prior(),
        which.problem.simulate,
        x_o=x_o,
        num_simulations=_NUM_PAIRS,
        num_posterior_samples=_NUM_DRAWS,
        methods=("colt", "predictive"),
        seed=seed,
        show_progress_bar=False,
    )
    spent = report.cost.num_spent
    return {
        "focused": (float(report.distance), spent),
        "parameters": (float(report["colt"].distance), spent),
    }


def _at(which: Trained, posterior: Any, seed: int) -> Callable[[torch.Tensor], float]:
    """Return the local distance after one run over the whole prior."""
    result = run_colt(
        *_pairs(which, seed), posterior, 100, seed=seed, show_progress_bar=False
    )
    return lambda x_o: float(result.at(x_o).distance)


def _lc2st(
    which: Trained, posterior: Any, seed: int
) -> Callable[[torch.Tensor], float]:
    """Return the statistic of LC2ST, trained on one draw at each x."""
    thetas, xs = _pairs(which, seed)
    draw = partial(
        draw_posterior_samples, posterior, seed=seed, show_progress_bar=False
    )
    generator = generator_from(seed, "training")
    with threadpool_limits(1), isolated_rng(generator):
        test = LC2ST(thetas, xs, draw(xs, 1)[0], seed=1, z_score=True)
        test.train_on_observed_data(verbosity=0)

    def statistic(x_o: torch.Tensor) -> float:
        draws = draw(x_o.unsqueeze(0), _NUM_AT_X)[:, 0]
        return float(test.get_statistic_on_observed_data(draws, x_o.unsqueeze(0)))

    return statistic


def _pairs(which: Trained, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    with isolated_rng(generator_from(seed, "pairs")):
        thetas = which.problem.prior().sample((_NUM_OTHERS,))
        return thetas, which.problem.simulate(thetas)


def observation_lines(rows: Sequence[ObservationRow]) -> Iterator[str]:
    """Yield the rank correlations of each posterior, and their means."""
    by_posterior: dict[Trained, list[ObservationRow]] = defaultdict(list)
    measured = {row.key.posterior for row in rows if row.key.method != "truth"}
    for row in rows:
        if row.key.posterior in measured:
            by_posterior[row.key.posterior].append(row)
    yield aligned(("posterior", "C2ST", "span", *_METHODS), *_WIDTHS)
    found: dict[str, list[float]] = defaultdict(list)
    for which, own in by_posterior.items():
        truth = [row.c2st for row in own if row.key.method == "truth"]
        texts = [f"{fmean(truth):.2f}", f"{max(truth) - min(truth):.2f}"]
        for method in _METHODS:
            pairs = [(r.c2st, r.distance) for r in own if r.key.method == method]
            if len(pairs) < len(truth):
                texts.append("")
                continue
            found[method].append(_rank_correlation(pairs))
            texts.append(f"{found[method][-1]:.2f}")
        yield aligned((which.label, *texts), *_WIDTHS).rstrip()
    means = [
        f"{fmean(found[method]):.2f}" if found[method] else "" for method in _METHODS
    ]
    yield aligned(("mean", "", "", *means), *_WIDTHS).rstrip()
    for words, names in (
        ("a focused run", ("focused",)),
        ("at and of LC2ST", ("at", "lc2st")),
    ):
        spent = [row.num_spent for row in rows if row.key.method in names]
        if spent:
            yield f"Simulations of {words}: {fmean(spent):.0f}."


def _rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Return Spearman's rank correlation, 0 if one side is constant."""
    first, second = zip(*pairs, strict=True)
    if min(len(set(first)), len(set(second))) < 2:
        return 0.0
    result: Any = spearmanr(first, second)
    return float(result.statistic)
