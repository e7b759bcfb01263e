"""Results on the published problems: a row for each trained posterior, in a CSV file.

Lines that start with ``#`` are comments: the commands and the versions that made the
rows below them.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sbi_colt.benchmark.grid.rows import drop_half_line, metadata

__all__ = ["PublishedRow", "append_row", "read_published"]


@dataclass(frozen=True)
class PublishedRow:
    """What is true of one posterior, and what the diagnostics say of it.

    A number that was not measured is NaN.

    Args:
        task: Name of the problem.
        estimator: Name of the estimator.
        num_simulations: Number of simulations that the posterior was trained on.
        budget: ``"default"`` or ``"large"``.
        seed: Seed of the diagnostics.
        c2st: Mean accuracy of a classifier against draws of the true posterior.
        narrowest: Smallest ratio of widths, posterior over truth, of any parameter.
        widest: Largest ratio of widths.
        colt_p: p-value of the parameter side.
        colt_distance: Distance of the parameter side.
        colt_lower: Certified bound of the parameter side.
        predictive_p: p-value of the data side.
        predictive_distance: Distance of the data side.
        predictive_lower: Certified bound of the data side.
        p_value: p-value of the verdict.
        distance: Distance of the report.
        distance_lower: Certified bound of the report.
        sbc_p: p-value of SBC.
        tarp_p: p-value of TARP.
        lc2st_share: Share of ten observations that L-C2ST rejects at level 0.05.
        train_seconds: Seconds of training.
        parameter_seconds: Seconds of the parameter side, with simulations and draws.
        data_seconds: Seconds of the data side, with replicates.
        sbc_seconds: Seconds of SBC, without draws.
        tarp_seconds: Seconds of TARP, without draws.
        lc2st_seconds: Seconds of L-C2ST, with simulations and draws.
    """

    task: str
    estimator: str
    num_simulations: int
    budget: str
    seed: int
    c2st: float
    narrowest: float
    widest: float
    colt_p: float
    colt_distance: float
    colt_lower: float
    predictive_p: float
    predictive_distance: float
    predictive_lower: float
    p_value: float
    distance: float
    distance_lower: float
    sbc_p: float
    tarp_p: float
    lc2st_share: float
    train_seconds: float
    parameter_seconds: float
    data_seconds: float
    sbc_seconds: float
    tarp_seconds: float
    lc2st_seconds: float

    @property
    def key(self) -> tuple[str, str, int, str, int]:
        """What tells a row from all others."""
        return (
            self.task,
            self.estimator,
            self.num_simulations,
            self.budget,
            self.seed,
        )


_COLUMNS = [field.name for field in fields(PublishedRow)]
_KINDS = {"task": str, "estimator": str, "budget": str}
_KINDS |= {"num_simulations": int, "seed": int}  # all others are floats


def read_published(path: str | os.PathLike) -> list[PublishedRow]:
    """Return the rows of a CSV file, none if there is no file yet.

    A last line that was cut off when its process was killed is left out.
    """
    path = Path(path)
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    lines = text[: text.rfind("\n") + 1].splitlines()
    rows = list(csv.reader(line for line in lines if not line.startswith("#")))
    if not rows or rows[0] != _COLUMNS:
        raise ValueError(
            f"{path}: expected a file of sbi-colt benchmark published, with columns "
            f"{', '.join(_COLUMNS)}."
        )
    return [_row(texts, path) for texts in rows[1:]]


def append_row(path: str | os.PathLike, row: PublishedRow, command: str) -> None:
    """Add a row to a CSV file, which is made if there is none.

    Args:
        path: The CSV file.
        row: The row.
        command: The command line, which is kept in the file as a comment.
    """
    path = Path(path)
    made_by = metadata(command)
    text = ""
    if path.exists():
        drop_half_line(path)
        text = path.read_text(encoding="utf-8")
    if ",".join(_COLUMNS) not in text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made_by + ",".join(_COLUMNS) + "\n", encoding="utf-8")
    elif made_by not in text:
        with path.open("a", encoding="utf-8") as file:
            file.write(made_by)
    with path.open("a", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(_texts(row))


def _texts(row: PublishedRow) -> list[str]:
    values = (getattr(row, name) for name in _COLUMNS)
    return [f"{v:.6g}" if isinstance(v, float) else str(v) for v in values]


def _row(texts: list[str], path: Path) -> PublishedRow:
    try:
        if len(texts) != len(_COLUMNS):
            raise ValueError(f"{len(texts)} instead of {len(_COLUMNS)} columns")
        values: list[Any] = [
            _KINDS.get(name, float)(text)
            for name, text in zip(_COLUMNS, texts, strict=True)
        ]
        return PublishedRow(*values)
    except ValueError as error:
        raise ValueError(
            f"{path}: expected a row of sbi-colt benchmark published, got "
            f"{','.join(texts)!r} ({error}); remove it, and run the command again."
        ) from error
