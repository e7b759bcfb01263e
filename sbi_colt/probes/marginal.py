"""A probe that is one parameter by itself, as in simulation-based calibration.

Under the name ``"marginal"`` there is one such probe for each parameter. They find a
small error in one of many parameters, which every joint probe dilutes.
"""

from __future__ import annotations

from torch import Tensor

from sbi_colt.checks import check_integer
from sbi_colt.probes.bags import Bags
from sbi_colt.probes.base import Probe

__all__ = ["MarginalProbe"]

# With more parameters, the many probes would take more time and power than they gain.
_MAX_DIM = 50


class MarginalProbe(Probe):
    """The value of one parameter.

    Args:
        name: The name in reports.
        index: The position of the parameter, -1 for the last one; `None` for one probe
            for each parameter, if there are at most 50.
    """

    def __init__(self, name: str = "marginal", index: int | None = None):
        super().__init__(name, "global")
        self.index = index if index is None else check_integer("index", index, least=-1)

    def fits(self, dim: int) -> bool:
        """Return whether there is a parameter at this position."""
        return dim <= _MAX_DIM if self.index is None else self.index < dim

    def parts(self, dim: int) -> list[Probe]:
        """Return one probe for each parameter, if none was chosen."""
        if self.index is not None or not self.fits(dim):
            return super().parts(dim)
        return [MarginalProbe(f"{self.name}[{i}]", i) for i in range(dim)]

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the parameter of points with shape ``(n, S, d)``, ``(n, S)``."""
        return points[..., 0 if self.index is None else self.index]
