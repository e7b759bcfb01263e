"""Two moons as a published problem (Lueckmann et al. 2021, T.8)."""

from __future__ import annotations

import torch
from torch import Tensor

from sbi_colt.benchmark.tasks import two_moons
from sbi_colt.randomness import isolated_rng

__all__ = ["TwoMoons"]


class TwoMoons(two_moons.TwoMoons):
    """Two crescents in a box, with exact draws from a generator."""

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        """Return exact draws of the posterior at one x; see `Problem.reference`."""
        with isolated_rng(generator):
            return self.exact(x, num)
