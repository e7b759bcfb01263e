"""The outcome of one diagnostic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from sbi_colt.checks import check_number, check_share

__all__ = ["TestResult"]


@dataclass(frozen=True, eq=False)
class TestResult:
    """The outcome of one diagnostic.

    Args:
        name: The method's name.
        p_value: Its p-value, of a null hypothesis that q(θ | x) = p(θ | x) implies.
        statistic: Its test statistic.
        ranks: Its ranks where it has any, with shape ``(N,)`` or ``(N, d)``.
        details: Further numbers, ready for JSON.

    Example:
        >>> TestResult("mine", p_value=0.2, statistic=1.5)
        TestResult(name='mine', p_value=0.2, statistic=1.5)
    """

    __test__ = False  # not a test case for pytest to collect

    name: str
    p_value: float
    statistic: float
    ranks: Tensor | None = field(default=None, repr=False)
    details: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self):
        check_share("p_value", self.p_value)
        check_number("statistic", self.statistic, "a number", lambda v: v is not None)
