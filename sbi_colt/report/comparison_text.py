"""Sentences and tables of a comparison of several posteriors."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sbi_colt.report.text import SIDES, WIDTH, explain_distance, percent

if TYPE_CHECKING:
    from sbi_colt.report.comparison import ComparisonReport

__all__ = [
    "comparison_headline",
    "comparison_notes",
    "comparison_summary",
    "comparison_tables",
]

_NAME = 18  # columns of a posterior's name in a comparison
_CELL = 12  # columns of a method's p-value there


def comparison_headline(comparison: ComparisonReport) -> str:
    """Return what the comparison lists, and in which order."""
    return f"{len(comparison)} posteriors, the smallest distance first"


def comparison_summary(comparison: ComparisonReport) -> str:
    """Return a comparison as text, at most 80 columns wide."""
    rule = "-" * WIDTH
    distances, methods = comparison_tables(comparison)
    *pairs, distance, closer, levels = (
        textwrap.fill(text, WIDTH) for text in comparison_notes(comparison)
    )
    lines = (_line(row, (10, 14, 12, 10, 15)) for row in distances)
    table = "\n".join([comparison_headline(comparison), rule, *lines, rule])
    parts = [table, "\n".join(_blocks(methods)), "\n".join(pairs)]
    return "\n\n".join([*parts, distance, closer, levels])


def comparison_tables(
    comparison: ComparisonReport,
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the table of distances and that of all methods, their headers first."""
    interval = f"{comparison.confidence:.0%} interval"
    distances: list[tuple[str, ...]] = [
        ("posterior", "distance", interval, "side", "p-value", "verdict")
    ]
    methods: list[tuple[str, ...]] = [
        ("p-value", *next(iter(comparison.reports.values())))
    ]
    for name, report in comparison.reports.items():
        low, high = comparison.interval(name)
        distances.append(
            (
                name,
                f"{report.distance or 0:.3f}",
                f"{low:.3f}-{high:.3f}",
                SIDES[report.leading_side or "colt"],
                f"{report.p_value:.2g}",
                "rejected" if report.rejected else "not rejected",
            )
        )
        methods.append((name, *(f"{r.p_value:.2g}" for r in report.results.values())))
    return distances, methods


def comparison_notes(comparison: ComparisonReport) -> Iterator[str]:
    """Yield a sentence for each two posteriors and each side, then three notes."""
    names = list(comparison.reports)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            yield " ".join(
                _closer(comparison, side, first, second) for side in comparison.sides
            )
    sides = comparison.sides
    text = explain_distance(sides)
    if len(sides) > 1:
        text += " The side with the larger certified distance is shown."
    yield f"{text} An error that no probe found does not count."
    yield (
        '"a is closer than b" means: in none of the regions of its probes is a off by '
        "as much as b is in the worst region that was chosen for b on the training "
        "pairs. The p-value is that of paired t-tests on the test pairs, adjusted for "
        "the number of comparisons."
    )
    of = "both sides" if len(sides) > 1 else f"the side of {SIDES[sides[0]]}"
    yield (
        "Each verdict is about one posterior, at the "
        f"{percent(comparison.level)} level, by one p-value of {of}."
    )


def _closer(comparison: ComparisonReport, side: str, first: str, second: str) -> str:
    """Return whether one of two posteriors is closer on a side."""
    place = f"On the side of {SIDES[side]}, "
    p_values = {
        (a, b): comparison.adjusted[side, a, b]
        for a, b in ((first, second), (second, first))
    }
    (a, b), p_value = min(p_values.items(), key=lambda item: item[1])
    if p_value <= comparison.level:
        return f"{place}{a} is closer than {b} (p = {p_value:.2g})."
    return f"{place}{first} and {second} cannot be told apart (p = {p_value:.2g})."


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths, strict=True))
    return f"{row[0][: _NAME - 1]:<{_NAME}}{''.join(cells)}".rstrip()


def _blocks(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table; columns that do not fit continue below."""
    size = (WIDTH - _NAME) // _CELL
    for start in range(1, len(rows[0]), size):
        for name, *cells in rows:
            shown = [cell[: _CELL - 1] for cell in cells[start - 1 : start - 1 + size]]
            yield _line((name, *shown), (_CELL,) * len(shown))
