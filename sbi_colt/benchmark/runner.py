"""Run the benchmark cell by cell, in parallel, and go on where it stopped.

A cell is one task, size of error, pair of dimensions, seed and method. It trains on one
set of pairs and tests the method on many fresh batches. All methods of a task see the
same pairs, so the cells that differ in the method alone run together: making the
batches of large problems takes longer than testing them. Each cell is a line of a CSV
file, written as soon as the cells that it runs with are done.
"""

from __future__ import annotations

import csv
import math
import os
import platform
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean

import torch
from tqdm.auto import tqdm

from sbi_colt.benchmark.methods import METHODS
from sbi_colt.benchmark.tasks import SETTINGS, Setting, Task, make_task
from sbi_colt.benchmark.trained import TrainedTask
from sbi_colt.draws import Draws
from sbi_colt.parallel import in_parallel, one_thread
from sbi_colt.randomness import generator_from
from sbi_colt.results import CoLTResult

__all__ = [
    "EXACT",
    "TRAINED",
    "Cell",
    "Row",
    "default_cells",
    "make_cells",
    "paper_cells",
    "read_rows",
    "run_cells",
    "run_group",
    "trained_cells",
]

# A column that is no test: a classifier's accuracy against exact draws.
EXACT = "exact-c2st"
_LEVEL = 0.05
_NUM_EXACT_XS = 10
# How the names of tasks begin whose q is a posterior that sbi trained.
TRAINED = ("two-moons", "outliers")
_LONG = {("tree", "paper-full"), ("tree", "paper-id")}
_NONE = "all"  # how a file says `None`


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


@dataclass(frozen=True)
class Row:
    """What was measured in a cell.

    Args:
        cell: The cell.
        power: Share of the batches rejected at level 0.05.
        statistic: Mean statistic; for CoLT the distance.
        distance_lower: Mean certified distance, for CoLT.
        fit_seconds: Seconds of training.
        test_seconds: Seconds of a test, on average.
    """

    cell: Cell
    power: float
    statistic: float
    distance_lower: float
    fit_seconds: float
    test_seconds: float


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


def run_cells(
    cells: Sequence[Cell],
    path: str | os.PathLike,
    *,
    num_workers: int = 1,
    command: str = "",
    show_progress_bar: bool = True,
) -> list[Row]:
    """Run the cells that a CSV file does not have yet, and return all its rows.

    Args:
        cells: The cells.
        path: The CSV file; made where there is none.
        num_workers: Processes. With 1, a joblib backend that you have set decides.
        command: The command that asked for it, kept in the file's first lines.
        show_progress_bar: Whether to show progress and time left.
    """
    path = Path(path)
    if path.exists() and path.stat().st_size:
        _check_columns(path, path.read_bytes().decode(errors="replace").splitlines())
        _drop_half_line(path)
        done = {row.cell for row in read_rows(path)}
        left = [cell for cell in cells if cell not in done]
        if left and (lines := _metadata(command)) not in path.read_text("utf-8"):
            with path.open("a", encoding="utf-8") as file:
                file.write(lines)
    else:
        left = list(cells)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_header(command), encoding="utf-8")
    progress = tqdm(
        total=len(cells),
        initial=len(cells) - len(left),
        desc="Cells",
        unit="cell",
        disable=not show_progress_bar,
        smoothing=0.05,
    )
    tasks = [(group,) for group in _together(left)]
    with progress, path.open("a", encoding="utf-8", newline="") as file:
        for rows in in_parallel(run_group, tasks, num_workers, ordered=False):
            csv.writer(file, lineterminator="\n").writerows(map(_plain, rows))
            file.flush()
            os.fsync(file.fileno())
            progress.set_postfix_str(rows[0].cell.task)
            progress.update(len(rows))
    return read_rows(path)


def _together(cells: Iterable[Cell]) -> list[tuple[Cell, ...]]:
    """Return the cells that see the same batches, the longest first."""
    groups: dict[Cell, list[Cell]] = defaultdict(list)
    for cell in cells:
        # What takes a quarter of an hour runs by itself, and before the others, lest
        # one process work on it at the end while the others have nothing to do.
        alone = (cell.task, cell.method) in _LONG
        key = cell if alone else replace(cell, method="", draws_per_step=None)
        groups[key].append(cell)
    tuples = [tuple(group) for group in groups.values()]
    return sorted(tuples, key=lambda t: (t[0].task, t[0].method) not in _LONG)


def run_group(cells: Sequence[Cell]) -> list[Row]:
    """Train and test in cells that differ in the method alone, on one thread.

    Args:
        cells: The cells.

    Returns:
        Their rows, in the same order.
    """
    with one_thread():
        return _run_group(cells)


