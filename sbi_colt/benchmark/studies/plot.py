"""``plot``: figures of a file of ``sbi-colt benchmark run``."""

from __future__ import annotations

import argparse
from pathlib import Path

from sbi_colt.benchmark.figures import plot_results
from sbi_colt.benchmark.grid.rows import read_rows
from sbi_colt.benchmark.studies.options import show

__all__ = ["add_options", "run"]

DESCRIPTION = "Plot the power curves in a file of sbi-colt benchmark run."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("results", type=Path, help="the CSV file")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="the folder for the figures (default: the current one)",
    )


def run(options: argparse.Namespace) -> int:
    """Write the figures and print their paths."""
    paths = plot_results(read_rows(options.results), options.out)
    nothing = "These rows have no curves; sbi-colt benchmark table prints them."
    return show(map(str, paths or [nothing]))
