"""Print the power in a file of sbi-colt benchmark run, with standard errors.

A number that the paper reports stands below ours, and a star marks ours if the two
differ by more than two standard errors. The claims of the results page are checked
below the tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from sbi_colt.benchmark.claims import (
    Claim,
    alarm_counts,
    claim_lines,
    false_alarms,
    powers,
)
from sbi_colt.benchmark.grid.rows import EXACT, Row, read_rows
from sbi_colt.benchmark.studies.shared import RESULTS
from sbi_colt.benchmark.tables import Entries, only, summarise, table_lines
from sbi_colt.benchmark.tasks.settings import SETTINGS

OPTIONS = RESULTS


def run(options: argparse.Namespace) -> Iterator[str]:
    """Yield the tables, and whether the claims about them hold."""
    rows = read_rows(options.results)
    yield from table_lines(rows)
    yield from claim_lines(table_claims(rows))


def table_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims about those tasks that the rows have."""
    entries = summarise(rows)
    ours = only(entries, method="default", where=lambda key: key.alpha > 0)
    blind, tree = only(ours, "blind"), only(ours, "tree")
    blur = only(entries, "tree", "c2st", lambda key: key.alpha == 0.5)
    return [
        *_level_claims(entries),
        *powers("The default finds the blind prior (power 0.98 to 1)", blind, 0.98),
        *powers("The default finds the tree's blur (power 0.9 to 1)", tree, 0.9),
        *powers("C2ST misses the tree's smallest blur (power 0 to 0.2)", blur, 0, 0.2),
        *_diffusion_claims(entries),
        *_trained_claims(entries),
    ]


def _level_claims(entries: Entries) -> Iterable[Claim]:
    for method in ("default", "sbc", "tarp"):  # exact p-values
        nulls = only(entries, method=method, where=lambda key: key.alpha == 0)
        if not nulls:
            continue
        counts = alarm_counts(nulls)
        count, trials = (sum(column) for column in zip(*counts.values(), strict=True))
        yield false_alarms(
            f"False alarms of {method}, over all cells without an error, are within "
            "the 99% band of 0.05",
            {method: (count, trials)},
        )
        yield false_alarms(
            f"False alarms of {method} are within the band of 0.05 in each cell "
            "without an error (99% for all cells together, by Bonferroni)",
            counts,
            band=1 - 0.01 / len(counts),
        )


def _statistics(entries: Entries, task: str, method: str) -> list[tuple[float, float]]:
    own = only(entries, task, method)
    return sorted((key.alpha, entry.statistic) for key, entry in own.items())


def _diffusion_claims(entries: Entries) -> Iterable[Claim]:
    curve = _statistics(entries, "diffusion", "default")
    if len(curve) > 1:
        against = tuple(
            f"{later:.3f} at {beta:g} is below {now:.3f} at {alpha:g}"
            for (alpha, now), (beta, later) in pairwise(curve)
            if later < now
        )
        text = "The default's statistic rises with the diffusion's missing steps"
        yield Claim(text, against)


def _trained_claims(entries: Entries) -> Iterable[Claim]:
    trained = [name for name, setting in SETTINGS.items() if setting.is_trained]
    for method, name in (("default", "CoLT's distance"), (EXACT, "C2ST's accuracy")):
        curves = {
            task: [point for point in _statistics(entries, task, method) if point[0]]
            for task in trained
        }
        ends = {t: (curve[0], curve[-1]) for t, curve in curves.items() if curve[1:]}
        against = tuple(
            f"{task} has {most:.3f} with {few:g} simulations and {least:.3f} with "
            f"{many:g}"
            for task, ((few, most), (many, least)) in ends.items()
            if least >= most
        )
        if ends:
            text = f"{name} falls from the fewest to the most training simulations"
            yield Claim(text, against)
