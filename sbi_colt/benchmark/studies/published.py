"""Diagnose posteriors that sbi trained on problems of the sbi benchmark.

Seven problems (Lueckmann et al. 2021); NPE with MAF and with NSF on all of them, FMPE
on three and NLE on two, each with 1000 and with 10,000 simulations. What is true of a
posterior is measured against draws of the true posterior at ten observations: the
accuracy of a classifier (C2ST) and ratios of widths. Beside it stand the parameter
side, the data side and the verdict of diagnose, and SBC, TARP and L-C2ST.

The budget "default" is that of diagnose; "large" has 5000 pairs with 100 draws and 5000
replicates, without L-C2ST and NLE. FMPE, whose draws take milliseconds each, has 20,000
draws in all: 20 for each x, or 4. NLE, whose draws are slower still, gets the data
side alone as its verdict; its parameter side is measured by itself, with 50 xs and 100
draws.

Posteriors and truths are kept in a folder and rows in a CSV file, so that an
interrupted run goes on (training: an hour on one core; a budget: another hour).
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from sbi.diagnostics.lc2st import LC2ST
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from sbi_colt.benchmark.published_table import PublishedRow, Run, published_lines
from sbi_colt.benchmark.row_files import append_rows, rows_so_far
from sbi_colt.benchmark.studies.shared import (
    MODELS,
    QUIET,
    count_option,
    flag,
    only_option,
    out_option,
)
from sbi_colt.benchmark.tables import aligned
from sbi_colt.benchmark.tasks.published import PROBLEMS
from sbi_colt.benchmark.tasks.published.trained import (
    ESTIMATORS,
    TRAINED,
    Trained,
    Truth,
    load_or_train,
    observations,
    read_or_measure,
)
from sbi_colt.diagnose import diagnose
from sbi_colt.randomness import derive_seed, generator_from, isolated_rng
from sbi_colt.sampling.at_xs import draw_posterior_samples
from sbi_colt.sampling.parallel import one_thread

_BUDGETS: dict[str, dict[str, Any]] = {
    "default": {},
    "large": {
        "num_simulations": 5000,
        "num_posterior_samples": 100,
        "num_replicated_pairs": 5000 // 6,
        "methods": ("colt", "predictive", "sbc", "tarp"),
    },
}
_FMPE_DRAWS = {"default": 20, "large": 4}  # for each x
_SLOW_SAMPLER = {"num_simulations": 50, "num_posterior_samples": 100}
_DATA_STEPS = ("replicates", "predictive")
_LEVEL = 0.05
_NUM_LC2ST_PAIRS = 1000
_NUM_LC2ST_DRAWS = 1000  # at each observation
_NUM_LC2ST_TRIALS = 100  # under the null hypothesis, as in sbi


OPTIONS = {
    **QUIET,
    **MODELS,
    **out_option("published.csv"),
    "--budget": {
        "choices": list(_BUDGETS),
        "default": "default",
        "help": "pairs, draws and replicates (default: %(default)s)",
    },
    "--seeds": count_option("number of seeds of the diagnostics (default: 1)", 1),
    "--task": only_option("TASK", *PROBLEMS),
    "--estimator": only_option("NAME", *ESTIMATORS),
    "--simulations": only_option("NUMBER", 1000, 10_000),
    "--train-only": flag("train and measure the truth, without diagnostics"),
    "--table-only": flag("print the rows of the CSV file, and run nothing"),
}


def run(options: argparse.Namespace) -> Iterator[str]:
    """Yield a table of truths and diagnostics, and how well they agree."""
    chosen = [
        which
        for which in TRAINED
        if which.task in options.task
        and which.estimator in options.estimator
        and which.num_simulations in options.simulations
        and (options.budget == "default" or which.estimator != "nle-maf")
    ]
    if options.train_only:
        yield from _training_lines(chosen, options.models)
        return
    runs = [Run(p, options.budget, s) for p in chosen for s in range(options.seeds)]
    if not options.table_only:
        done = {row.run for row in rows_so_far(options.out, PublishedRow)}
        left = [one for one in runs if one not in done]
        for one in tqdm(left, desc="Posteriors", disable=options.quiet):
            with one_thread():
                row = measure(one, *_posterior_and_truth(one.posterior, options.models))
            append_rows(options.out, [row], options.command_line)
    rows = rows_so_far(options.out, PublishedRow)
    yield from published_lines([row for row in rows if row.run in runs])


def _training_lines(chosen: Sequence[Trained], folder: Path) -> Iterator[str]:
    widths = (30, 9, 7, 13)
    yield aligned(("posterior", "trained", "C2ST", "widths"), *widths)
    for which in chosen:
        with one_thread():
            _, truth = _posterior_and_truth(which, folder)
        ratios = f"{min(truth.width_ratios):.2f}-{max(truth.width_ratios):.2f}"
        numbers = (f"{truth.train_seconds:.0f} s", f"{truth.c2st:.3f}", ratios)
        yield aligned((which.label, *numbers), *widths)


def _posterior_and_truth(which: Trained, folder: Path) -> tuple[Any, Truth]:
    posterior, seconds = load_or_train(which, folder)
    return posterior, read_or_measure(which, posterior, seconds, folder)


def measure(run: Run, posterior: Any, truth: Truth) -> PublishedRow:
    """Return the row of a posterior: its truth and all diagnostics."""
    which = run.posterior
    is_slow = which.estimator.startswith("nle")

    def report_of(**settings: Any) -> Any:
        return diagnose(
            posterior,
            which.problem.prior(),
            which.problem.simulate,
            seed=derive_seed(run.seed, "published study", which.name),
            show_progress_bar=False,
            **settings,
        )

    if is_slow:
        methods = ("colt", "sbc", "tarp")
        parameters = report_of(methods=methods, **_SLOW_SAMPLER)
        data = report_of(methods=("predictive",))
    else:
        budget = dict(_BUDGETS[run.budget])
        if which.estimator == "fmpe":
            budget["num_posterior_samples"] = _FMPE_DRAWS[run.budget]
        parameters = data = report_of(**budget)
    share, seconds = math.nan, math.nan
    if run.budget == "default" and not is_slow:
        share, seconds = _lc2st(which, posterior, run.seed)
    return PublishedRow(
        run,
        truth.c2st,
        min(truth.width_ratios),
        max(truth.width_ratios),
        *_numbers(parameters["colt"]),
        *_numbers(data["predictive"]),
        *_numbers(data),
        float(parameters["sbc"].p_value),
        float(parameters["tarp"].p_value),
        share,
        truth.train_seconds,
        *_seconds(parameters, data),
        seconds,
    )


def _numbers(result: Any) -> tuple[float, float, float]:
    """Return p-value, distance and bound of one side, or of a report."""
    return float(result.p_value), float(result.distance), float(result.distance_lower)


def _seconds(parameters: Any, data: Any) -> tuple[float, float, float, float]:
    """Return the seconds of the parameter side, the data side, SBC and TARP."""
    spent = parameters.cost.seconds
    parameter_side = sum(spent[step] for step in ("simulation", "sampling", "colt"))
    steps = data.cost.seconds
    if data is parameters:
        steps = {name: steps[name] for name in steps if name in _DATA_STEPS}
    return parameter_side, sum(steps.values()), spent["sbc"], spent["tarp"]


def _lc2st(which: Trained, posterior: Any, seed: int) -> tuple[float, float]:
    """Return the share of observations that L-C2ST rejects, and its seconds.

    Linhart et al. (2023), as in sbi, trained on fresh pairs with one draw each, with
    standardised inputs.
    """
    start = time.perf_counter()
    generator = generator_from(seed, "published L-C2ST", which.name)
    problem, x_o = which.problem, observations(which.task)
    with isolated_rng(generator):
        thetas = problem.prior().sample((_NUM_LC2ST_PAIRS,))
        xs = problem.simulate(thetas)

    def draws(xs: torch.Tensor, num: int) -> torch.Tensor:
        seed = int(torch.randint(2**31, (1,), generator=generator))
        return draw_posterior_samples(
            posterior, xs, num, seed=seed, show_progress_bar=False
        )

    settings: Any = {"z_score": True, "num_trials_null": _NUM_LC2ST_TRIALS}
    # One thread, as for the classifiers of the truth.
    with warnings.catch_warnings(), threadpool_limits(1), isolated_rng(generator):
        warnings.simplefilter("ignore")  # of a classifier that has not converged
        test = LC2ST(thetas, xs, draws(xs, 1)[0], seed=1, **settings)
        test.train_on_observed_data(verbosity=0)
        test.train_under_null_hypothesis(verbosity=0)
        theta_o = draws(x_o, _NUM_LC2ST_DRAWS)  # (draws, 10, d)
        p_values = [test.p_value(theta_o[:, i], x) for i, x in enumerate(x_o)]
    share = fmean(p_value <= _LEVEL for p_value in p_values)
    return share, time.perf_counter() - start
