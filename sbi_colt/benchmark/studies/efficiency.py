"""Measure power by the number of simulations, on one hard cell.

The default and the paper's variants have 50 to 3000 simulations, half of them for
training (half an hour on two cores). Cells that the file already has are not run again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean

from sbi_colt.benchmark.claims import Claim, claim_lines
from sbi_colt.benchmark.grid.cells import make_cells
from sbi_colt.benchmark.grid.rows import Cell, Row
from sbi_colt.benchmark.grid.runner import run_grid
from sbi_colt.benchmark.studies.shared import grid_options
from sbi_colt.benchmark.tables import aligned

OPTIONS = grid_options("efficiency.csv")
_METHODS = ("default", "paper-full", "paper-id")
_PAIRS = (25, 50, 100, 200, 400, 800, 1500)
_GOAL = 0.8


def run(options: argparse.Namespace) -> Iterator[str]:
    """Fill the file, and yield the table and its claim."""
    rows = run_grid(efficiency_cells(), options)
    yield from (*efficiency_lines(rows), "", *claim_lines(efficiency_claims(rows)))


def efficiency_cells() -> list[Cell]:
    """Return a cell that is hard for the default but not for the paper's variants.

    Three task seeds up to 800 simulations, where the curves rise; one beyond.
    """
    cells = []
    for num_pairs in _PAIRS:
        cells += make_cells(
            ["curved-anisotropic"],
            (1.5,),
            [(3, 3)],
            _METHODS,
            seeds=(0, 1, 2) if num_pairs <= 400 else (0,),
            num_batches=50,
            draws_per_step=10,
            num_pairs=num_pairs,
        )
    return cells


def efficiency_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield mean power by the number of simulations, and where it reaches 0.8."""
    curves = _curves(rows)
    sizes = sorted({size for curve in curves.values() for size in curve})
    yield aligned(("simulations", *sizes), 14, 8) + f"   to {_GOAL}"
    for name, curve in curves.items():
        texts = (f"{curve[s]:.2f}" if s in curve else "" for s in sizes)
        reached = _reached(curve)
        end = "never" if reached == math.inf else f"{reached:.0f}"
        yield aligned((name, *texts), 14, 8) + f"{end:>9}"


def efficiency_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claim that half the simulations of the paper's variants are enough."""
    reached = {name: _reached(curve) for name, curve in _curves(rows).items()}
    if not set(_METHODS) <= reached.keys():
        return []
    ours, paper = reached["default"], min(reached[name] for name in _METHODS[1:])
    against = ()
    if ours == math.inf or ours > paper / 2:
        shown = "never reaches it" if ours == math.inf else f"needs {ours:.0f}"
        against = (f"the default {shown}, the better variant needs {paper:.0f}",)
    text = f"For a power of {_GOAL} the default needs at most half the simulations of"
    return [Claim(f"{text} the better of the paper's variants", against)]


def _curves(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Return each method's mean power by the number of simulations."""
    found: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        if row.cell.num_pairs is not None:
            own = found.setdefault(row.cell.method, {})
            own.setdefault(2 * row.cell.num_pairs, []).append(row.power)
    return {
        m: {n: fmean(values) for n, values in own.items()} for m, own in found.items()
    }


def _reached(curve: dict[int, float]) -> float:
    """Return the simulations for a power of 0.8, interpolated in the logarithm."""
    points = sorted(curve.items())
    if points[0][1] >= _GOAL:
        return float(points[0][0])
    for (a, low), (b, high) in pairwise(points):
        if low < _GOAL <= high:
            share = (_GOAL - low) / (high - low)
            return math.exp(math.log(a) + share * math.log(b / a))
    return math.inf
