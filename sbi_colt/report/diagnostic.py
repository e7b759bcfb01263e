"""The report on one posterior: every method's numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor, nn

from sbi_colt.checks import (
    check_choice,
    check_inner_share,
    check_integer,
    check_number,
    check_share,
)
from sbi_colt.draws import Draws
from sbi_colt.files import refused, write_text
from sbi_colt.report.figures import plot_report
from sbi_colt.report.html import report_body, report_page
from sbi_colt.report.plausibility_text import conclude
from sbi_colt.report.storage import load_report, save_report
from sbi_colt.report.text import WIDTH, report_summary
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.results.finding import Finding
from sbi_colt.results.focus import Focus
from sbi_colt.results.plausibility_result import PlausibilityResult
from sbi_colt.results.test_result import TestResult
from sbi_colt.stats.combine import both_sides_p_value, holm

__all__ = ["Cost", "DiagnosticReport", "overall_p_value"]

LEFT_OUT = ("", "off", "failing", "few", "another")


@dataclass(frozen=True)
class Cost:
    """What a report cost.

    Args:
        num_simulations: Pairs of a true parameter and its x.
        num_posterior_samples: Posterior draws for each x.
        seconds: Seconds by step.
        num_spent: All simulations that the run spent: those of pairs and of replicates,
            those that failed, and the trial calls that find out how the simulator is
            called. It is 0 where pairs and replicates were made elsewhere.
    """

    num_simulations: int
    num_posterior_samples: int
    seconds: Mapping[str, float]
    num_spent: int = 0

    def __post_init__(self):
        check_integer("num_simulations", self.num_simulations, least=1)
        check_integer("num_posterior_samples", self.num_posterior_samples, least=0)
        check_integer("num_spent", self.num_spent, least=0)
        for step, value in self.seconds.items():
            check_number(f"seconds of {step}", value, "at least 0", lambda v: v >= 0)


@dataclass(frozen=True, eq=False)
class DiagnosticReport:
    """What several methods say about one posterior, on the same draws.

    ``report["colt"]``, ``report["predictive"]``, ``report["sbc"]``, … are the methods'
    own results. The verdict is that of the two sides, ``"colt"`` (parameters) and
    ``"predictive"`` (data); the other methods stand beside it to be read.

    Null hypothesis of every p-value: q(θ | x) = p(θ | x) for almost every x. Under it
    the two sides are independent, although they share pairs: given the bags as sets,
    θ' and the replicates, the place of the true parameter is still uniform, and the
    data side does not use it.

    Args:
        results: Result of each method by its name.
        level: Level of the verdict.
        findings: What is wrong, the largest gain first (`sbi_colt.tilt`); empty unless
            the posterior is rejected.
        names: Names of the parameters.
        cost: What it cost.
        seed: The seed.
        x_shape: The shape of one x.
        replicates: Observations and replicates of the data side, or `None`:
            ``replicates.thetas (n, D)`` are observations, flattened, ``samples
            (M, n, D)`` their replicates and ``xs (n, d)`` the parameters θ'.
        left_out: Why there is no data side although there was a simulator: ``"off"``
            (it was not asked for), ``"failing"`` (the simulator fails at most of the
            θ'), ``"few"`` (too few bags have a posterior draw) or ``"another"`` (it
            could not be made for another posterior of the comparison). Empty where
            there is one, and where there was no simulator.
        failed_share: Share of the θ', the parameters that the posterior drew, at which
            the simulator fails again and again: a finding of its own. `None` where
            nothing was simulated from them.
        focus: What was looked at where the pairs come from a proposal: near x_o, or the
            user's own. `None` for pairs from the prior.
        observation: Whether prior and simulator could have made x_o, in a focused run.
        nearness: p-value of "x_o lies among the focused xs"; `None` without x_o.

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
        The posterior is REJECTED at the 5% level (p = ...)
        >>> report.to_dict()["level"]
        0.05
    """

    results: Mapping[str, TestResult | CoLTResult]
    level: float
    findings: tuple[Finding, ...]
    names: tuple[str, ...]
    cost: Cost
    seed: int
    x_shape: tuple[int, ...]
    replicates: Draws | None = None
    left_out: str = ""
    failed_share: float | None = None
    focus: Focus | None = None
    observation: PlausibilityResult | None = None
    nearness: float | None = None

    def __post_init__(self):
        check_inner_share("level", self.level)
        check_choice("left_out", self.left_out, LEFT_OUT)
        if self.failed_share is not None:
            check_share("failed_share", self.failed_share)
        if not self.results:
            raise ValueError("results: expected at least one method, got none.")
        colt = self.colt
        if colt is not None and colt.evidence.draws.dim != len(self.names):
            raise ValueError(
                f"names: expected {colt.evidence.draws.dim}, one for each parameter, "
                f"got {len(self.names)}."
            )
        for finding in self.findings:
            if not all(0 <= j < len(self.names) for j in finding.parameters):
                raise ValueError(
                    f"parameters: expected positions below {len(self.names)}, got "
                    f"{finding.parameters!r}."
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
        return self.sides.get("colt")

    @property
    def predictive(self) -> CoLTResult | None:
        """The result of the data side, where it is among the methods."""
        return self.sides.get("predictive")

    @property
    def num_replicates(self) -> int:
        """Replicates that the data side asked for, those of dropped pairs included."""
        if self.replicates is None:
            return 0
        return len(self.replicates.mask) * self.replicates.num_posterior_samples

    @property
    def num_drawn(self) -> int:
        """Bags of the data side that test the posterior.

        At the others the posterior could not be sampled, and θ' is the true parameter.
        """
        return 0 if self.replicates is None else self.replicates.num_drawn

    @property
    def sides(self) -> dict[str, CoLTResult]:
        """The results behind the verdict: parameters, data, or both."""
        return _sides(self.results)

    @property
    def p_value(self) -> float:
        """One exact p-value of both sides, or of the one that was tested.

        Without either side it is the smallest of the methods' p-values after Holm's
        adjustment.
        """
        return overall_p_value(self.results)

    @property
    def rejected(self) -> bool:
        """Whether the posterior is rejected at the level."""
        return self.p_value <= self.level

    @property
    def bounds(self) -> dict[str, float]:
        """A certified lower bound of each side's distance; all of them hold together.

        The error probability 1 − ``config.confidence`` is split between the sides.
        """
        sides = self.sides
        return {
            name: side.distance_bound(
                1 - (1 - side.config.confidence) / max(1, len(sides))
            )
            for name, side in sides.items()
        }

    @property
    def leading_side(self) -> str | None:
        """The side with the larger certified bound; of equal ones, larger estimate."""
        bounds, sides = self.bounds, self.sides
        return max(
            sides,
            key=lambda name: (bounds[name], sides[name].distance_excess),
            default=None,
        )

    @property
    def distance(self) -> float | None:
        """Estimate of the leading side's distance, beyond what chance makes.

        It is a share of posterior mass on the parameter side and of predictive mass on
        the data side; `None` where neither was tested.
        """
        name = self.leading_side
        if name is None:
            return None
        return max(self.sides[name].distance_excess, self.bounds[name])

    @property
    def distance_lower(self) -> float | None:
        """The larger of the certified bounds, or `None` where no side was tested."""
        return max(self.bounds.values(), default=None)

    @property
    def detectable(self) -> float | None:
        r"""The distance that a probe on parameters finds with a power of about 80%.

        .. math:: (\sqrt{\log(2 P M / α) / 2} + 0.84 / 2) / \sqrt{n}

        for P probes, M sides, level α and n test pairs: the critical value by Massart's
        bound, and 0.84 standard errors of an empirical share of one half. Smaller
        errors can go unnoticed; larger errors are found if a probe fits them.
        """
        if self.colt is None:
            return None
        probes, n = len(self.colt.probes), self.colt.num_test
        level = self.level / len(self.sides)
        critical = math.sqrt(math.log(2 * probes / level) / 2)
        return min(1.0, (critical + 0.84 * 0.5) / math.sqrt(n))

    @property
    def conclusion(self) -> str | None:
        """What all tests at x_o say together, or `None` without x_o.

        ``"wrong"``, ``"unexplained"``, ``"unreached"`` or ``"well"``; see
        `sbi_colt.report.plausibility_text.conclude`.
        """
        if self.observation is None or self.nearness is None:
            return None
        tests = (self.p_value, self.observation, self.nearness)
        return conclude(*tests, self.level).kind

    def __str__(self) -> str:
        return self.summary()

    def summary(self, width: int = WIDTH) -> str:
        """Return the report as text.

        Args:
            width: Columns, at least 39.
        """
        return report_summary(self, width)

    def plot(self) -> Figure:
        """Return one figure: ranks, localization, discrepancy over x, training.

        Pyplot does not keep the figure. A notebook shows it where it is the last value
        of a cell; elsewhere use ``report.plot().savefig("report.png")``.
        """
        return plot_report(self)

    def to_html(self, path: str | os.PathLike) -> None:
        """Write the report as one self-contained HTML file."""
        write_text(path, report_page(self))

    def _repr_html_(self) -> str:
        """Return the table and the sentences for a notebook."""
        return report_body(self)

    def save(self, path: str | os.PathLike) -> None:
        """Write the report to a file: tensors and JSON, no pickled objects."""
        save_report(self, path)

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

        Raises:
            ValueError: The file is not a report, or holds numbers that no report has,
                such as a p-value of 7.
        """
        with refused(path):
            fields = load_report(path, embedding_net, embedding)
            return cls(**{**fields, "cost": Cost(**fields["cost"])})

    def to_dict(self) -> dict[str, Any]:
        """Return the report's numbers, ready for JSON.

        ``bounds`` are the certified bounds of both sides, which hold together with the
        stated confidence. The ``distance_lower`` of a method is its own bound: it holds
        with that confidence by itself, and is larger where there are two sides.
        """
        return {
            "rejected": self.rejected,
            "p_value": self.p_value,
            "level": self.level,
            "distance": self.distance,
            "distance_lower": self.distance_lower,
            "bounds": self.bounds,
            "methods": {
                name: {
                    "p_value": result.p_value,
                    "statistic": _finite(result.statistic),
                    **_numbers(result),
                }
                for name, result in self.results.items()
            },
            "findings": [_plain(finding) for finding in self.findings],
            "parameters": list(self.names),
            "detectable_distance": self.detectable,
            "num_drawn": self.num_drawn,
            "failed_share": self.failed_share,
            "focus": self.focus
            and {k: _finite(v) for k, v in vars(self.focus).items()},
            "conclusion": self.conclusion,
            "plausibility_p_value": self.observation and self.observation.p_value,
            "nearness": self.nearness,
            "left_out": self.left_out,
            "cost": {
                "num_simulations": self.cost.num_simulations,
                "num_posterior_samples": self.cost.num_posterior_samples,
                "num_replicates": self.num_replicates,
                "num_spent": self.cost.num_spent,
                "seconds": dict(self.cost.seconds),
            },
            "seed": self.seed,
        }


