r"""An error of shape alone: three lobes where q has a Gaussian.

Whitened, q is a standard Gaussian in the plane. p has the same radii, but its angles
have the density (1 + α cos 3(φ − φ₀)) / 2π. So p and q have the same mean, covariance
and Mahalanobis distances, and q's density at the truths has the right distribution. A
probe that learns where p has more mass than q sees this error. A projection sees it
only if its direction lies along a lobe, where p is skewed. The paper does not have this
task.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sbi_colt.benchmark.tasks.task import Setting
from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from

__all__ = ["SETTING", "LobesTask"]

_SCALES = (2.0, 0.5)


@dataclass(frozen=True)
class LobesTask:
    """θ = x + diag(2, 1/2) z, with three lobes of z under p."""

    alpha: float  # depth of the lobes, in [0, 1]
    seed: int = 0  # of the lobes' direction φ₀

    def __post_init__(self):
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha: expected a number in [0, 1], got {self.alpha}.")

    def draws(
        self, num_pairs: int, num_posterior_samples: int, generator: torch.Generator
    ) -> Draws:
        """Return pairs from p and draws from q; see `Task.draws`."""
        xs = torch.randn(num_pairs, 2, generator=generator)
        shape = (num_posterior_samples, num_pairs, 2)
        samples = torch.randn(shape, generator=generator)
        radii = torch.randn(num_pairs, 2, generator=generator).norm(dim=1)
        angles = self._angles(num_pairs, generator)
        truths = torch.stack([radii * angles.cos(), radii * angles.sin()], dim=1)
        scales = torch.tensor(_SCALES)
        return Draws(xs + scales * truths, xs, xs + scales * samples, shuffle=False)

    def _angles(self, count: int, generator: torch.Generator) -> Tensor:
        """Return angles by rejection, all of them tried until each is accepted."""
        first = float(torch.rand(1, generator=generator_from(self.seed, "lobes")))
        angles = torch.zeros(count)
        is_open = torch.ones(count, dtype=torch.bool)
        while is_open.any():
            tried = 2 * math.pi * torch.rand(count, generator=generator)
            height = 1 + self.alpha * torch.cos(3 * tried - 2 * math.pi * first)
            chance = (1 + self.alpha) * torch.rand(count, generator=generator)
            accepted = is_open & (chance < height)
            angles[accepted] = tried[accepted]
            is_open &= ~accepted
        return angles


SETTING = Setting(
    lambda alpha, dims, seed: LobesTask(alpha, seed),
    (0.0, 0.5, 1.0),
    num_pairs=300,
    num_posterior_samples=200,
    dims=((2, 2),),
    in_paper=False,
)
