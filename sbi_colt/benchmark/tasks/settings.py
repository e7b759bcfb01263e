"""The registry of tasks: the name of each, and its setting.

To add a task, write a file with a class that has ``draws`` (see `task.Task`) and a
`Setting`, and add one line to `SETTINGS`. A task that a script adds to `SETTINGS` is
known in the script's own process only.
"""

from __future__ import annotations

from sbi_colt.benchmark.tasks import (
    bias,
    curved,
    diffusion,
    gaussian,
    lobes,
    trained,
    tree,
)
from sbi_colt.benchmark.tasks.task import Setting, Task

__all__ = ["SETTINGS", "Setting", "make_task", "setting_of"]

SETTINGS: dict[str, Setting] = {
    **gaussian.SETTINGS,  # one for each perturbation
    **curved.SETTINGS,  # the same names after "curved-"
    "tree": tree.SETTING,
    "diffusion": diffusion.SETTING,
    "lobes": lobes.SETTING,
    "bias": bias.SETTING,
    **trained.SETTINGS,  # one for each problem and estimator, as "two-moons-npe"
}


def make_task(
    name: str, alpha: float, dims: tuple[int, int] = (3, 3), seed: int = 0
) -> Task:
    """Return a task by its name; the dimensions are for tasks that have several.

    Example:
        >>> import torch
        >>> make_task("curved-t", 0.3).draws(4, 5, torch.Generator())
        Draws(num_pairs=4, num_posterior_samples=5, dim=3, x_shape=(3,))
    """
    return setting_of(name).make(alpha, dims, seed)


def setting_of(name: str) -> Setting:
    """Return the setting of a task by its name."""
    if name not in SETTINGS:
        raise ValueError(f"task: expected one of {', '.join(SETTINGS)}, got {name!r}.")
    return SETTINGS[name]
