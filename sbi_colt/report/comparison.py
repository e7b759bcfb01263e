"""The report on several posteriors that were tested on the same pairs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes

from sbi_colt.files import write_text
from sbi_colt.report.comparison_text import comparison_summary
from sbi_colt.report.diagnostic import DiagnosticReport
from sbi_colt.report.figures import plot_comparison
from sbi_colt.report.html import comparison_body, comparison_page
from sbi_colt.stats.combine import holm
from sbi_colt.stats.intervals import distance_margin

__all__ = ["ComparisonReport"]


@dataclass(frozen=True, eq=False)
class ComparisonReport:
    """What the methods say about several posteriors, on the same pairs.

    ``comparison["npe"]`` is the `DiagnosticReport` of one of them.

    Args:
        reports: Report of each posterior by its name, the smallest distance first.
        closer: For each side (``"colt"``, ``"predictive"``) and each ordered pair of
            names, the p-value of "the first is closer"
            (`sbi_colt.stats.paired.closer_p_value`). Null hypothesis: the first
            posterior deviates, in one of its probes' regions, by at least as much as
            the second does in the worst region that training chose for it. Sample
            size: the test pairs. ``adjusted`` has Holm's adjusted p-values over all
            sides and ordered pairs of names.
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
    closer: Mapping[tuple[str, str, str], float]
    level: float
    adjusted: Mapping[tuple[str, str, str], float] = field(init=False)

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

    @property
    def sides(self) -> list[str]:
        """The sides on which posteriors were compared."""
        return list(dict.fromkeys(side for side, _, _ in self.closer))

    def interval(self, name: str) -> tuple[float, float]:
        """Return the confidence interval of a posterior's distance.

        The distance is that of its leading side. The interval is that of the largest
        deviation of the probes trained for this posterior, by the inequality of
        Dvoretzky, Kiefer, Wolfowitz and Massart, with the error probability split
        between the sides. Its lower end bounds the distance itself;
        its upper end does not, as other probes might see more.
        """
        report = self[name]
        side = report.sides[report.leading_side or ""]
        confidence = 1 - (1 - side.config.confidence) / len(report.sides)
        margin = distance_margin(side.num_test, len(side.probes), confidence)
        return report.distance_lower or 0.0, min(1.0, side.distance + margin)

    @property
    def confidence(self) -> float:
        """Confidence of each interval."""
        report = next(iter(self.reports.values()))
        return report.sides[report.leading_side or ""].config.confidence

    def summary(self) -> str:
        """Return the comparison as text, at most 80 columns wide."""
        return comparison_summary(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the distances with their intervals.

        Without ``ax`` a new figure is made, which pyplot does not keep. A notebook
        shows ``comparison.plot().figure`` where it is the last value of a cell.
        """
        distances = {
            name: (report.distance or 0.0, *self.interval(name), report.rejected)
            for name, report in self.reports.items()
        }
        return plot_comparison(distances, ax)

    def to_html(self, path: str | os.PathLike) -> None:
        """Write the comparison as one self-contained HTML file."""
        write_text(path, comparison_page(self))

    def _repr_html_(self) -> str:
        """Return the tables and the sentences for a notebook."""
        return comparison_body(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison's numbers, ready for JSON."""
        return {
            "ranking": list(self.reports),
            "distance_interval": {name: list(self.interval(name)) for name in self},
            "closer": [
                {
                    "side": side,
                    "first": first,
                    "second": second,
                    "p_value": p_value,
                    "adjusted_p_value": self.adjusted[side, first, second],
                }
                for (side, first, second), p_value in self.closer.items()
            ],
            "level": self.level,
            "reports": {
                name: report.to_dict() for name, report in self.reports.items()
            },
        }
