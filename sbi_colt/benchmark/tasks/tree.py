r"""A posterior with fine structure: a tree of Gaussian components in the plane.

Written from the description in Chen, Bansal and Scott (2025, Appendix C.1). Two classes
of branches start at the origin, at angles π/4 and 5π/4. Seven times over, a branch
carries eight components and ends in two branches, turned to either side by a random
angle. The covariance of a component is

.. math:: Σ = (d d^T + (I - d d^T) \, \text{thick}^2) \, \text{size}^2

with d the direction of the branch. x ~ N(0, 1), and its sign says which class θ belongs
to: the first where x ≥ 0 (in the paper's figure it is the other one). p blurs all
components with σ = 0.01, q with (1 + α) σ.

Where the paper is silent: a branch is 0.7 times as long as its parent, beginning with
1; components are half their spacing in size, a tenth as thick; a level of branches has
0.8 times the weight of the one before; branches turn by 0.5 ± 0.15.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from sbi_colt.benchmark.tasks.task import Setting
from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from

__all__ = ["SETTING", "TreeTask", "grow"]

_DEPTH = 7
_COMPONENTS = 8
_BLUR = 0.01
_THICK = 0.1
_SHORTER = 0.7
_LIGHTER = 0.8
_TURN, _TURN_SPREAD = 0.5, 0.15


@dataclass(frozen=True)
class TreeTask:
    """The tree, and q, which blurs by 1 + α times as much as p."""

    alpha: float
    seed: int = 0  # of the branches' angles

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
        chosen = torch.multinomial(
            weights, classes.numel(), replacement=True, generator=generator
        )
        chosen = chosen.reshape(classes.shape)
        # The second class is the first one's components after len(weights).
        index = chosen + len(weights) * classes
        noise = torch.randn((*classes.shape, 2, 1), generator=generator)
        inner = (factors[index] @ noise).squeeze(-1)
        outer = torch.randn((*classes.shape, 2), generator=generator)
        return means[index] + inner + blur * outer


@lru_cache(maxsize=16)
def grow(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weights of one class's components, and the means and factors of both.

    Returns:
        Weights with shape ``(C,)``, the same for both classes; means ``(2 C, 2)`` and
        square roots of covariances ``(2 C, 2, 2)``, those of the first class first.
    """
    generator = generator_from(seed, "tree")
    weights, means, factors = [], [], []
    for label, root_angle in enumerate((math.pi / 4, 5 * math.pi / 4)):
        branches = [(torch.zeros(2), root_angle)]
        for level in range(_DEPTH):
            length = _SHORTER**level
            size = 0.5 * length / _COMPONENTS
            grown = []
            for start, angle in branches:
                direction = torch.tensor([math.cos(angle), math.sin(angle)])
                along = torch.outer(direction, direction)
                factor = size * (along + _THICK * (torch.eye(2) - along))
                for place in range(1, _COMPONENTS + 1):
                    means.append(start + length * place / _COMPONENTS * direction)
                    factors.append(factor)
                    if label == 0:
                        weights.append(_LIGHTER**level / 2**level)
                for side in (-1, 1):
                    jitter = float(torch.randn(1, generator=generator))
                    turn = side * (_TURN + _TURN_SPREAD * jitter)
                    grown.append((start + length * direction, angle + turn))
            branches = grown
    return torch.tensor(weights), torch.stack(means), torch.stack(factors)


SETTING = Setting(
    lambda alpha, dims, seed: TreeTask(alpha, seed),
    (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0),
    num_pairs=1000,
    num_posterior_samples=100,
    epochs=5000,
    c2st_epochs=5000,
    dims=((1, 2),),
)
