"""A probe that is one parameter by itself, as in simulation-based calibration."""

from __future__ import annotations

from torch import Tensor

from sbi_colt.checks import check_integer
from sbi_colt.probes.bags import Bags
from sbi_colt.probes.base import Probe

__all__ = ["MarginalProbe"]


class MarginalProbe(Probe):
    """The value of one parameter.

    Args:
        name: The name in reports.
        index: The position of the parameter; -1 for the last one.
    """

    def __init__(self, name: str = "marginal", index: int = 0):
        super().__init__(name, "global")
        self.index = check_integer("index", index, least=-1)

    def fits(self, dim: int) -> bool:
        """Return whether there is a parameter at this position."""
        return self.index < dim

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the parameter of points with shape ``(n, S, d)``, ``(n, S)``."""
        return points[..., self.index]
