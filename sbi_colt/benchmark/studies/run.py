"""``run``: power of chosen methods on chosen tasks, or of a whole grid."""

from __future__ import annotations

import argparse

from sbi_colt.benchmark.grid.cells import (
    Cell,
    default_cells,
    make_cells,
    paper_cells,
    trained_cells,
)
from sbi_colt.benchmark.methods import METHODS
from sbi_colt.benchmark.studies.options import (
    add_dims,
    add_grid_options,
    at_least,
    run_grid,
)
from sbi_colt.benchmark.tasks.settings import SETTINGS

__all__ = ["add_options", "run"]

DESCRIPTION = (
    "Measure how often each method rejects, on the tasks of the CoLT paper and on "
    "posteriors that sbi trained. Without --task, the command runs a grid of the "
    "paper's tasks, in about an hour on two cores. Cells that the file already has are "
    "not run again."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--task",
        nargs="+",
        metavar="NAME",
        help=f"names of tasks, of {', '.join(SETTINGS)}",
    )
    parser.add_argument(
        "--alpha",
        nargs="+",
        type=float,
        help="sizes of the error (default: the paper's)",
    )
    add_dims(parser, "dimensions of x and theta, such as 3,3 10,10")
    parser.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        help=f"names of methods, of {', '.join(METHODS)} (default: all)",
    )
    parser.add_argument(
        "--seeds", nargs="+", type=at_least(0), help="seeds (default: 0)"
    )
    parser.add_argument(
        "--batches", type=at_least(1), help="test batches in a cell (default: 100)"
    )
    parser.add_argument(
        "--draws-per-step",
        type=at_least(1),
        help="draws that the paper's variants see in a training step (default: all)",
    )
    parser.add_argument(
        "--trained",
        action="store_true",
        help="run posteriors that sbi trained instead of the paper's tasks (half an "
        "hour on two cores)",
    )
    parser.add_argument(
        "--paper",
        action="store_true",
        help="run the paper's whole grid: all sizes and dimensions, 3 seeds, 200 "
        "batches (days on two cores)",
    )
    add_grid_options(parser, "results.csv")


def run(options: argparse.Namespace) -> int:
    """Run the cells that the options ask for."""
    _check_fixed(options)
    cells = _cells(options)
    run_grid(cells, options)
    print(f"{len(cells)} cells in {options.out}")
    return 0


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
