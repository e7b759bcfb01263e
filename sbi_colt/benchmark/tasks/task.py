"""What a task is, and the settings with which the benchmark runs it.

A task is a problem with a known posterior p(θ | x) and an approximation q(θ | x) whose
error has a size α. At α = 0, q is p.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from sbi_colt.draws import Draws

__all__ = ["DIMS", "Setting", "Task"]

# Dimensions of x and θ in the paper's Gaussian and curved families.
DIMS = ((3, 3), (10, 10), (50, 10), (100, 100))


class Task(Protocol):
    """What the benchmark asks of a task."""

    def draws(
        self, num_pairs: int, num_posterior_samples: int, generator: torch.Generator
    ) -> Draws:
        """Return pairs (θ, x) with θ from p(θ | x), and draws from q at each x."""
        ...


@dataclass(frozen=True)
class Setting:
    """How a task is made, and its budget (Chen, Bansal and Scott 2025, Appendix C.4).

    A task whose q is a posterior that sbi trained also has ``accuracy(num_xs,
    generator)``, a comparison with exact draws.
    """

    make: Callable[[Any, tuple[int, int], int], Task]  # from α, dimensions and seed
    alphas: tuple[float, ...]  # sizes of the error, if none are asked for
    num_pairs: int = 100  # for training, and for each test batch
    num_posterior_samples: int = 500
    epochs: int = 1000  # of the paper's CoLT
    learning_rate: float = 1e-5
    c2st_epochs: int = 1000
    c2st_learning_rate: float = 1e-5
    dims: tuple[tuple[int, int], ...] = DIMS  # if several, others may be asked for
    in_paper: bool = True
    is_trained: bool = False
