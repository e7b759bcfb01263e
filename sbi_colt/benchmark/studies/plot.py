"""Plot the power curves in a file of sbi-colt benchmark run."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from sbi_colt.benchmark.figures import plot_results
from sbi_colt.benchmark.grid.rows import read_rows
from sbi_colt.benchmark.studies.shared import RESULTS

OPTIONS = RESULTS | {
    "--out": {
        "type": Path,
        "default": Path(),
        "metavar": "FOLDER",
        "help": "the folder for the figures (default: the current one)",
    }
}


def run(options: argparse.Namespace) -> Iterable[str]:
    """Write the figures and return their paths."""
    paths = plot_results(read_rows(options.results), options.out)
    nothing = "These rows have no curves; sbi-colt benchmark table prints them."
    return map(str, paths or [nothing])
