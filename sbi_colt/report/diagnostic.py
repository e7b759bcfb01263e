"""The report: every method's numbers, and what they mean in words."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from torch import Tensor, nn

from sbi_colt.files import load_file, save_file
from sbi_colt.report.figures import panels, plot_report
from sbi_colt.report.findings import Finding
from sbi_colt.report.html import embed_figure, make_page, make_table
from sbi_colt.report.storage import pack_result, unpack_result
from sbi_colt.report.text import advise, describe_all, describe_trend, percent
from sbi_colt.report.trends import Trend
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.results.test_result import TestResult
from sbi_colt.stats.combine import holm

__all__ = ["Cost", "DiagnosticReport"]

_FORMAT = "sbi_colt.DiagnosticReport/1"
_WIDTH = 80
_HEADER = ("method", "verdict", "adjusted", "p-value", "statistic")


@dataclass(frozen=True)
class Cost:
    """What a report cost: pairs, draws per x, and seconds by step."""

    num_simulations: int
    num_posterior_samples: int
    seconds: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class DiagnosticReport:
    """What several diagnostics say of one posterior, on the same draws.

    ``report["colt"]``, ``report["sbc"]``, … are the methods' own results.

    Null hypothesis of every p-value: q(θ | x) = p(θ | x) for almost every x. The
    verdict goes by Holm's adjusted p-values (``adjusted``): with the methods' p-values
    in order, p_(1) ≤ … ≤ p_(M), they are max_{j ≤ i} min(1, (M − j + 1) p_(j)), and the
    chance of any false alarm is at most ``level``.

    Args:
        results: Result of each method by its name.
        level: Family-wise level of the verdict.
        findings: What is wrong, by the rules of `sbi_colt.report.findings`.
        trend: How the error changes with x, where something is rejected.
        names: Names of the parameters.
        cost: What it cost.
        seed: The seed.
        x_shape: The shape of one x.

    Example:
        >>> import torch
        >>> from sbi_colt import diagnose
        >>> thetas, xs = torch.rand(60, 1), torch.rand(60, 1)
        >>> def q(xs, num):
        ...     return 1 + torch.rand(num, len(xs), 1)
        >>> report = diagnose(
        ...     q,
        ...     thetas=thetas,
        ...     xs=xs,
        ...     num_posterior_samples=20,
        ...     methods=("sbc",),
        ...     seed=0,
        ...     show_progress_bar=False,
        ... )
        >>> print(report.summary().splitlines()[0])
        The posterior is REJECTED at the 5% level
        >>> report.to_dict()["level"]
        0.05
    """

    results: Mapping[str, TestResult | CoLTResult]
    level: float
    findings: tuple[Finding, ...]
    trend: Trend | None
    names: tuple[str, ...]
    cost: Cost
    seed: int
    x_shape: tuple[int, ...]
    adjusted: Mapping[str, float] = field(init=False)

    def __post_init__(self):
        adjusted = holm([result.p_value for result in self.results.values()])
        object.__setattr__(
            self, "adjusted", dict(zip(self.results, adjusted, strict=True))
        )

    def __getitem__(self, name: str) -> Any:
        if name not in self.results:
            raise KeyError(
                f"{name!r} is not in this report; it has {', '.join(self.results)}."
            )
        return self.results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    @property
    def colt(self) -> CoLTResult | None:
        """CoLT's result, where it is among the methods."""
        result = self.results.get("colt")
        return result if isinstance(result, CoLTResult) else None

    @property
    def rejected(self) -> bool:
        """Whether any method rejects, at a family-wise level."""
        return min(self.adjusted.values()) <= self.level

    @property
    def detectable(self) -> float | None:
        """The smallest distance that a perfect probe finds with a power of about 80%.

        The critical value of P probes' statistics (Massart's bound) at the level of the
        first of Holm's steps, and the standard error of the empirical distribution, for
        the number of test pairs. Smaller errors may stay unseen; larger ones are
        found if training finds a ball that fits them.
        """
        if self.colt is None:
            return None
        probes, n = len(self.colt.probes), self.colt.num_test
        level = self.level / len(self.results)
        critical = math.sqrt(math.log(2 * probes / level) / 2)
        return min(1.0, (critical + 0.84 * 0.5) / math.sqrt(n))

    def __str__(self) -> str:
        return self.summary()

    def summary(self, width: int = _WIDTH) -> str:
        """Return the report as text.

        Args:
            width: Columns, at least 39.
        """
        sentences = (textwrap.fill(text, width) for text in self._sentences())
        return "\n\n".join([self._table(width), *sentences])

    def plot(self) -> Figure:
        """Return one figure: ranks, localization, discrepancy over x, training."""
        return plot_report(self.results, self.names, self.level)

    def to_html(self, path: str | os.PathLike) -> None:
        """Write the report as one self-contained HTML file."""
        page = make_page(
            "Posterior diagnostics",
            self._headline(),
            self.rejected,
            [
                self._html_body(),
                '<div class="figures">',
                *self._html_figures(),
                "</div>",
            ],
            f"sbi_colt; seed {self.seed}",
        )
        Path(path).write_text(page, encoding="utf-8")

    def save(self, path: str | os.PathLike) -> None:
        """Write the report to a file: tensors and JSON, no pickled objects."""
        header = {
            "format": _FORMAT,
            "level": self.level,
            "findings": [vars(finding) for finding in self.findings],
            "trend": None if self.trend is None else vars(self.trend),
            "names": list(self.names),
            "cost": {**vars(self.cost), "seconds": dict(self.cost.seconds)},
            "seed": self.seed,
            "x_shape": list(self.x_shape),
            "results": {},
        }
        tensors: dict[str, Tensor] = {}
        for name, result in self.results.items():
            header["results"][name], own = pack_result(result)
            tensors |= {f"{name}/{key}": value for key, value in own.items()}
        save_file(path, header, tensors)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        *,
        embedding_net: nn.Module | None = None,
        embedding: nn.Module | Callable[[Tensor], Tensor] | None = None,
    ) -> DiagnosticReport:
        """Read a report from a file; it prints and plots as before.

        Args:
            path: The file that `save` wrote.
            embedding_net: The embedding net of CoLT's configuration, if it had one.
            embedding: The φ of CoLT's configuration, if it had one.
        """
        header, tensors = load_file(path, _FORMAT)
        results = {
            name: unpack_result(
                own,
                {
                    key.removeprefix(f"{name}/"): value
                    for key, value in tensors.items()
                    if key.startswith(f"{name}/")
                },
                embedding_net,
                embedding,
            )
            for name, own in header["results"].items()
        }
        return cls(
            results=results,
            level=header["level"],
            findings=tuple(Finding(**plain) for plain in header["findings"]),
            trend=None if header["trend"] is None else Trend(**header["trend"]),
            names=tuple(header["names"]),
            cost=Cost(**header["cost"]),
            seed=header["seed"],
            x_shape=tuple(header["x_shape"]),
        )

    def _repr_html_(self) -> str:
        """Return the table and the sentences for a notebook."""
        return f"<p><strong>{escape(self._headline())}</strong></p>{self._html_body()}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report's numbers, ready for JSON."""
        return {
            "rejected": self.rejected,
            "level": self.level,
            "methods": {
                name: {
                    "p_value": result.p_value,
                    "adjusted_p_value": self.adjusted[name],
                    "statistic": _finite(result.statistic),
                    **_numbers(result),
                }
                for name, result in self.results.items()
            },
            "findings": [
                {**vars(finding), "size": _finite(finding.size)}
                for finding in self.findings
            ],
            "trend": None if self.trend is None else vars(self.trend),
            "parameters": list(self.names),
            "detectable_distance": self.detectable,
            "cost": {
                "num_simulations": self.cost.num_simulations,
                "num_posterior_samples": self.cost.num_posterior_samples,
                "seconds": dict(self.cost.seconds),
            },
            "seed": self.seed,
        }

    def _headline(self) -> str:
        verdict = "REJECTED" if self.rejected else "not rejected"
        return f"The posterior is {verdict} at the {percent(self.level)} level"

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        return [
            (
                name,
                "rejected" if self.adjusted[name] <= self.level else "not rejected",
                f"{self.adjusted[name]:.2g}",
                f"{result.p_value:.2g}",
                _statistic_text(result.statistic),
            )
            for name, result in self.results.items()
        ]

    def _table(self, width: int) -> str:
        rule = "-" * width
        columns = 5 if width >= _WIDTH else 3  # a narrow one leaves two out
        name_width = 22 if width >= _WIDTH else 12
        rows = [
            f"{name[: name_width - 1]:<{name_width}}{verdict:<15}"
            + "".join(f"{cell:>12}" for cell in cells[: columns - 2])
            for name, verdict, *cells in [_HEADER, *self._rows()]
        ]
        headline = textwrap.fill(self._headline(), width)
        return "\n".join([headline, rule, *rows, rule])

    def _html_body(self) -> str:
        sentences = "".join(f"<p>{escape(s)}</p>" for s in self._sentences())
        return (
            f'<div class="scroll">{make_table(_HEADER, self._rows())}</div>{sentences}'
        )

    def _html_figures(self) -> Iterator[str]:
        for description, draw in panels(self.results, self.names, self.level):
            figure, ax = plt.subplots(figsize=(5, 4.2), layout="constrained")
            draw(ax)
            yield embed_figure(figure, description)

    def _sentences(self) -> Iterator[str]:
        if self.colt is not None and self.adjusted["colt"] <= self.level:
            yield self._distance_sentence(self.colt)
        if self.findings:
            wrong = describe_all(self.findings, self.names, self.x_shape)
            yield "What is wrong: " + "; ".join(wrong[:5]) + "."
        elif self.rejected:
            yield "What is wrong: no simple pattern stands out at this budget."
        if self.trend is not None:
            yield "Where: " + self._where_sentence(self.trend)
        if self.rejected:
            yield "What to do: " + advise(self.findings)
        yield self._cost_sentence()
        note = " (C2ST's p-value holds for large samples only)"
        yield (
            "Adjusted p-values are Holm's over the methods: the verdict controls the "
            f"chance of any false alarm at {percent(self.level)}"
            f"{note if 'c2st' in self.results else ''}."
        )

    def _distance_sentence(self, colt: CoLTResult) -> str:
        lower, confidence = colt.distance_lower, colt.config.confidence
        if lower > 0:
            start = (
                f"At least {_share_text(lower)} of posterior mass is misplaced in the "
                f"worst ball ({confidence:.0%} confidence)"
            )
        else:
            start = "No misplaced mass can be certified at this budget"
        return f"How wrong: {start}; the estimate is {colt.distance:.0%}."

    def _where_sentence(self, trend: Trend) -> str:
        if trend.p_value > self.level:
            return "no dependence on x was found at this budget."
        text = describe_trend(trend, self.names, self.x_shape)
        if self.colt is None:
            return f"{text}."
        return f"{text}. report.colt.at(x_o) is the verdict at one x."

    def _cost_sentence(self) -> str:
        cost = self.cost
        text = (
            f"Cost: {cost.num_simulations} pairs, {cost.num_posterior_samples} draws "
            f"each, {sum(cost.seconds.values()):.1f} s."
        )
        if self.detectable is not None:
            text += (
                f" At this budget an error that misplaces less than about "
                f"{self.detectable:.0%} of the mass of any ball may stay unseen."
            )
        return text


def _share_text(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else percent(float(f"{share:.1g}"))


def _statistic_text(statistic: float) -> str:
    """Return a statistic in at most eleven characters."""
    return f"{statistic:.3f}" if abs(statistic) < 1e6 else f"{statistic:.3g}"


def _numbers(result: TestResult | CoLTResult) -> dict[str, Any]:
    if isinstance(result, TestResult):
        return {"details": dict(result.details)}
    shares = result.shares
    return {
        "test_p_value": result.test_p_value,
        "training_p_value": result.training_p_value,
        "distance": result.distance,
        "distance_lower": result.distance_lower,
        "probes": {
            probe.name: {
                "statistic": probe.statistic,
                "p_value": probe.p_value,
                "share": shares[probe.name],
            }
            for probe in result.probes
        },
        "num_train": result.num_train,
        "num_test": result.num_test,
    }


def _finite(value: float) -> float | None:
    """Return a number, or `None` for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None
