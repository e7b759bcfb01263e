"""An error to find, and the number of pairs to find it with."""

from __future__ import annotations

from dataclasses import dataclass

from sbi_colt.benchmark.tasks.settings import make_task
from sbi_colt.benchmark.tasks.task import Task

__all__ = ["Problem"]


@dataclass(frozen=True)
class Problem:
    """An error of one of the benchmark's tasks and a number of pairs.

    Args:
        task: Name of the task.
        alpha: Size of the error; 0 for none.
        dims: Dimensions of x and θ.
        num_pairs: Number of pairs.
    """

    task: str
    alpha: float
    dims: tuple[int, int]
    num_pairs: int

    @property
    def label(self) -> str:
        """Name and size of the error, dimensions and number of pairs."""
        name = f"{self.task} {self.alpha:g}" if self.alpha else "none"
        return f"{name} {self.dims} {self.num_pairs}"

    def make(self, seed: int) -> Task:
        """Return the task with a seed."""
        return make_task(self.task, self.alpha, self.dims, seed)
