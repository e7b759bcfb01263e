"""What several tests of the benchmark share."""

import math

from sbi_colt import CoLT, CoLTConfig
from sbi_colt.benchmark.grid.cells import make_cells
from sbi_colt.benchmark.grid.rows import EXACT, Row


def fixed_distance(task, num_pairs, num_samples, generator):
    """The distance that probes without training find between q and p of a task."""
    config = CoLTConfig(probes=("mahalanobis", "random"), num_redraws=199)
    colt = CoLT(config, seed=0).fit(
        task.draws(20, num_samples, generator), show_progress_bar=False
    )
    return colt.test(task.draws(num_pairs, num_samples, generator)).distance


def rows_of_all_families():
    """Made-up rows whose power rises with α."""
    rows = []
    chosen = [
        *make_cells(["mean", "curved-t"], dims=[(3, 3)], draws_per_step=5),
        *make_cells(["covariance", "curved-covariance"], (0.0,), [(3, 3)]),
        *make_cells(["blind"], seeds=(0, 1)),
        *make_cells(["tree", "diffusion"]),
        *make_cells(["two-moons-npe"], methods=("default", EXACT)),
    ]
    for cell in chosen:
        power = math.nan if cell.method == EXACT else min(1.0, 0.05 + cell.alpha / 5)
        if cell.task == "blind" and cell.method == "paper-full":
            power = 0.1 + 0.2 * cell.seed
        rows.append(Row(cell, power, 0.5, 0.1, 1.0, 0.1))
    return rows
