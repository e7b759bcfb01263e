"""What a published problem is."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["Problem"]


class Problem(Protocol):
    """A simulator whose posterior can be sampled without any network."""

    dim: int

    def prior(self) -> Any:
        """Return the prior, a distribution over vectors with ``dim`` entries."""
        ...

    def simulate(self, thetas: Tensor) -> Tensor:
        """Return xs with shape ``(N, …)`` for thetas with shape ``(N, dim)``.

        Random numbers come from torch's global state, as in any simulator for sbi.
        """
        ...

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        """Return draws of the true posterior at one x, with shape ``(num, dim)``."""
        ...
