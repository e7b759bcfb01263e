"""The cells of the benchmark: what is measured, and the grids of them.

A cell is one task, size of error, pair of dimensions, seed and method.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sbi_colt.benchmark.methods import METHODS
from sbi_colt.benchmark.tasks.settings import SETTINGS, Setting, make_task

__all__ = [
    "EXACT",
    "TRAINED",
    "Cell",
    "default_cells",
    "make_cells",
    "paper_cells",
    "trained_cells",
]

# A column that is no test: a classifier's accuracy against exact draws.
EXACT = "exact-c2st"
# How the names of tasks begin whose q is a posterior that sbi trained.
TRAINED = ("two-moons", "outliers")


@dataclass(frozen=True)
class Cell:
    """What to measure.

    Args:
        task: Name of a task in `SETTINGS`.
        dim_x: Dimension of x.
        dim: Dimension of θ.
        alpha: Size of the error.
        method: Name of a method in `METHODS`, or ``"exact-c2st"``.
        seed: Seed of task, training and batches.
        num_batches: Test batches.
        draws_per_step: Draws that the paper's variants see in a training step, or
            `None` for all of them.
        num_pairs: Pairs to train on, and in each batch; `None` for as many as the paper
            has.
    """

    task: str
    dim_x: int
    dim: int
    alpha: float
    method: str
    seed: int
    num_batches: int
    draws_per_step: int | None
    num_pairs: int | None = None


def make_cells(
    tasks: Iterable[str],
    alphas: Sequence[float] | None = None,
    dims: Sequence[tuple[int, int]] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    num_batches: int = 100,
    draws_per_step: int | None = None,
    num_pairs: int | None = None,
) -> list[Cell]:
    """Return the cells of a grid.

    Args:
        tasks: Names of tasks.
        alphas: Sizes of the error; by default each task's own grid.
        dims: Dimensions of x and θ; by default each task's own.
        methods: Names of methods; by default all of them.
        seeds: Seeds.
        num_batches: Test batches in each cell.
        draws_per_step: Draws that the paper's variants see in a step.
        num_pairs: Pairs to train on, and in each batch.
    """
    cells = []
    for task in tasks:
        if task not in SETTINGS:
            make_task(task, 0)  # says which names there are
        setting = SETTINGS[task]
        for dim_x, dim in _dims(task, setting, dims):
            for alpha in setting.alphas if alphas is None else alphas:
                make_task(task, alpha, (dim_x, dim))  # fails before the work begins
                for seed in dict.fromkeys(seeds):
                    for method in methods or METHODS:
                        _check_method(method, task)
                        cells.append(
                            Cell(
                                task,
                                dim_x,
                                dim,
                                float(alpha),
                                method,
                                seed,
                                num_batches,
                                draws_per_step if method.startswith("paper") else None,
                                num_pairs,
                            )
                        )
    return cells


def _dims(
    task: str, setting: Setting, dims: Sequence[tuple[int, int]] | None
) -> Sequence[tuple[int, int]]:
    fixed = len(setting.dims) == 1
    if not dims or (fixed and tuple(dims) == setting.dims):
        return setting.dims
    if fixed:
        raise ValueError(
            f"dims: the task {task!r} has the dimensions {setting.dims[0]} alone, got "
            f"{', '.join(map(str, dims))}; leave them out."
        )
    return dims


def default_cells(seeds: Sequence[int] = (0,)) -> list[Cell]:
    """Return a grid that two cores run in an hour or so.

    Four sizes of error; the paper's variants see 10 draws per step. At α = 0 all
    perturbations of a family are the same, so it is run for the covariance's alone.
    """
    sizes = {
        "mean": (0.05, 0.15, 0.3),
        "covariance": (0.0, 0.2, 0.6, 1.2),
        "anisotropic": (0.5, 1.5, 3.0),
        "t": (0.1, 0.3, 0.6),
        "modes": (0.05, 0.2, 0.4),
        "collapse": (0.1, 0.3, 0.6),
    }
    few = {"seeds": seeds, "num_batches": 100, "draws_per_step": 10}
    cells = []
    for dims in ((3, 3), (10, 10)):
        for family in ("", "curved-"):
            for name, alphas in sizes.items():
                cells += make_cells([family + name], alphas, [dims], **few)
    cells += make_cells(["blind"], **few)
    # Batches of a thousand pairs: the paper's variants cost most, so less of them.
    large = ("default", "sbc", "tarp")
    cells += make_cells(["diffusion"], methods=large, **{**few, "num_batches": 5})
    others = ("default", "c2st", "sbc", "tarp")
    cells += make_cells(["tree"], (0, 0.5, 1.5, 4), methods=others, **few)
    return cells + make_cells(["tree"], (1.5, 4), methods=("paper-full",), **few)


def trained_cells(seeds: Sequence[int] = (0,)) -> list[Cell]:
    """Return the grid of posteriors that sbi trained: half an hour on two cores."""
    return make_cells(
        [f"{problem}-{kind}" for problem in TRAINED for kind in ("npe", "fmpe")],
        methods=("default", "c2st", EXACT),
        seeds=seeds,
        num_batches=5,
    )


def paper_cells() -> list[Cell]:
    """Return the paper's own grid: 3 seeds, 200 batches, all draws in every step."""
    own = ("lobes", *TRAINED)
    tasks = [name for name in SETTINGS if not name.startswith(own)]
    return make_cells(tasks, seeds=(0, 1, 2), num_batches=200)


def _check_method(method: str, task: str) -> None:
    if method == EXACT and not task.startswith(TRAINED):
        raise ValueError(
            f"method: {EXACT} is for trained posteriors alone, got the task {task!r}."
        )
    if method not in METHODS and method != EXACT:
        raise ValueError(
            f"method: expected one of {', '.join(METHODS)}, {EXACT}, got {method!r}."
        )
