"""The benchmark's tasks by name, with the paper's settings for each.

Settings are those of Chen, Bansal and Scott (2025), Appendix C.4. A task has
``draws(num_pairs, num_posterior_samples, generator)``; at α = 0 its q is its p.

A task of your own is an entry in `SETTINGS`::

    SETTINGS["mine"] = Setting(
        lambda alpha, dims, seed: MyTask(alpha, seed), (0.0, 0.5, 1.0), dims=((2, 2),)
    )

It runs under its name, in this process; for several, it must be in this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from sbi_colt.benchmark.tasks.curved import CurvedTask
from sbi_colt.benchmark.tasks.diffusion import DiffusionTask
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.benchmark.tasks.lobes import LobesTask
from sbi_colt.benchmark.tasks.trained import TrainedTask
from sbi_colt.benchmark.tasks.tree import TreeTask
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


Maker = Callable[[Any, tuple[int, int], int], Task]


def _gaussian(name: str) -> Maker:
    return lambda alpha, dims, seed: GaussianTask(name, alpha, *dims, seed)


def _curved(name: str) -> Maker:
    return lambda alpha, dims, seed: CurvedTask(GaussianTask(name, alpha, *dims, seed))


def _trained(problem: str, estimator: str) -> Maker:
    return lambda alpha, dims, seed: TrainedTask(problem, estimator, alpha, seed)


@dataclass(frozen=True)
class Setting:
    """The paper's settings for one task.

    Args:
        make: From α, the dimensions of x and θ, and a seed to the task.
        alphas: Grid of perturbation sizes.
        num_pairs: Pairs, N, for training and for each test batch.
        num_posterior_samples: Draws per pair, K.
        epochs: Epochs of the paper's CoLT.
        learning_rate: Its learning rate.
        c2st_epochs: Epochs of C2ST.
        c2st_learning_rate: Its learning rate.
        dims: Dimensions of x and θ that are free to choose, or the only ones.
    """

    make: Maker
    alphas: tuple[float, ...]
    num_pairs: int = 100
    num_posterior_samples: int = 500
    epochs: int = 1000
    learning_rate: float = 1e-5
    c2st_epochs: int = 1000
    c2st_learning_rate: float = 1e-5
    dims: tuple[tuple[int, int], ...] = DIMS


_ALPHAS: dict[str, tuple[float, ...]] = {
    "mean": (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
    "covariance": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4),
    "anisotropic": (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0),
    "t": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    "modes": (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4),
    "collapse": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    "blind": (0.0, 1.0),
}
_CHANGES: dict[str, dict[str, Any]] = {
    "mean": {"epochs": 25},
    "modes": {"learning_rate": 5e-5, "c2st_learning_rate": 5e-5},
    "blind": {"learning_rate": 1e-3},
}
SETTINGS: dict[str, Setting] = {
    **{
        family + name: Setting(maker(name), alphas, **_CHANGES.get(name, {}))
        for family, maker in (("", _gaussian), ("curved-", _curved))
        for name, alphas in _ALPHAS.items()
    },
    "tree": Setting(
        lambda alpha, dims, seed: TreeTask(alpha, seed),
        (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0),
        num_pairs=1000,
        num_posterior_samples=100,
        epochs=5000,
        c2st_epochs=5000,
        dims=((1, 2),),
    ),
    "diffusion": Setting(
        lambda alpha, dims, seed: DiffusionTask(alpha, seed),
        (0, 1, 2, 3, 4, 5),
        num_pairs=1000,
        num_posterior_samples=200,
        dims=((1, 2),),
    ),
    "lobes": Setting(
        lambda alpha, dims, seed: LobesTask(alpha, seed),
        (0.0, 0.5, 1.0),
        num_pairs=300,
        num_posterior_samples=200,
        dims=((2, 2),),
    ),
    **{
        f"{problem}-{estimator}": Setting(
            _trained(problem, estimator),
            (0, 200, 2000, 20000),
            num_pairs=500,
            num_posterior_samples=200,
            dims=((dim, dim),),
        )
        for problem, dim in (("two-moons", 2), ("outliers", 5))
        for estimator in ("npe", "fmpe")
    },
}


def make_task(
    name: str, alpha: float, dims: tuple[int, int] = (3, 3), seed: int = 0
) -> Task:
    """Return a task by its name.

    Args:
        name: A name in `SETTINGS`: a perturbation of the Gaussian family, with
            ``"curved-"`` before it one of the curved family, ``"tree"``,
            ``"diffusion"``, ``"lobes"``, or a trained posterior such as
            ``"two-moons-npe"``.
        alpha: Size of the error.
        dims: Dimensions of x and θ, for the first two families.
        seed: Seed of what is fixed in the task.

    Example:
        >>> make_task("curved-t", 0.3).draws(4, 5, torch.Generator())
        Draws(num_pairs=4, num_posterior_samples=5, dim=3, x_shape=(3,))
    """
    if name not in SETTINGS:
        raise ValueError(f"task: expected one of {', '.join(SETTINGS)}, got {name!r}.")
    return SETTINGS[name].make(alpha, dims, seed)
