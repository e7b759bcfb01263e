"""A cell of the benchmark, and the row that is measured in it.

A cell is one measurement: one task, size of the error, pair of dimensions, seed and
method. The method is trained once and tested on many fresh batches of pairs.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from sbi_colt.benchmark import row_files

__all__ = ["EXACT", "Cell", "Row", "read_rows"]

# Not a test but a yardstick for trained posteriors: a classifier's accuracy against
# exact draws.
EXACT = "exact-c2st"


@dataclass(frozen=True)
class Cell:
    """What to measure.

    Args:
        task: Name of a task in `SETTINGS`.
        dim_x: Dimension of x.
        dim: Dimension of θ.
        alpha: Size of the error.
        method: Name of a method in `benchmark.methods`, or ``"exact-c2st"``.
        seed: Seed of task, training and batches.
        num_batches: Test batches.
        draws_per_step: Draws that the paper's variants see in a training step, or
            `None` for all of them.
        num_pairs: Pairs to train on, and pairs in each batch; `None` for the number
            in the task's setting.
    """

    task: str
    dim_x: int
    dim: int
    alpha: float
    method: str
    seed: int
    num_batches: int
    draws_per_step: int | None
    num_pairs: int | None = None


@dataclass(frozen=True)
class Row:
    """What was measured in a cell.

    Args:
        cell: The cell.
        power: Share of the batches rejected at level 0.05.
        statistic: Mean statistic; for CoLT the distance.
        distance_lower: Mean certified distance, for CoLT.
        fit_seconds: Seconds of training.
        test_seconds: Seconds of a test, on average.
    """

    cell: Cell
    power: float
    statistic: float
    distance_lower: float
    fit_seconds: float
    test_seconds: float

    def __post_init__(self):
        if not (0 <= self.power <= 1 or math.isnan(self.power)):
            raise ValueError(f"a power of {self.power}")


def read_rows(path: str | os.PathLike) -> list[Row]:
    """Read the rows of a CSV file that `run_cells` wrote."""
    return row_files.read_rows(path, Row)
