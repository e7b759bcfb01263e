"""Several posteriors on the same simulations, ranked by how wrong they are."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from sbi_colt.report.diagnostic import DiagnosticReport
from sbi_colt.report.figures import plot_comparison
from sbi_colt.report.html import embed_figure, make_page, make_table
from sbi_colt.report.text import percent
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.stats.combine import holm
from sbi_colt.stats.intervals import distance_margin

__all__ = ["ComparisonReport"]

_WIDTH = 80
_NAME = 18  # columns of a posterior's name in text


@dataclass(frozen=True, eq=False)
class ComparisonReport:
    """What the diagnostics say of several posteriors, on the same pairs.

    ``comparison["npe"]`` is the `DiagnosticReport` of one of them.

    Args:
        reports: Report of each posterior by its name, the closest first.
        closer: For each ordered pair of names, the p-value of "the first is closer":
            null hypothesis, that its largest deviation is no smaller than the second's
            (`sbi_colt.stats.paired.closer_p_value`). Sample size: the test pairs.
        level: Level of every verdict.

    Example:
        >>> import torch
        >>> from sbi_colt import compare
        >>> def uniform(shift):
        ...     return lambda xs, num: shift + torch.rand(num, len(xs), 1)
        >>> comparison = compare(
        ...     {"near": uniform(0.2), "far": uniform(2.0)},
        ...     thetas=torch.rand(60, 1),
        ...     xs=torch.rand(60, 1),
        ...     num_posterior_samples=20,
        ...     methods=("colt",),
        ...     seed=0,
        ...     show_progress_bar=False,
        ... )
        >>> list(comparison.reports)
        ['near', 'far']
        >>> comparison["far"].rejected
        True
    """

    reports: Mapping[str, DiagnosticReport]
    closer: Mapping[tuple[str, str], float]
    level: float
    adjusted: Mapping[tuple[str, str], float] = field(init=False)

    def __post_init__(self):
        adjusted = holm(list(self.closer.values()))
        object.__setattr__(
            self, "adjusted", dict(zip(self.closer, adjusted, strict=True))
        )

    def __getitem__(self, name: str) -> DiagnosticReport:
        if name not in self.reports:
            raise KeyError(
                f"{name!r} is not in this comparison; it has "
                f"{', '.join(map(repr, self.reports))}."
            )
        return self.reports[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.reports)

    def __len__(self) -> int:
        return len(self.reports)

    def __str__(self) -> str:
        return self.summary()

    def interval(self, name: str) -> tuple[float, float]:
        """Return the confidence interval of a posterior's distance.

        It is that of the largest deviation of the probes trained for this posterior, by
        the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart. Its lower end bounds
        the distance itself; its upper end does not, as other probes might see more.
        """
        result = _colt(self[name])
        margin = distance_margin(
            result.num_test, len(result.probes), result.config.confidence
        )
        return result.distance_lower, min(1.0, result.distance + margin)

    def summary(self) -> str:
        """Return the comparison as text, at most 80 columns wide."""
        rule = "-" * _WIDTH
        rows = [self._header(), *self._rows()]
        methods = [self._method_header(), *self._method_rows()]
        *pairs, note = (textwrap.fill(text, _WIDTH) for text in self._sentences())
        return "\n".join(
            [
                self._headline(),
                rule,
                *(_line(row, (10, 14, 10, 10, 15)) for row in rows),
                rule,
                "",
                *_blocks(methods),
                "",
                *pairs,
                "",
                note,
            ]
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the distances with their intervals."""
        return plot_comparison(self._distances(), ax)

    def to_html(self, path: str | os.PathLike) -> None:
        """Write the comparison as one self-contained HTML file."""
        figure = self.plot().get_figure(root=True)
        assert figure is not None
        page = make_page(
            "Posteriors compared",
            self._headline(),
            all(report.rejected for report in self.reports.values()),
            [self._html_body(), embed_figure(figure, "distances with intervals")],
            f"sbi_colt; seed {next(iter(self.reports.values())).seed}",
        )
        Path(path).write_text(page, encoding="utf-8")

    def _repr_html_(self) -> str:
        """Return the tables and the sentences for a notebook."""
        return f"<p><strong>{escape(self._headline())}</strong></p>{self._html_body()}"

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison's numbers, ready for JSON."""
        return {
            "ranking": list(self.reports),
            "distance_interval": {name: list(self.interval(name)) for name in self},
            "closer": [
                {
                    "first": first,
                    "second": second,
                    "p_value": p_value,
                    "adjusted_p_value": self.adjusted[first, second],
                }
                for (first, second), p_value in self.closer.items()
            ],
            "level": self.level,
            "reports": {
                name: report.to_dict() for name, report in self.reports.items()
            },
        }

    def _headline(self) -> str:
        return f"{len(self)} posteriors, the closest first"

    def _distances(self) -> dict[str, tuple[float, float, float, bool]]:
        return {
            name: (
                _colt(report).distance,
                *self.interval(name),
                report.rejected,
            )
            for name, report in self.reports.items()
        }

    def _header(self) -> tuple[str, ...]:
        confidence = _colt(next(iter(self.reports.values()))).config.confidence
        return (
            "posterior",
            "distance",
            f"{confidence:.0%} interval",
            "colt p",
            "adjusted",
            "verdict",
        )

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                name,
                f"{distance:.3f}",
                f"{low:.3f}-{high:.3f}",
                f"{_colt(self[name]).p_value:.2g}",
                f"{self[name].adjusted['colt']:.2g}",
                "rejected" if rejected else "not rejected",
            )
            for name, (distance, low, high, rejected) in self._distances().items()
        ]

    def _method_header(self) -> tuple[str, ...]:
        return ("adjusted p-value", *next(iter(self.reports.values())))

    def _method_rows(self) -> list[tuple[str, ...]]:
        return [
            (name, *(f"{p_value:.2g}" for p_value in report.adjusted.values()))
            for name, report in self.reports.items()
        ]

    def _html_body(self) -> str:
        tables = "".join(
            f'<div class="scroll">{make_table(header, rows)}</div>'
            for header, rows in (
                (self._header(), self._rows()),
                (self._method_header(), self._method_rows()),
            )
        )
        return tables + "".join(f"<p>{escape(s)}</p>" for s in self._sentences())

    def _sentences(self) -> Iterator[str]:
        names = list(self.reports)
        for i, first in enumerate(names):
            for second in names[i + 1 :]:
                p_value = self.adjusted[first, second]
                yield (
                    f"{first} is closer than {second} (p = {p_value:.2g}), as far as "
                    "the probes see."
                    if p_value <= self.level
                    else f"{first} and {second} cannot be told apart at this budget "
                    f"(p = {p_value:.2g})."
                )
        yield (
            f"Each verdict is about one posterior, at the {percent(self.level)} level, "
            "with Holm's adjustment over its methods; p-values of pairs are adjusted "
            "over all pairs. Distances, their intervals and what is closer are about "
            "the largest deviation that the probes found for each posterior: an error "
            "that no probe found does not count, so look at the other methods too."
        )


def _colt(report: DiagnosticReport) -> CoLTResult:
    assert report.colt is not None
    return report.colt


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths, strict=True))
    return f"{row[0][: _NAME - 1]:<{_NAME}}{''.join(cells)}".rstrip()


def _blocks(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield lines of a table whose columns go on below where they are too many."""
    size = (_WIDTH - _NAME) // 10
    for start in range(1, len(rows[0]), size):
        for name, *cells in rows:
            shown = [cell[:9] for cell in cells[start - 1 : start - 1 + size]]
            yield _line((name, *shown), (10,) * len(shown))
