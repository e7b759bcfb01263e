"""Several posteriors on the same simulations, ranked by how wrong they are."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import permutations
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from sbi_colt.baselines import holm
from sbi_colt.config import CoLTConfig
from sbi_colt.diagnose import check_options, diagnose_draws, prepare_pairs
from sbi_colt.draws import Draws
from sbi_colt.html import embed_figure, make_page, make_table
from sbi_colt.plots import plot_comparison
from sbi_colt.randomness import resolve_seed
from sbi_colt.report import DiagnosticReport
from sbi_colt.results import CoLTResult
from sbi_colt.sampling import draw_at_pairs
from sbi_colt.testing import closer_p_value, distance_margin
from sbi_colt.wording import percent

__all__ = ["ComparisonReport", "compare"]

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
            (`sbi_colt.testing.closer_p_value`). Sample size: the test pairs.
        level: Level of every verdict.

    Example:
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


def compare(
    posteriors: Mapping[str, Any],
    prior: Any = None,
    simulator: Any = None,
    *,
    thetas: Any = None,
    xs: Any = None,
    num_simulations: int = 1000,
    num_posterior_samples: int = 500,
    methods: Sequence[str | Callable] = ("colt", "sbc", "tarp", "c2st"),
    config: CoLTConfig | None = None,
    level: float = 0.05,
    parameter_names: Sequence[str] | None = None,
    seed: int | None = None,
    device: str | torch.device = "cpu",
    num_workers: int = 1,
    show_progress_bar: bool = True,
    checkpoint: str | os.PathLike | None = None,
    **sampling: Any,
) -> ComparisonReport:
    """Test several posteriors on the same simulations, with the same seeds.

    They are ranked by D = max_p sup_u |F_p(u) − u|, the largest deviation of the ranks'
    distribution functions that the probes found for each (`CoLTResult.distance`).

    Args:
        posteriors: Posteriors by name, at least two, as in `diagnose`.
        prior: Prior, to simulate pairs from; with ``simulator``.
        simulator: Simulator of x given θ; with ``prior``.
        thetas: True parameters of pairs already simulated, with shape ``(N, d)``. No
            posterior may have been trained on them.
        xs: Their observations, with shape ``(N, …)``.
        num_simulations: Pairs to simulate, with ``prior`` and ``simulator``.
        num_posterior_samples: Draws per x.
        methods: As in `diagnose`; ``"colt"`` must be among them.
        config: Settings of CoLT.
        level: Level of each posterior's verdict, and of all comparisons together.
        parameter_names: Names of the parameters.
        seed: Seed of everything.
        device: Device to train and test on.
        num_workers: Processes for simulators and samplers that take one at a time.
        show_progress_bar: Whether to show progress.
        checkpoint: A folder that keeps the draws; each posterior has a folder in it.
        **sampling: Further options of `draw_posterior_samples`.

    Returns:
        The comparison; print it. A pair that one posterior could not be sampled at is
        left out for all. Null hypothesis of "a is closer than b": a's largest deviation
        is no smaller than b's; its p-value is asymptotic, unlike those of the methods.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> prior = MultivariateNormal(torch.zeros(1), torch.eye(1))
        >>> def simulator(thetas):
        ...     return thetas + torch.randn_like(thetas)
        >>> def normal(scale):  # exact for scale = 0.5 ** 0.5
        ...     return lambda xs, num: xs / 2 + scale * torch.randn(num, *xs.shape)
        >>> comparison = compare(
        ...     {"wide": normal(2.0), "exact": normal(0.5**0.5)},
        ...     prior,
        ...     simulator,
        ...     num_simulations=300,
        ...     num_posterior_samples=30,
        ...     methods=("colt",),
        ...     seed=0,
        ...     show_progress_bar=False,
        ... )
        >>> list(comparison.reports)
        ['exact', 'wide']
        >>> comparison.closer["exact", "wide"] < 0.05
        True
    """
    seed = resolve_seed(seed)
    _check_posteriors(posteriors)
    check_options(methods, level)
    if "colt" not in methods:
        raise ValueError(f"methods: expected 'colt' among them, got {methods!r}.")
    thetas, xs = prepare_pairs(
        prior,
        simulator,
        thetas,
        xs,
        num_simulations,
        seed=seed,
        num_workers=num_workers,
        show_progress_bar=show_progress_bar,
    )
    draws: dict[str, Draws] = {}
    seconds: dict[str, float] = {}
    for number, (name, posterior) in enumerate(posteriors.items()):
        start = time.perf_counter()
        draws[name] = draw_at_pairs(
            posterior,
            thetas,
            xs,
            num_posterior_samples,
            seed=seed,
            num_workers=num_workers,
            show_progress_bar=show_progress_bar,
            device=device,
            checkpoint=None if checkpoint is None else Path(checkpoint) / str(number),
            **sampling,
        )
        seconds[name] = time.perf_counter() - start
    shared = torch.stack([own.mask for own in draws.values()]).all(dim=0)
    reports = {}
    for name, own in draws.items():
        report = diagnose_draws(
            own.select(shared[own.index]),
            methods=methods,
            config=config,
            level=level,
            parameter_names=parameter_names,
            seed=seed,
            device=device,
            show_progress_bar=show_progress_bar,
        )
        spent = {"sampling": seconds[name], **report.cost.seconds}
        reports[name] = replace(report, cost=replace(report.cost, seconds=spent))
    ranked = sorted(reports, key=lambda name: _colt(reports[name]).distance)
    return ComparisonReport(
        reports={name: reports[name] for name in ranked},
        closer={
            (a, b): _closer(_colt(reports[a]), _colt(reports[b]))
            for a, b in permutations(ranked, 2)
        },
        level=level,
    )


def _closer(first: CoLTResult, second: CoLTResult) -> float:
    assert torch.equal(first.index, second.index)  # the same test pairs, in order
    balls = [(probe.level, probe.sign) for probe in second.probes]
    return closer_p_value(_ranks(first), _ranks(second), balls)


def _ranks(result: CoLTResult) -> Tensor:
    return torch.stack([probe.ranks for probe in result.probes])  # (P, n)


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


def _check_posteriors(posteriors: Any) -> None:
    if not isinstance(posteriors, Mapping):
        raise TypeError(
            'posteriors: expected a dict such as {"npe": a, "fmpe": b}, got '
            f"{type(posteriors).__name__}."
        )
    if len(posteriors) < 2:
        raise ValueError(
            f"posteriors: expected at least two to compare, got {len(posteriors)}; "
            "use diagnose for one."
        )
    for name in posteriors:
        if not isinstance(name, str) or not name:
            raise TypeError(f"posteriors: expected names as keys, got {name!r}.")
