"""What is wrong with a posterior, and where in x: numbers, no sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sbi_colt.checks import check_choice, check_number, check_share

__all__ = ["FAMILIES", "Finding"]

_WITH_AND_WITHOUT_X = ("shift", "width", "correlation", "shape", "radial")
FAMILIES = (
    *_WITH_AND_WITHOUT_X,
    *(f"{name} with x" for name in _WITH_AND_WITHOUT_X),
    "missing",
)
UNITS = ("standard deviations", "ratio", "correlation", "share")
PLACES = ("", "low", "medium", "high")
PATTERNS = ("", "skew", "modes", "tails", "blind")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Args:
        family: The family of errors: ``"shift"``, ``"width"``, ``"correlation"``,
            ``"shape"`` (modes, skew or tails of one parameter), ``"radial"`` (tails of
            all parameters together), each also ``"… with x"`` where the error depends
            on x, or ``"missing"`` (true parameters far from all draws).
        p_value: Adjusted p-value of the family, over all families: of the first
            finding under q = p, exact; of a further one the larger of that and the
            p-value given the families named before, for many pairs. Sample size N, all
            pairs; resolution 1/1000.
        parameters: Indices of the parameters that it is about; none for all together.
        feature: Place in the flattened x that the error depends on, or `None`.
        where: Whether the size is that where this feature is ``"low"``, ``"medium"`` or
            ``"high"`` (thirds of the pairs); empty for all xs.
        sign: +1 where q is too high, too wide, too correlated or has tails too heavy;
            −1 for the opposite. It is known only if `is_clear`.
        size: How large the error is, in ``unit``.
        interval: 95% interval of the size. It allows for the choice of the parameters
            and, for an error that depends on x, of the feature and of its third.
        unit: ``"standard deviations"`` of the posterior (q's mean minus the truth),
            ``"ratio"`` (q's width over the right one), ``"correlation"`` (q's minus the
            right one) or ``"share"`` of true parameters: those below the median (skew),
            in the central third (other shapes) or the central half of q (radial), or
            far from all draws (missing). A ratio is between 0.001 and 1000; an
            interval that ends there has no end.
        own_units: A shift in the parameter's own units.
        pattern: What a wrong shape is: ``"skew"``, ``"modes"`` or ``"tails"``;
            ``"blind"`` for an error with x of draws that hardly differ between xs.
        gain: What correcting it at every x would gain beside the findings before it, in
            nats per pair, on pairs that were not used to fit the correction.
        gain_se: Standard error of the gain.
    """

    family: str
    p_value: float
    parameters: tuple[int, ...] = ()
    feature: int | None = None
    where: str = ""
    sign: int = 1
    size: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)
    unit: str = "share"
    own_units: float = math.nan
    pattern: str = ""
    gain: float = math.nan
    gain_se: float = math.nan

    @property
    def expected(self) -> float:
        """The size of a correct posterior."""
        if self.unit == "ratio":
            return 1.0
        base = self.family.removesuffix(" with x")
        if base == "shape":
            return 0.5 if self.pattern == "skew" else 1 / 3
        return 0.5 if base == "radial" else 0.0

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out the size of a correct posterior."""
        low, high = self.interval
        return not low <= self.expected <= high

    def __post_init__(self):
        # Lists from JSON, which has no NaN.
        for name in ("size", "own_units", "gain", "gain_se"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, math.nan)
        ends = (math.nan if end is None else end for end in self.interval)
        object.__setattr__(self, "interval", tuple(ends))
        object.__setattr__(self, "parameters", tuple(self.parameters))
        check_choice("family", self.family, FAMILIES)
        check_choice("unit", self.unit, UNITS)
        check_choice("where", self.where, PLACES)
        check_choice("pattern", self.pattern, PATTERNS)
        check_share("p_value", self.p_value)
        check_number("sign", self.sign, "-1 or 1", lambda sign: sign in (-1, 1))
        if len(self.interval) != 2:
            raise ValueError(f"interval: expected two numbers, got {self.interval!r}.")
