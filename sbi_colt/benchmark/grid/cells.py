"""Grids of cells: which cells each command measures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from sbi_colt.benchmark.grid.rows import EXACT, Cell
from sbi_colt.benchmark.methods import METHODS, known_methods
from sbi_colt.benchmark.tasks.settings import SETTINGS, make_task, setting_of
from sbi_colt.benchmark.tasks.task import Setting

__all__ = ["default_cells", "make_cells", "paper_cells", "trained_cells"]


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
    """Return the cells of a grid; see `Cell` for the arguments.

    By default each task has its own sizes and dimensions, and all methods.
    """
    cells = []
    for task in tasks:
        setting = setting_of(task)
        names = list(methods or METHODS)
        for name in names:
            _check_method(name, task)
        sizes = setting.alphas if alphas is None else alphas
        for pair, alpha in product(_dims(task, setting, dims), sizes):
            make_task(task, alpha, pair)  # raises before the work begins
            for seed, name in product(dict.fromkeys(seeds), names):
                steps = draws_per_step if name.startswith("paper") else None
                where = (task, *pair, float(alpha), name, seed)
                cells.append(Cell(*where, num_batches, steps, num_pairs))
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

    Each error has four sizes, and the paper's variants see 10 draws per step. At α = 0
    all perturbations of a family are the same task, which is run as "covariance" only.
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
    # With batches of a thousand pairs the paper's variants would take most of the time.
    large = ("default", "sbc", "tarp")
    cells += make_cells(["diffusion"], methods=large, **{**few, "num_batches": 5})
    others = ("default", "c2st", "sbc", "tarp")
    cells += make_cells(["tree"], (0, 0.5, 1.5, 4), methods=others, **few)
    return cells + make_cells(["tree"], (1.5, 4), methods=("paper-full",), **few)


def trained_cells(seeds: Sequence[int] = (0,)) -> list[Cell]:
    """Return the grid of posteriors that sbi trained: half an hour on two cores."""
    return make_cells(
        [name for name, setting in SETTINGS.items() if setting.is_trained],
        methods=("default", "c2st", EXACT),
        seeds=seeds,
        num_batches=5,
    )


def paper_cells() -> list[Cell]:
    """Return the paper's own grid: 3 seeds, 200 batches, all draws in every step."""
    tasks = [name for name, setting in SETTINGS.items() if setting.in_paper]
    return make_cells(tasks, seeds=(0, 1, 2), num_batches=200)


def _check_method(method: str, task: str) -> None:
    known = (*known_methods(), EXACT)
    if method not in known:
        raise ValueError(f"method: expected one of {', '.join(known)}, got {method!r}.")
    if method not in METHODS and not SETTINGS[task].is_trained:
        raise ValueError(
            f"method: {method} is for trained posteriors alone, got the task {task!r}."
        )
