"""Options that several commands share, and how their lines are printed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sbi_colt.benchmark.grid.cells import Cell
from sbi_colt.benchmark.grid.rows import Row
from sbi_colt.benchmark.grid.runner import run_cells

__all__ = [
    "add_dims",
    "add_grid_options",
    "add_jobs",
    "add_quiet",
    "at_least",
    "run_grid",
    "show",
]


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an option that is an integer with a smallest value."""

    def integer(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"expected an integer >= {least}, got {text!r}"
            )
        return int(text)

    return integer


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add the number of processes."""
    parser.add_argument(
        "--jobs", type=at_least(1), default=2, help="number of processes (default: 2)"
    )


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add an option that hides progress."""
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")


def add_dims(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Add pairs of dimensions."""
    parser.add_argument(
        "--dims", nargs="+", type=_dims, metavar="X,THETA", help=help_text
    )


def add_grid_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the options of a command that fills a CSV file cell by cell."""
    add_jobs(parser)
    add_quiet(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(name),
        metavar="FILE",
        help="the CSV file (default: %(default)s)",
    )


def run_grid(cells: Sequence[Cell], options: argparse.Namespace) -> list[Row]:
    """Run cells with the options of `add_grid_options`, and return their rows."""
    rows = run_cells(
        cells,
        options.out,
        num_workers=options.jobs,
        command=options.command_line,
        show_progress_bar=not options.quiet,
    )
    asked = set(cells)  # the file may have other cells
    return [row for row in rows if row.cell in asked]


def show(lines: Iterable[str]) -> int:
    """Print lines as they come, and return the exit code of success."""
    for line in lines:
        print(line, flush=True)
    return 0


def _dims(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"expected two sizes such as 3,3, got {text}")
    return int(parts[0]), int(parts[1])
