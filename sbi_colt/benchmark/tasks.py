"""The benchmark's tasks by name, with the paper's settings for each.

Settings are those of Chen, Bansal and Scott (2025), Appendix C.4. A task has
``draws(num_pairs, num_posterior_samples, generator)``; at α = 0 its q is its p.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from sbi_colt.benchmark.curved import CurvedTask
from sbi_colt.benchmark.diffusion import DiffusionTask
from sbi_colt.benchmark.gaussian import GaussianTask
from sbi_colt.benchmark.trained import TrainedTask
from sbi_colt.benchmark.tree import TreeTask
from sbi_colt.draws import Draws

__all__ = ["DIMS", "SETTINGS", "Setting", "Task", "make_task"]

DIMS = ((3, 3), (10, 10), (50, 10), (100, 100))


class Task(Protocol):
    """What the benchmark asks of a task."""

    def draws(
        self, num_pairs: int, num_posterior_samples: int, generator: torch.Generator
    ) -> Draws:
        """Return pairs from p and draws from q."""
        ...


@dataclass(frozen=True)
class Setting:
    """The paper's settings for one task.

    Args:
        alphas: Grid of perturbation sizes.
        num_pairs: Pairs, N, for training and for each test batch.
        num_posterior_samples: Draws per pair, K.
        epochs: Epochs of the paper's CoLT.
        learning_rate: Its learning rate.
        c2st_epochs: Epochs of C2ST.
        c2st_learning_rate: Its learning rate.
        dims: Dimensions of x and θ that are free to choose, or the only ones.
    """

    alphas: tuple[float, ...]
    num_pairs: int = 100
    num_posterior_samples: int = 500
    epochs: int = 1000
    learning_rate: float = 1e-5
    c2st_epochs: int = 1000
    c2st_learning_rate: float = 1e-5
    dims: tuple[tuple[int, int], ...] = DIMS


_GAUSSIAN = {
    "mean": Setting((0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3), epochs=25),
    "covariance": Setting((0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4)),
    "anisotropic": Setting((0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)),
    "t": Setting((0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)),
    "modes": Setting(
        (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4),
        learning_rate=5e-5,
        c2st_learning_rate=5e-5,
    ),
    "collapse": Setting((0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)),
    "blind": Setting((0.0, 1.0), learning_rate=1e-3),
}
_TRAINED = {
    f"{problem}-{estimator}": Setting(
        (0, 200, 2000, 20000),
        num_pairs=500,
        num_posterior_samples=200,
        dims=((dim, dim),),
    )
    for problem, dim in (("two-moons", 2), ("outliers", 5))
    for estimator in ("npe", "fmpe")
}
SETTINGS: dict[str, Setting] = {
    **_GAUSSIAN,
    **{f"curved-{name}": setting for name, setting in _GAUSSIAN.items()},
    "tree": Setting(
        (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0),
        num_pairs=1000,
        num_posterior_samples=100,
        epochs=5000,
        c2st_epochs=5000,
        dims=((1, 2),),
    ),
    "diffusion": Setting(
        (0, 1, 2, 3, 4, 5), num_pairs=1000, num_posterior_samples=200, dims=((1, 2),)
    ),
    **_TRAINED,
}


def make_task(
    name: str, alpha: float, dims: tuple[int, int] = (3, 3), seed: int = 0
) -> Task:
    """Return a task by its name.

    Args:
        name: A name in `SETTINGS`: a perturbation of the Gaussian family, with
            ``"curved-"`` before it one of the curved family, ``"tree"``,
            ``"diffusion"``, or a trained posterior such as ``"two-moons-npe"``.
        alpha: Size of the error.
        dims: Dimensions of x and θ, for the first two families.
        seed: Seed of what is fixed in the task.

    Example:
        >>> make_task("curved-t", 0.3).draws(4, 5, torch.Generator())
        Draws(num_pairs=4, num_posterior_samples=5, dim=3, x_shape=(3,))
    """
    if name not in SETTINGS:
        raise ValueError(f"task: expected one of {', '.join(SETTINGS)}, got {name!r}.")
    if name == "tree":
        return TreeTask(alpha, seed)
    if name == "diffusion":
        return DiffusionTask(alpha, seed)
    if name in _TRAINED:
        problem, estimator = name.rsplit("-", 1)
        return TrainedTask(problem, estimator, alpha, seed)
    flat = GaussianTask(name.removeprefix("curved-"), alpha, *dims, seed)
    return CurvedTask(flat) if name.startswith("curved-") else flat
