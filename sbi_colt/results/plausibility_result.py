"""Could the simulator have made x_o? Numbers, no sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from sbi_colt.checks import check_choice, check_number, check_share

__all__ = ["PlausibilityResult", "StandingOut"]

KINDS = ("number", "given the others", "summary", "replicates")


@dataclass(frozen=True)
class StandingOut:
    """One feature in which an observation stands out among simulated data.

    Args:
        kind: What the feature is: ``"number"`` (one number of x), ``"given the
            others"`` (one number of x beside what the other numbers predict),
            ``"summary"`` (such as the autocorrelation of a series) or ``"replicates"``
            (one number of x beside its posterior predictive replicates).
        index: Place in the flattened x; `None` for a summary.
        name: Name of a summary; empty otherwise.
        value: The number in x_o; NaN where the feature is not a number of x.
        typical: The median of this number over prior simulations; NaN likewise.
        deviation: How far x_o is out, in robust standard deviations over prior
            simulations, with its sign.
        share_beyond: Share of the references that are at least as far out as x_o in
            this feature, in either direction.
        p_value: Adjusted over all features of the kind: the share of x_o and the n
            references whose farthest feature is at least this far out. Null: x_o comes
            from p(x). Exact for the farthest feature; resolution 1 / (n + 1).
    """

    kind: str
    index: int | None
    deviation: float
    share_beyond: float
    p_value: float
    name: str = ""
    value: float = math.nan
    typical: float = math.nan

    def __post_init__(self):
        check_choice("kind", self.kind, KINDS)
        check_share("share_beyond", self.share_beyond)
        check_share("p_value", self.p_value)


@dataclass(frozen=True, eq=False)
class PlausibilityResult:
    """Whether prior and simulator could have made an observation.

    Args:
        p_value: Exact p-value of all scores together. Null: x_o ~ p(x), as prior and
            simulator make data (given that the simulation succeeds); sample size
            ``num_references``; resolution 1 / (num_references + 1).
        p_values: The exact p-value of each score alone, by its name.
        predictive_p_value: Exact p-value of x_o among data that were simulated from
            posterior draws at x_o, calibrated by the same number for simulated xs;
            `None` without a posterior. Same null, whatever the posterior is.
        standing_out: The features in which x_o stands out, the farthest first.
        num_references: Prior simulations that x_o is ranked with, n.
        num_fitting: Other prior simulations, which the scores were fitted on.
        num_replicates: Replicates of each x; 0 without a posterior.
        missing_share: Share of the references without replicates, because the
            posterior could not be sampled or its draws could not be simulated.
        p_value_without_posterior: Exact p-value of the scores that do not use the
            posterior, together. Same null; a posterior that is wrong at x_o alone
            cannot make it small.
        x_o: The observation.
        references: The prior simulations, with shape ``(n, …)``.
        replicates: Data simulated from posterior draws at x_o, ``(M, …)``, or `None`.
        score_values: Each score of x_o, the first, and of the references, ``(n + 1,)``.
    """

    p_value: float
    p_values: dict[str, float]
    predictive_p_value: float | None
    standing_out: tuple[StandingOut, ...]
    num_references: int
    num_fitting: int
    num_replicates: int = 0
    missing_share: float = 0.0
    p_value_without_posterior: float = field(kw_only=True)
    x_o: Tensor = field(repr=False, kw_only=True)
    references: Tensor = field(repr=False, kw_only=True)
    replicates: Tensor | None = field(default=None, repr=False, kw_only=True)
    score_values: dict[str, Tensor] = field(
        default_factory=dict, repr=False, kw_only=True
    )

    def __post_init__(self):
        check_share("p_value", self.p_value)
        check_share("p_value_without_posterior", self.p_value_without_posterior)
        for name, p_value in self.p_values.items():
            check_share(f"p_values[{name!r}]", p_value)
        if self.predictive_p_value is not None:
            check_share("predictive_p_value", self.predictive_p_value)
        check_number(
            "num_references", self.num_references, "at least 1", lambda n: n >= 1
        )

    @property
    def resolution(self) -> float:
        """The smallest p-value that is possible."""
        return 1 / (self.num_references + 1)

    @property
    def x_shape(self) -> tuple[int, ...]:
        """The shape of one x."""
        return tuple(self.x_o.shape)
