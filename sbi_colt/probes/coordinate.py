"""A probe that is one parameter by itself, as in simulation-based calibration."""

from __future__ import annotations

from torch import Tensor

from sbi_colt.probes.bags import Bags
from sbi_colt.probes.base import Probe

__all__ = ["CoordinateProbe"]


class CoordinateProbe(Probe):
    """The value of one parameter.

    Args:
        name: The name in reports.
        index: The position of the parameter.
    """

    def __init__(self, name: str = "coordinate", index: int = 0):
        super().__init__(name, "global")
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise ValueError(f"index: expected an integer >= 0, got {index!r}.")
        self.index = index

    def fits(self, dim: int) -> bool:
        """Return whether there is a parameter at this position."""
        return self.index < dim

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the parameter of points with shape ``(n, S, d)``, ``(n, S)``."""
        return points[..., self.index]
