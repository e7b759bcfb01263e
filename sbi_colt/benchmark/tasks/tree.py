r"""A posterior with fine structure: a tree of Gaussian components in the plane.

It is the tree of Karras et al. (2024, "Guiding a diffusion model with a bad version of
itself"), which Chen, Bansal and Scott (2025, Appendix C.1) test; written here from its
figures. Each of two classes is a trunk at (0.003, 0.0325), at the angles π/4 and 5π/4,
with seven levels of branches. A branch of level k = 0, …, 6 has

- the length 0.292 · 0.8^k · (1 + 0.2 ε), with ε a standard normal number of its own,
- eight components, at equal steps from 0.07 to 0.93 of its length, whose standard
  deviations are 0.06 lengths along the branch and 0.012 · 0.8^k across it,
- the weight length · 0.5^k, which its components share,
- two children at its end, turned to either side by 0.7^k · (1 + 0.2 ε).

At last the plane is stretched by 1.3136 and 1.3844 along its axes. The tree is about
3 units wide; across a branch the standard deviation is 0.016 in a trunk and 0.004 at
the tips, before the blur. x ~ N(0, 1), and its sign says which class θ belongs to: the
first where x ≥ 0 (in the paper's figure it is the other one). p blurs all components
with σ = 0.01, q with (1 + α) σ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from sbi_colt.benchmark.tasks.task import Setting
from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from

__all__ = ["SETTING", "Components", "TreeTask", "grow"]

_DEPTH = 7
_COMPONENTS = 8
_BLUR = 0.01
_ROOT = (0.003, 0.0325)
_ANGLES = (math.pi / 4, 5 * math.pi / 4)  # of the trunks
_LENGTH, _SHORTER = 0.292, 0.8
_JITTER = 0.2  # relative, of lengths and turns
_FIRST, _LAST = 0.07, 0.93  # places of components, in lengths
_ALONG, _ACROSS = 0.06, 0.012
_LIGHTER = 0.5
_STRAIGHTER = 0.7
_STRETCH = (1.3136, 1.3844)


class Components(NamedTuple):
    """The components of both classes, those of the first class first.

    Args:
        weights: Probabilities within each class, with shape ``(2, C)``.
        means: Means with shape ``(2, C, 2)``.
        factors: Matrices A with covariance A Aᵀ, with shape ``(2, C, 2, 2)``.
    """

    weights: Tensor
    means: Tensor
    factors: Tensor


@dataclass(frozen=True)
class TreeTask:
    """The tree, and q, which blurs by 1 + α times as much as p."""

    alpha: float
    seed: int = 0  # of the branches' lengths and angles

    def __post_init__(self):
        if not 0 <= self.alpha < math.inf:
            raise ValueError(f"alpha: expected a number >= 0, got {self.alpha}.")

    def draws(
        self, num_pairs: int, num_posterior_samples: int, generator: torch.Generator
    ) -> Draws:
        """Return pairs from p and draws from q; see `Task.draws`."""
        xs = torch.randn(num_pairs, 1, generator=generator)
        classes = (xs[:, 0] < 0).long()
        thetas = self._sample(classes, _BLUR, generator)
        many = classes.expand(num_posterior_samples, num_pairs)
        samples = self._sample(many, (1 + self.alpha) * _BLUR, generator)
        return Draws(thetas, xs, samples, shuffle=False)

    def _sample(
        self, classes: Tensor, blur: float, generator: torch.Generator
    ) -> Tensor:
        """Return one draw for each class, with shape ``(..., 2)``."""
        weights, means, factors = grow(self.seed)
        chance = torch.rand(classes.shape, generator=generator)
        totals = weights.cumsum(dim=1)
        found = [torch.searchsorted(own / own[-1], chance) for own in totals]
        index = torch.where(classes == 0, *found)
        noise = torch.randn((*classes.shape, 2, 1), generator=generator)
        inner = (factors[classes, index] @ noise).squeeze(-1)
        outer = torch.randn((*classes.shape, 2), generator=generator)
        return means[classes, index] + inner + blur * outer


@lru_cache(maxsize=16)
def grow(seed: int) -> Components:
    """Return the components of the tree with a seed."""
    generator = generator_from(seed, "tree")
    classes = [_grow_class(angle, generator) for angle in _ANGLES]
    weights, means, factors = map(torch.stack, zip(*classes, strict=True))
    stretch = torch.tensor(_STRETCH)
    return Components(weights, means * stretch, stretch.unsqueeze(1) * factors)


def _grow_class(
    angle: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights, means and factors of one class, before the stretching."""
    starts, angles = torch.tensor([_ROOT]), torch.tensor([angle])
    places = torch.linspace(_FIRST, _LAST, _COMPONENTS)
    levels = []
    for level in range(_DEPTH):
        count = len(angles)
        jitter = 1 + _JITTER * torch.randn(3, count, generator=generator)
        lengths = _LENGTH * _SHORTER**level * jitter[0]
        directions = torch.stack([angles.cos(), angles.sin()], dim=1)  # (B, 2)
        steps = (lengths.unsqueeze(1) * directions).unsqueeze(1)  # (B, 1, 2)
        along = directions.unsqueeze(2) * directions.unsqueeze(1)  # (B, 2, 2)
        across = torch.eye(2) - along
        factors = _ALONG * lengths.reshape(-1, 1, 1) * along
        factors = factors + _ACROSS * _SHORTER**level * across
        levels.append(
            (
                (lengths * _LIGHTER**level).repeat_interleave(_COMPONENTS),
                (starts.unsqueeze(1) + places.unsqueeze(1) * steps).flatten(0, 1),
                factors.repeat_interleave(_COMPONENTS, dim=0),
            )
        )
        turns = _STRAIGHTER**level * jitter[1:] * torch.tensor([[-1.0], [1.0]])
        angles = (angles + turns).flatten()
        starts = (starts + steps.squeeze(1)).repeat(2, 1)
    weights, means, factors = map(torch.cat, zip(*levels, strict=True))
    return weights / weights.sum(), means, factors


SETTING = Setting(
    lambda alpha, dims, seed: TreeTask(alpha, seed),
    (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0),
    num_pairs=1000,
    num_posterior_samples=100,
    epochs=5000,
    c2st_epochs=5000,
    dims=((1, 2),),
)
