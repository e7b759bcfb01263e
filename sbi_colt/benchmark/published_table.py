"""The results on the published problems as a table, and how they agree with the truth.

A good distance ranks posteriors as their true errors do; a good verdict rejects each
posterior whose error is large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from scipy.stats import spearmanr

from sbi_colt.benchmark.tables import aligned
from sbi_colt.benchmark.tasks.published.trained import Trained

__all__ = ["PublishedRow", "Run", "published_lines", "rank_correlation"]

_LEVEL = 0.05
_USELESS = 0.7  # a posterior with a larger C2ST must be rejected
_WIDTHS = (28, 5, 10, 5, 5, 6, 5, 5, 6, 6)


@dataclass(frozen=True)
class Run:
    """A run of all diagnostics on one posterior."""

    posterior: Trained
    budget: str  # "default" or "large"
    seed: int  # of the diagnostics


@dataclass(frozen=True)
class PublishedRow:
    """What is true of a posterior, and what the diagnostics say; NaN: not measured."""

    run: Run
    c2st: float  # mean accuracy of a classifier against draws of the true posterior
    narrowest: float  # smallest ratio of widths of any parameter, posterior over truth
    widest: float
    colt_p: float  # the parameter side
    colt_distance: float
    colt_lower: float  # certified bound of the distance
    predictive_p: float  # the data side
    predictive_distance: float
    predictive_lower: float
    p_value: float  # the verdict over both sides
    distance: float
    distance_lower: float
    sbc_p: float
    tarp_p: float
    lc2st_share: float  # of ten observations, rejected by L-C2ST at level 0.05
    train_seconds: float
    parameter_seconds: float  # with simulations and draws
    data_seconds: float  # with replicates
    sbc_seconds: float  # without draws, as for TARP
    tarp_seconds: float
    lc2st_seconds: float  # with simulations and draws


def published_lines(rows: Sequence[PublishedRow]) -> Iterator[str]:
    """Yield the table of all rows, times, rank correlations and what was missed."""
    if not rows:
        yield "No rows."
        return
    yield aligned(("", "truth", "parameters", "data", "both"), 28, 15, 16, 16, 6)
    side = ("p", "dist", "bound")
    others = ("p", "SBC", "TARP", "LC2ST")
    yield aligned(("posterior", "C2ST", "widths", *side, *side, *others), *_WIDTHS)
    rows = sorted(rows, key=lambda row: (row.run.seed, -row.c2st))
    yield from map(_line, rows)
    yield "Widths: smallest and largest ratio of standard deviations, posterior over"
    yield "truth, of any parameter; a few draws far away make it large. LC2ST: share of"
    yield "ten observations that are rejected at level 0.05. 0+: below 0.001."
    for part in (_times, _correlations, _missed):
        yield ""
        yield from part(rows)


def _line(row: PublishedRow) -> str:
    texts = [
        row.run.posterior.label,
        f"{row.c2st:.2f}",
        f"{_ratio(row.narrowest)}-{_ratio(row.widest)}",
    ]
    for p, distance, bound in (
        (row.colt_p, row.colt_distance, row.colt_lower),
        (row.predictive_p, row.predictive_distance, row.predictive_lower),
    ):
        texts += [_p(p), f"{distance:.2f}", f"{bound:.2f}"]
    texts += [_p(row.p_value), _p(row.sbc_p), _p(row.tarp_p)]
    return aligned([*texts, _or_dash(row.lc2st_share)], *_WIDTHS)


def _ratio(value: float) -> str:
    """Return a ratio of widths in at most four characters, below 1000."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.0f}"


def _p(value: float) -> str:
    """Return a p-value in at most four characters."""
    if math.isnan(value):
        return "-"
    if value < 0.001:
        return "0+"
    return f"{value:.3f}"[1:] if value < 0.01 else f"{value:.2f}"


def _or_dash(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"


def _times(rows: Sequence[PublishedRow]) -> Iterator[str]:
    yield "Seconds, mean over posteriors (the sides with simulations and draws):"
    names = ("train", "parameter", "data", "sbc", "tarp", "lc2st")
    heads = ("", "training", "parameters", "data", "SBC", "TARP", "L-C2ST")
    yield aligned(heads, 10, 12)
    for estimator in sorted({row.run.posterior.estimator for row in rows}):
        own = [row for row in rows if row.run.posterior.estimator == estimator]
        means = [
            fmean(getattr(row, f"{name}_seconds") for row in own) for name in names
        ]
        yield aligned([estimator, *map(_or_dash, means)], 10, 12)


def _correlations(rows: Sequence[PublishedRow]) -> Iterator[str]:
    """Yield rank correlations with C2ST, the mean over the seeds."""
    sizes: dict[str, Callable[[PublishedRow], tuple[float, ...]]] = {
        "headline distance": lambda row: (row.distance_lower, row.distance),
        "parameter side": lambda row: (row.colt_lower, row.colt_distance),
        "data side": lambda row: (row.predictive_lower, row.predictive_distance),
        "SBC, by p": lambda row: (-row.sbc_p,),
        "TARP, by p": lambda row: (-row.tarp_p,),
        "L-C2ST, by share": lambda row: (row.lc2st_share,),
    }
    seeds = sorted({row.run.seed for row in rows})
    budget = f"budget {rows[0].run.budget} (distances by bound, ties by estimate):"
    yield f"Spearman's rank correlation with C2ST, {budget}"
    for name, size in sizes.items():
        found = [
            rank_correlation([(r.c2st, size(r)) for r in rows if r.run.seed == seed])
            for seed in seeds
        ]
        num = sum(not math.isnan(size(row)[0]) for row in rows) // len(seeds)
        yield f"  {name:<20}{fmean(found):>6.2f}   {num} posteriors"


def rank_correlation(pairs: Sequence[tuple[float, tuple[float, ...]]]) -> float:
    """Return Spearman's correlation of truths with tuples of sizes.

    Tuples are compared by their first entries, and where these are equal by the next.
    Those with NaN are left out.
    """
    pairs = [pair for pair in pairs if not any(map(math.isnan, pair[1]))]
    if len(pairs) < 3:
        return math.nan
    order = {size: rank for rank, size in enumerate(sorted({p[1] for p in pairs}))}
    truths, sizes = zip(*((truth, order[size]) for truth, size in pairs), strict=True)
    if len(set(truths)) == 1 or len(order) == 1:
        return math.nan
    result: Any = spearmanr(truths, sizes)
    return float(result.statistic)


def _missed(rows: Sequence[PublishedRow]) -> Iterator[str]:
    wrong = [row for row in rows if row.c2st > _USELESS]
    missed = [row for row in wrong if not row.p_value <= _LEVEL]
    yield (
        f"Not rejected at level {_LEVEL}, of {len(wrong)} with C2ST > {_USELESS}: "
        f"{len(missed)}"
    )
    for row in missed:
        numbers = f"C2ST {row.c2st:.2f}, p {row.p_value:.3f}"
        yield f"  {row.run.posterior.label}, seed {row.run.seed}: {numbers}"