def _run_group(cells: Sequence[Cell]) -> list[Row]:
    cell = cells[0]
    setting = SETTINGS[cell.task]
    task = make_task(cell.task, cell.alpha, (cell.dim_x, cell.dim), cell.seed)
    stream = (cell.task, cell.dim_x, cell.dim, str(cell.alpha))

    def batch(name: str | int):
        generator = generator_from(cell.seed, "benchmark", *stream, name)
        num_pairs = cell.num_pairs or setting.num_pairs
        return task.draws(num_pairs, setting.num_posterior_samples, generator)

    rows: dict[Cell, Row] = {}
    for one in cells:
        if one.method == EXACT:
            generator = generator_from(one.seed, EXACT, *stream)
            rows[one] = _exact_row(one, task, generator)
    tested = [one for one in cells if one.method != EXACT]
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
        make = METHODS[cell.method]
        self.tester = make(train, setting, cell.seed, cell.draws_per_step)
        self.fit_seconds = time.perf_counter() - start
        self.test_seconds = 0.0
        # p-value, statistic and certified distance of each batch
        self.found: list[tuple[float, float, float]] = []

    def test(self, draws: Draws) -> None:
        start = time.perf_counter()
        result = self.tester(draws)
        self.test_seconds += time.perf_counter() - start
        is_colt = isinstance(result, CoLTResult)
        lower = result.distance_lower if is_colt else float("nan")
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
        )


def read_rows(path: str | os.PathLike) -> list[Row]:
    """Read the rows of a CSV file that `run_cells` wrote."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = file.read().splitlines()
    _check_columns(path, lines)
    rows = []
    for number, line in enumerate(lines, start=1):
        texts = next(csv.reader([line]), [])
        if line.startswith("#") or texts in ([], _columns()):
            continue
        try:
            rows.append(_row(dict(zip(_columns(), texts, strict=True))))
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number}: expected a row of sbi-colt benchmark, got "
                f"{line!r} ({error}); remove it, and run the command again."
            ) from error
    return rows


def _check_columns(path: str | os.PathLike, lines: Iterable[str]) -> None:
    """Raise unless the first line that is no comment names the columns."""
    first = next((line for line in lines if not line.startswith("#")), "")
    if first.split(",") != _columns():
        raise ValueError(
            f"{path}: expected a file of sbi-colt benchmark, with columns "
            f"{', '.join(_columns())}."
        )


def _row(plain: dict[str, str]) -> Row:
    cell = Cell(
        plain["task"],
        int(plain["dim_x"]),
        int(plain["dim"]),
        float(plain["alpha"]),
        plain["method"],
        int(plain["seed"]),
        int(plain["num_batches"]),
        _count(plain["draws_per_step"]),
        _count(plain["num_pairs"]),
    )
    row = Row(cell, *(float(plain[f.name]) for f in fields(Row) if f.name != "cell"))
    if not (0 <= row.power <= 1 or math.isnan(row.power)):
        raise ValueError(f"a power of {row.power}")
    return row


def _drop_half_line(path: Path) -> None:
    """Remove a last line that was cut off when its process was killed."""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        path.write_bytes(whole)


def _columns() -> list[str]:
    return [f.name for f in fields(Cell)] + [
        f.name for f in fields(Row) if f.name != "cell"
    ]


def _plain(row: Row) -> list[str]:
    cell = [_NONE if value is None else str(value) for value in astuple(row.cell)]
    numbers = [v for name, v in asdict(row).items() if name != "cell"]
    return cell + [f"{number:.6g}" for number in numbers]


def _count(text: str) -> int | None:
    return None if text == _NONE else int(text)


def _header(command: str) -> str:
    return _metadata(command) + ",".join(_columns()) + "\n"


def _metadata(command: str) -> str:
    """Return what the rows below are made by, as comment lines."""
    packages = ("sbi_colt", "sbi", "torch", "numpy", "scipy")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    lines = [
        f"# {command or 'sbi_colt.benchmark.runner.run_cells'}",
        f"# Python {platform.python_version()}, {versions}",
    ]
    return "\n".join(lines) + "\n"


def _check_method(method: str, task: str) -> None:
    if method == EXACT and not task.startswith(TRAINED):
        raise ValueError(
            f"method: {EXACT} is for trained posteriors alone, got the task {task!r}."
        )
    if method not in METHODS and method != EXACT:
        raise ValueError(
            f"method: expected one of {', '.join(METHODS)}, {EXACT}, got {method!r}."
        )
