"""Run the benchmark cell by cell, in parallel, and resume an interrupted run.

A cell trains on one set of pairs and tests its method on many fresh batches. All
methods of a task see the same pairs. Cells that differ only in the method therefore run
as one group, because making the batches of large problems takes longer than testing
them. Each cell is a line of a CSV file, written as soon as its group is done.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

import torch
from tqdm.auto import tqdm

from sbi_colt.benchmark.grid.rows import EXACT, Cell, Row, packed
from sbi_colt.benchmark.methods import known_methods
from sbi_colt.benchmark.row_files import append_rows, rows_so_far
from sbi_colt.benchmark.tasks.settings import SETTINGS, make_task
from sbi_colt.benchmark.tasks.task import Setting, Task
from sbi_colt.benchmark.tasks.trained import TrainedTask
from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from
from sbi_colt.sampling.parallel import in_parallel, one_thread

__all__ = ["run_cells", "run_grid", "run_group"]

_LEVEL = 0.05
_NUM_EXACT_XS = 10
_MANY_EPOCHS = 5000  # of the paper's variants: a quarter of an hour in a cell


def run_cells(
    cells: Sequence[Cell],
    path: str | os.PathLike,
    *,
    num_workers: int = 1,
    command: str = "",
    show_progress_bar: bool = True,
) -> list[Row]:
    """Run the cells that a CSV file does not have yet, and return all rows of it.

    With one worker, a joblib backend that you have set decides how many there are. The
    command line is kept in the file as a comment.
    """
    done = {row.cell for row in rows_so_far(path, Row)}
    left = [cell for cell in cells if cell not in done]
    before = len(cells) - len(left)
    tasks = [(group,) for group in _together(left)]
    with tqdm(
        desc="Cells", total=len(cells), initial=before, disable=not show_progress_bar
    ) as progress:
        for rows in in_parallel(run_group, tasks, num_workers, ordered=False):
            append_rows(path, rows, command)
            progress.set_postfix_str(rows[0].cell.task)
            progress.update(len(rows))
    return rows_so_far(path, Row)


def run_grid(cells: Sequence[Cell], options: argparse.Namespace) -> list[Row]:
    """Run cells with the options of a command, and return their rows."""
    rows = run_cells(
        cells,
        options.out,
        num_workers=options.jobs,
        command=options.command_line,
        show_progress_bar=not options.quiet,
    )
    asked = set(cells)  # the file may have other cells
    return [row for row in rows if row.cell in asked]


def _together(cells: Iterable[Cell]) -> list[tuple[Cell, ...]]:
    """Return the cells that see the same batches, the longest first."""
    groups: dict[Cell, list[Cell]] = defaultdict(list)
    for cell in cells:
        # A long cell is a group of its own and comes first. Otherwise one process
        # might work on it at the end while the others wait.
        key = cell if _is_long(cell) else replace(cell, method="", draws_per_step=None)
        groups[key].append(cell)
    tuples = [tuple(group) for group in groups.values()]
    return sorted(tuples, key=lambda group: not _is_long(group[0]))


def _is_long(cell: Cell) -> bool:
    is_paper = cell.method.startswith("paper")
    return is_paper and SETTINGS[cell.task].epochs >= _MANY_EPOCHS


def run_group(cells: Sequence[Cell]) -> list[Row]:
    """Return the rows of cells that differ only in the method, on one thread."""
    cell = cells[0]
    setting = SETTINGS[cell.task]
    task = make_task(cell.task, cell.alpha, (cell.dim_x, cell.dim), cell.seed)
    stream = (cell.task, cell.dim_x, cell.dim, str(cell.alpha))

    def batch(name: str | int):
        generator = generator_from(cell.seed, "benchmark", *stream, name)
        num_pairs = cell.num_pairs or setting.num_pairs
        return task.draws(num_pairs, setting.num_posterior_samples, generator)

    exact = [one for one in cells if one.method == EXACT]
    tested = [one for one in cells if one.method != EXACT]
    with one_thread():
        generator = generator_from(cell.seed, EXACT, *stream)
        rows = {one: _exact_row(one, task, generator) for one in exact}
        if tested:
            train = batch("train")
            runs = [_Run(one, train, setting) for one in tested]
            for index in range(cell.num_batches):
                draws = batch(index)
                for run in runs:
                    run.test(draws)
            rows |= {run.cell: run.row() for run in runs}
    return [rows[one] for one in cells]


def _exact_row(cell: Cell, task: Task, generator: torch.Generator) -> Row:
    if not isinstance(task, TrainedTask):
        raise ValueError(f"method: {EXACT} is for trained posteriors alone.")
    start = time.perf_counter()
    accuracy = task.accuracy(_NUM_EXACT_XS, generator)
    seconds = time.perf_counter() - start
    return Row(cell, float("nan"), accuracy, float("nan"), 0.0, seconds)


class _Run:
    """One cell's method, trained, and what it has found so far."""

    def __init__(self, cell: Cell, train: Draws, setting: Setting):
        self.cell = cell
        start = time.perf_counter()
        make = known_methods()[cell.method]
        self.tester = make(train, setting, cell.seed, cell.draws_per_step)
        self.fit_seconds = time.perf_counter() - start
        self.test_seconds = 0.0
        # p-value, statistic and certified distance of each batch
        self.found: list[tuple[float, float, float]] = []

    def test(self, draws: Draws) -> None:
        start = time.perf_counter()
        result = self.tester(draws)
        self.test_seconds += time.perf_counter() - start
        lower = getattr(result, "distance_lower", float("nan"))
        self.found.append((result.p_value, result.statistic, lower))

    def row(self) -> Row:
        p_values, statistics, lower = zip(*self.found, strict=True)
        return Row(
            self.cell,
            fmean(p <= _LEVEL for p in p_values),
            fmean(statistics),
            fmean(lower),
            self.fit_seconds,
            self.test_seconds / len(self.found),
            packed([p <= _LEVEL for p in p_values]),
        )
