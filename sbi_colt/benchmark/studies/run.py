"""Measure how often each method rejects, on the paper's tasks and trained posteriors.

Without --task, the command runs a grid of the paper's tasks, in about an hour on two
cores. Cells that the file already has are not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from sbi_colt.benchmark.grid.cells import (
    default_cells,
    make_cells,
    paper_cells,
    trained_cells,
)
from sbi_colt.benchmark.grid.rows import Cell
from sbi_colt.benchmark.grid.runner import run_grid
from sbi_colt.benchmark.methods import known_methods
from sbi_colt.benchmark.studies.shared import (
    at_least,
    count_option,
    dims_option,
    flag,
    grid_options,
)
from sbi_colt.benchmark.tasks.settings import SETTINGS

_TASK = f"names of tasks, of {', '.join(SETTINGS)}"
_ALPHA = "sizes of the error (default: the paper's)"
_NAMES = ", ".join(known_methods())
_METHODS = f"names of methods, of {_NAMES} (default: all but predictive)"
_STEP = "draws that the paper's variants see in a training step (default: all)"
_TRAINED = """run posteriors that sbi trained instead of the paper's tasks (half an
hour on two cores)"""
_PAPER = """run the paper's whole grid: all sizes and dimensions, 3 seeds, 200 batches
(days on two cores)"""
OPTIONS = {
    "--task": {"nargs": "+", "metavar": "NAME", "help": _TASK},
    "--alpha": {"nargs": "+", "type": float, "help": _ALPHA},
    **dims_option("dimensions of x and theta, such as 3,3 10,10"),
    "--methods": {"nargs": "+", "metavar": "NAME", "help": _METHODS},
    "--seeds": {"nargs": "+", "type": at_least(0), "help": "seeds (default: 0)"},
    "--batches": count_option("test batches in a cell (default: 100)"),
    "--draws-per-step": count_option(_STEP),
    "--trained": flag(_TRAINED),
    "--paper": flag(_PAPER),
    **grid_options("results.csv"),
}


def run(options: argparse.Namespace) -> Iterator[str]:
    """Run the cells that the options ask for."""
    _check_fixed(options)
    cells = _cells(options)
    run_grid(cells, options)
    yield f"{len(cells)} cells in {options.out}"


def _cells(options: argparse.Namespace) -> list[Cell]:
    seeds = options.seeds or (0,)
    if options.paper:
        return paper_cells()
    if options.trained:
        return trained_cells(seeds)
    if options.task is None:
        return default_cells(seeds)
    return make_cells(
        options.task,
        options.alpha,
        options.dims,
        options.methods,
        seeds,
        options.batches or 100,
        options.draws_per_step,
    )


def _check_fixed(options: argparse.Namespace) -> None:
    """Raise if options are given that a fixed grid would ignore."""
    names = ["alpha", "dims", "methods", "batches", "draws_per_step"]
    if options.paper:
        grid, names = "of --paper", [*names, "task", "seeds", "trained"]
    elif options.trained:
        grid, names = "of --trained", [*names, "task"]
    elif options.task is None:
        grid = "without --task"
    else:
        return
    given = [name for name in names if getattr(options, name) not in (None, False)]
    if given:
        shown = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"{shown}: the grid {grid} is fixed.")
