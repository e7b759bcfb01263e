"""The benchmark's results: a row for each cell, in a CSV file.

Lines that start with ``#`` are comments: the commands and the versions that made the
rows below them.
"""

from __future__ import annotations

import csv
import math
import os
import platform
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from importlib.metadata import version
from pathlib import Path

from sbi_colt.benchmark.grid.cells import Cell

__all__ = [
    "Row",
    "check_columns",
    "drop_half_line",
    "header",
    "metadata",
    "plain_row",
    "read_rows",
]

_NONE = "all"  # stands for `None` in a file


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


_COLUMNS = [field.name for kind in (Cell, Row) for field in fields(kind)]
_COLUMNS.remove("cell")


def read_rows(path: str | os.PathLike) -> list[Row]:
    """Read the rows of a CSV file that `run_cells` wrote."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = file.read().splitlines()
    check_columns(path, lines)
    rows = []
    for number, line in enumerate(lines, start=1):
        texts = next(csv.reader([line]), [])
        if line.startswith("#") or texts in ([], _COLUMNS):
            continue
        try:
            if len(texts) != len(_COLUMNS):
                raise ValueError(f"{len(texts)} instead of {len(_COLUMNS)} columns")
            rows.append(_row(texts))
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number}: expected a row of sbi-colt benchmark, got "
                f"{line!r} ({error}); remove it, and run the command again."
            ) from error
    return rows


def check_columns(path: str | os.PathLike, lines: Iterable[str]) -> None:
    """Raise unless the first line that is no comment names the columns."""
    first = next((line for line in lines if not line.startswith("#")), "")
    if first.split(",") != _COLUMNS:
        raise ValueError(
            f"{path}: expected a file of sbi-colt benchmark, with columns "
            f"{', '.join(_COLUMNS)}."
        )


def _row(texts: list[str]) -> Row:
    task, dim_x, dim, alpha, method, seed, batches, steps, pairs, *numbers = texts
    where = (task, int(dim_x), int(dim), float(alpha), method, int(seed))
    counts = (None if text == _NONE else int(text) for text in (steps, pairs))
    cell = Cell(*where, int(batches), *counts)
    row = Row(cell, *map(float, numbers))
    if not (0 <= row.power <= 1 or math.isnan(row.power)):
        raise ValueError(f"a power of {row.power}")
    return row


def drop_half_line(path: Path) -> None:
    """Remove a last line that was cut off when its process was killed."""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        path.write_bytes(whole)


def plain_row(row: Row) -> list[str]:
    """Return the texts of a row, in the order of the columns."""
    cell, *numbers = (getattr(row, field.name) for field in fields(row))
    texts = [_NONE if value is None else str(value) for value in astuple(cell)]
    return texts + [f"{number:.6g}" for number in numbers]


def header(command: str) -> str:
    """Return the first lines of a file: comments, then the names of the columns."""
    return metadata(command) + ",".join(_COLUMNS) + "\n"


def metadata(command: str) -> str:
    """Return the command and the versions that make the rows below, as comments."""
    packages = ("sbi_colt", "sbi", "torch", "numpy", "scipy")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    made_by = command or "sbi_colt.benchmark.grid.runner.run_cells"
    return f"# {made_by}\n# Python {platform.python_version()}, {versions}\n"
