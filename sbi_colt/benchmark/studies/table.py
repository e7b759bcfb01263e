"""``table``: power of every task in a file of ``sbi-colt benchmark run``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from sbi_colt.benchmark.claims import (
    Claim,
    alarm_counts,
    claim_lines,
    false_alarms,
    powers,
)
from sbi_colt.benchmark.grid.cells import EXACT
from sbi_colt.benchmark.grid.rows import Row, read_rows
from sbi_colt.benchmark.studies.options import show
from sbi_colt.benchmark.tables import Entry, Key, summarise, table_lines
from sbi_colt.benchmark.tasks.settings import SETTINGS

__all__ = ["add_options", "run", "table_claims"]

DESCRIPTION = (
    "Print the power in a file of sbi-colt benchmark run, with standard errors. A "
    "number that the paper reports stands below ours, and a star marks ours if the two "
    "differ by more than two standard errors. The claims of the results page are "
    "checked below the tables."
)
_EXACT_METHODS = ("default", "sbc", "tarp")  # exact p-values


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("results", type=Path, help="the CSV file")


def run(options: argparse.Namespace) -> int:
    """Print the tables, and whether the claims about them hold."""
    rows = read_rows(options.results)
    show(table_lines(rows))
    return show(claim_lines(table_claims(rows)))


def table_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims about those tasks that the rows have."""
    entries = summarise(rows)
    return [
        *_level_claims(entries),
        *_power_claims(entries),
        *_diffusion_claims(entries),
        *_trained_claims(entries),
    ]


def _level_claims(entries: dict[Key, Entry]) -> Iterable[Claim]:
    for method in _EXACT_METHODS:
        nulls = {k: e for k, e in entries.items() if k[3] == 0 and k[4] == method}
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


def _power_claims(entries: dict[Key, Entry]) -> Iterable[Claim]:
    for task, method, text, least, most, alphas in (
        ("blind", "default", "The default finds the blind prior", 0.98, 1.0, None),
        ("tree", "default", "The default finds the tree's blur", 0.9, 1.0, None),
        ("tree", "c2st", "C2ST misses the tree's smallest blur", 0.0, 0.2, (0.5,)),
    ):
        own = {
            key: entry
            for key, entry in entries.items()
            if (key[0], key[4]) == (task, method)
            and (key[3] in alphas if alphas else key[3] > 0)
        }
        if own:
            yield powers(f"{text} (power {least:g} to {most:g})", own, least, most)


def _diffusion_claims(entries: dict[Key, Entry]) -> Iterable[Claim]:
    curve = sorted(
        (key[3], entry.statistic)
        for key, entry in entries.items()
        if (key[0], key[4]) == ("diffusion", "default")
    )
    if len(curve) > 1:
        against = tuple(
            f"{later:.3f} at {beta:g} is below {now:.3f} at {alpha:g}"
            for (alpha, now), (beta, later) in pairwise(curve)
            if later < now
        )
        yield Claim(
            "The default's statistic rises with the diffusion's missing steps", against
        )


def _trained_claims(entries: dict[Key, Entry]) -> Iterable[Claim]:
    for method, name in (("default", "CoLT's distance"), (EXACT, "C2ST's accuracy")):
        against = []
        checked = False
        for task, setting in SETTINGS.items():
            curve = sorted(
                (key[3], entry.statistic)
                for key, entry in entries.items()
                if setting.is_trained and (key[0], key[4]) == (task, method) and key[3]
            )
            if len(curve) > 1:
                checked = True
                (few, most), (many, least) = curve[0], curve[-1]
                if least >= most:
                    against.append(
                        f"{task} has {most:.3f} with {few:g} simulations and "
                        f"{least:.3f} with {many:g}"
                    )
        if checked:
            text = f"{name} falls from the fewest to the most training simulations"
            yield Claim(text, tuple(against))
