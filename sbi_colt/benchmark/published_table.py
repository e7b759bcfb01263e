"""The results on the published problems as a table, and how they agree with the truth.

A good distance ranks posteriors as their true errors do; a good verdict rejects each
posterior whose error is large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from scipy.stats import spearmanr

from sbi_colt.benchmark.grid.published import PublishedRow

__all__ = ["posterior_name", "published_lines", "rank_correlation"]

_LEVEL = 0.05
_USELESS = 0.7  # a posterior with a larger C2ST must be rejected


def published_lines(rows: Sequence[PublishedRow]) -> Iterator[str]:
    """Yield the table of all rows, times, rank correlations and what was missed."""
    if not rows:
        yield "No rows."
        return
    yield f"{'':<28}{'truth':>15}{'parameters':>16}{'data':>16}{'both':>6}"
    side = f"{'p':>5}{'dist':>5}{'bound':>6}"
    yield (
        f"{'posterior':<28}{'C2ST':>5}{'widths':>10}{side}{side}"
        f"{'p':>6}{'SBC':>6}{'TARP':>6}{'LC2ST':>6}"
    )
    rows = sorted(rows, key=lambda row: (row.seed, -row.c2st))
    yield from map(_line, rows)
    yield "Widths: smallest and largest ratio of standard deviations, posterior over"
    yield "truth, of any parameter; a few draws far away make it large. LC2ST: share of"
    yield "ten observations that are rejected at level 0.05. 0+: below 0.001."
    yield ""
    yield from _times(rows)
    yield ""
    yield from _correlations(rows)
    yield ""
    yield from _missed(rows)


def posterior_name(which: Any) -> str:
    """Return the name of a row or of a trained posterior, as ``slcp npe-maf 10k``."""
    return f"{which.task} {which.estimator} {which.num_simulations // 1000}k"


def _line(row: PublishedRow) -> str:
    widths = f"{_ratio(row.narrowest)}-{_ratio(row.widest)}"
    sides = "".join(
        f" {_p(p):>4}{distance:>5.2f}{bound:>6.2f}"
        for p, distance, bound in (
            (row.colt_p, row.colt_distance, row.colt_lower),
            (row.predictive_p, row.predictive_distance, row.predictive_lower),
        )
    )
    share = "-" if math.isnan(row.lc2st_share) else f"{row.lc2st_share:.1f}"
    name = posterior_name(row)
    return (
        f"{name:<28}{row.c2st:>5.2f}{widths:>10}{sides} {_p(row.p_value):>5}"
        f"{_p(row.sbc_p):>6}{_p(row.tarp_p):>6}{share:>6}"
    )


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


def _times(rows: Sequence[PublishedRow]) -> Iterator[str]:
    yield "Seconds, mean over posteriors (the sides with simulations and draws):"
    heads = ("training", "parameters", "data", "SBC", "TARP", "L-C2ST")
    yield f"{'':<10}" + "".join(f"{head:>12}" for head in heads)
    for estimator in sorted({row.estimator for row in rows}):
        own = [row for row in rows if row.estimator == estimator]
        means = [
            fmean(getattr(row, f"{name}_seconds") for row in own)
            for name in ("train", "parameter", "data", "sbc", "tarp", "lc2st")
        ]
        shown = ("-" if math.isnan(mean) else f"{mean:.1f}" for mean in means)
        yield f"{estimator:<10}" + "".join(f"{text:>12}" for text in shown)


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
    seeds = sorted({row.seed for row in rows})
    yield (
        f"Spearman's rank correlation with C2ST, budget {rows[0].budget} (distances by "
        "bound, ties by estimate):"
    )
    for name, size in sizes.items():
        found = [
            rank_correlation(
                [(row.c2st, size(row)) for row in rows if row.seed == seed]
            )
            for seed in seeds
        ]
        num = sum(not math.isnan(size(row)[0]) for row in rows) // len(seeds)
        yield f"  {name:<20}{fmean(found):>6.2f}   {num} posteriors"


def rank_correlation(pairs: Sequence[tuple[float, tuple[float, ...]]]) -> float:
    """Return Spearman's correlation of truths with sizes that are compared in turn.

    Args:
        pairs: A truth and a tuple for each posterior. Tuples are compared by their
            first entries, and where these are equal by the next. Those with NaN are
            left out.
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
        yield f"  {posterior_name(row)}, seed {row.seed}: {numbers}"
