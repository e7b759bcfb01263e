r"""An error in one of many parameters: what single-parameter diagnostics see best.

.. math:: x \sim N(0, I_d), \quad p(θ | x) = N(x / 2, I / 2)

and q is p with the first parameter's mean off by α posterior standard deviations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sbi_colt.benchmark.tasks.task import Setting
from sbi_colt.draws import Draws

__all__ = ["SETTING", "BiasTask"]


@dataclass(frozen=True)
class BiasTask:
    """Independent Gaussian parameters, of which the first is biased.

    Args:
        alpha: The bias in posterior standard deviations.
        dim: The number of parameters, and of numbers in x.
    """

    alpha: float
    dim: int = 10

    def draws(
        self, num_pairs: int, num_posterior_samples: int, generator: torch.Generator
    ) -> Draws:
        """Return pairs from p and draws from q; see `Task.draws`."""
        xs = torch.randn(num_pairs, self.dim, generator=generator)
        members = torch.randn(
            num_posterior_samples + 1, num_pairs, self.dim, generator=generator
        )
        members[1:, :, 0] += self.alpha
        members = xs / 2 + 0.5**0.5 * members
        return Draws(members[0], xs, members[1:], shuffle=False)


# 500 pairs in all, half of them to train on.
SETTING = Setting(
    lambda alpha, dims, seed: BiasTask(alpha, dims[1]),
    (0.0, 0.1, 0.2, 0.3),
    num_pairs=250,
    num_posterior_samples=200,
    dims=((10, 10), (30, 30)),
    in_paper=False,
)