def overall_p_value(results: Mapping[str, TestResult | CoLTResult]) -> float:
    """Return the p-value of the verdict; see `DiagnosticReport.p_value`."""
    p_values = [side.p_value for side in _sides(results).values()]
    if len(p_values) == 2:
        return both_sides_p_value(*p_values)
    return min(p_values or holm([result.p_value for result in results.values()]))


def _sides(results: Mapping[str, TestResult | CoLTResult]) -> dict[str, CoLTResult]:
    found = {name: results.get(name) for name in ("colt", "predictive")}
    return {n: side for n, side in found.items() if isinstance(side, CoLTResult)}


def _numbers(result: TestResult | CoLTResult) -> dict[str, Any]:
    if isinstance(result, TestResult):
        return {"details": dict(result.details)}
    shares = result.shares
    return {
        "test_p_value": result.test_p_value,
        "training_p_value": result.training_p_value,
        "distance": result.distance,
        "distance_lower": result.distance_lower,
        "chance_distance": result.chance_distance,
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


def _plain(finding: Finding) -> dict[str, Any]:
    """Return the numbers of a finding, ready for JSON."""
    plain = {
        name: _finite(value) if isinstance(value, float) else value
        for name, value in vars(finding).items()
    }
    plain["parameters"] = list(finding.parameters)
    plain["interval"] = [_finite(end) for end in finding.interval]
    return plain


def _finite(value: float) -> float | None:
    """Return a number, or `None` for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None
