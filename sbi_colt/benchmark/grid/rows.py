"""A cell of the benchmark, and the row that is measured in it.

A cell is one measurement: one task, size of the error, pair of dimensions, seed and
method. The method is trained once and tested on many fresh batches of pairs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from sbi_colt.benchmark import row_files

__all__ = ["EXACT", "Cell", "Row", "packed", "read_rows", "unpacked"]

# Not a test but a yardstick for trained posteriors: a classifier's accuracy against
# exact draws.
EXACT = "exact-c2st"


@dataclass(frozen=True)
class Cell:
    """What to measure."""

    task: str  # a name in `SETTINGS`
    dim_x: int
    dim: int  # of θ
    alpha: float  # size of the error
    method: str  # a name in `benchmark.methods`, or `EXACT`
    seed: int  # of task, training and batches
    num_batches: int
    draws_per_step: int | None  # of the paper's variants; `None`: all draws
    num_pairs: int | None = None  # to train on, and per batch; `None`: as in `Setting`


@dataclass(frozen=True)
class Row:
    """What was measured in a cell."""

    cell: Cell
    power: float  # share of the batches rejected at level 0.05
    statistic: float  # mean over the batches; for CoLT the distance
    distance_lower: float  # mean certified distance, for CoLT
    fit_seconds: float
    test_seconds: float  # of one test, on average
    batches: str = ""  # which batches are rejected, as a hexadecimal number

    def __post_init__(self):
        if not (0 <= self.power <= 1 or math.isnan(self.power)):
            raise ValueError(f"a power of {self.power}")


def packed(rejected: Sequence[bool]) -> str:
    """Return which batches are rejected as a hexadecimal number; the first is its top.

    Example:
        >>> packed([True, False, False, False, True])
        '11'
    """
    return f"{int(''.join(str(int(r)) for r in rejected), 2):x}"


def unpacked(row: Row) -> list[bool]:
    """Return which batches are rejected, or an empty list where that was not kept."""
    if not row.batches:
        return []
    bits = f"{int(row.batches, 16):0{row.cell.num_batches}b}"
    return [bit == "1" for bit in bits]


def read_rows(path: str | os.PathLike) -> list[Row]:
    """Read the rows of a CSV file that `run_cells` wrote."""
    return row_files.read_rows(path, Row)
