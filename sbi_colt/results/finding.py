"""What is wrong with a posterior, and where in x: numbers, no sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sbi_colt.checks import check_choice, check_number, check_share

__all__ = ["Finding", "Trend"]

KINDS = (
    "width",
    "tails",
    "shift",
    "correlation",
    "x_error",
    "ignores_x",
    "missing_mass",
    "spurious_mass",
)
TREND_KINDS = ("central", "below")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Args:
        kind: ``"width"``, ``"tails"``, ``"shift"``, ``"correlation"``, ``"x_error"``,
            ``"ignores_x"``, ``"missing_mass"`` or ``"spurious_mass"``.
        sign: +1 for too wide, too heavy or too high; −1 for the opposite.
        p_value: Approximate p-value under q = p, adjusted for the number of rules.
        parameter: Index of the parameter, where it is about one.
        feature: Index of the feature of x, where it is about one; that of the second
            parameter of a correlation.
        size: Mean rank minus 1/2, a difference of logarithms or ratios, a correlation,
            or a difference of masses.
    """

    kind: str
    sign: int
    p_value: float
    parameter: int | None = None
    feature: int | None = None
    size: float = math.nan

    def __post_init__(self):
        check_choice("kind", self.kind, KINDS)
        check_share("p_value", self.p_value)
        check_number("sign", self.sign, "-1 or 1", lambda sign: sign in (-1, 1))


@dataclass(frozen=True)
class Trend:
    """How the error changes with x.

    Args:
        feature: Index of the feature of x (flattened) that goes with it most.
        kind: ``"central"`` (whether truths lie in the central half of q) or ``"below"``
            (whether they lie below its median).
        parameter: The parameter that it is about; `None` for all of them together.
        p_value: Permutation p-value (1 + #{permuted ≥ observed}) / (1 + B) of the
            largest correlation. Null hypothesis: the error does not depend on x, that
            is, the ranks of the truths are independent of x; q may be wrong. Exact;
            sample size N, all pairs; resolution 1/1000, as B = 999.
        shares: Share of such truths where the feature is low, medium and high (thirds
            of the pairs); 1/2 where q is right.
    """

    feature: int
    kind: str
    parameter: int | None
    p_value: float
    shares: tuple[float, ...]

    def __post_init__(self):
        object.__setattr__(self, "shares", tuple(self.shares))  # a list from JSON
        check_choice("kind", self.kind, TREND_KINDS)
        check_share("p_value", self.p_value)
        if len(self.shares) != 3:
            raise ValueError(f"shares: expected three, got {self.shares!r}.")
        for share in self.shares:
            check_share("shares", share)
