"""Power at the paper's budget, sample efficiency and cost: the default's own measures.

`power_cells` is the table of the paper's perturbations at one size each, in every
dimension; `efficiency_cells` one hard cell with growing numbers of simulations;
`cost_lines` times the default beside C2ST and tells how its time grows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from tqdm.auto import tqdm

from sbi_colt.baselines import C2ST
from sbi_colt.benchmark.grid.cells import Cell, make_cells
from sbi_colt.benchmark.grid.rows import Row
from sbi_colt.benchmark.methods import METHODS
from sbi_colt.benchmark.tables import STYLES, Entry, summarise
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.benchmark.tasks.settings import DIMS
from sbi_colt.colt import CoLT
from sbi_colt.draws import Draws
from sbi_colt.report.clouds import GREY

__all__ = [
    "SIZES",
    "cost_lines",
    "efficiency_cells",
    "efficiency_lines",
    "plot_power",
    "power_cells",
    "power_lines",
]

# Sizes of the error in the table.
SIZES = {
    "mean": 0.15,
    "covariance": 0.6,
    "anisotropic": 1.5,
    "t": 0.3,
    "modes": 0.2,
    "collapse": 0.3,
    "blind": 1.0,
}
_FAMILIES = {"": "Gaussian", "curved-": "curved"}
_LABELS = {
    "default": "CoLT here",
    "paper-full": "CoLT Full (paper)",
    "paper-id": "CoLT ID (paper)",
    "c2st": "C2ST",
    "sbc": "SBC",
    "tarp": "TARP",
}
_TREE = (0.0, 0.5, 1.0, 1.5, 4.0)
_NUM_BATCHES = 100
_DRAWS_PER_STEP = 10  # of the paper's variants
# Hard for the default, while the paper's variants have power there.
_HARD = "curved-anisotropic"
_PAIRS = (25, 50, 100, 200, 400, 800, 1500)
_WIDTH = 11


def power_cells(dims: Sequence[tuple[int, int]] | None = None) -> list[Cell]:
    """Return the cells of the table: three task seeds, and the tree with one.

    Args:
        dims: Dimensions of x and θ, then without the tree; `None` for the whole table.
    """
    cells = []
    for pair in dims or DIMS:
        for family in _FAMILIES:
            sizes = {**SIZES, "covariance": (0.0, SIZES["covariance"])}
            for name, size in sizes.items():
                cells += make_cells(
                    [family + name],
                    size if isinstance(size, tuple) else (size,),
                    [pair],
                    seeds=(0, 1, 2),
                    num_batches=_NUM_BATCHES,
                    draws_per_step=_DRAWS_PER_STEP,
                )
    # The paper's variant trains for 5000 epochs on it, a quarter of an hour.
    for method in METHODS if dims is None else ():
        if method != "paper-id":
            cells += make_cells(
                ["tree"],
                _TREE[1:] if method == "paper-full" else _TREE,
                methods=[method],
                num_batches=_NUM_BATCHES,
                draws_per_step=_DRAWS_PER_STEP,
            )
    return cells


def power_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table: one line for each family, dimension and perturbation.

    A star marks the default where another method has more power by over 0.05.
    """
    entries = summarise(rows)
    methods = list(METHODS)
    for family, title in _FAMILIES.items():
        perturbed: list[list[float]] = []
        for dim_x, dim in _dims_of(rows):
            yield f"{title}, x of dimension {dim_x}, theta of dimension {dim}"
            yield _line("", methods)
            for name in ("none", *SIZES):
                task = family + ("covariance" if name == "none" else name)
                alpha = SIZES.get(name, 0.0)
                row = [entries.get((task, dim_x, dim, alpha, m)) for m in methods]
                yield _line(name, _texts(row, name != "none"))
                if name != "none" and all(row):
                    perturbed.append([entry.power for entry in row if entry])
            yield ""
        if perturbed:
            columns = zip(*perturbed, strict=True)
            means = [f"{sum(column) / len(perturbed):.3f}   " for column in columns]
            yield _line(f"{title}, mean", means)
            yield ""
    if any(row.cell.task == "tree" for row in rows):
        yield "Tree, 1000 pairs, 100 draws"
        yield _line("", methods)
        for alpha in _TREE:
            row = [entries.get(("tree", 1, 2, alpha, method)) for method in methods]
            yield _line(f"{alpha:g}" if alpha else "none", _texts(row, alpha > 0))
        yield ""
    steps = {e.draws_per_step for k, e in entries.items() if k[4].startswith("paper")}
    shown = " or ".join(str(step or "all") for step in sorted(steps, key=str))
    yield "Power at level 0.05 (none: false alarms); 100 training pairs, 500 draws,"
    yield "batches of 100 pairs. A star: another method has more by over 0.05."
    yield f"The paper's variants see {shown} draws per training step."


def plot_power(rows: Sequence[Row]) -> Figure:
    """Return a figure of mean power over the perturbations, by family and dimension."""
    entries = summarise(rows)
    shown = _dims_of(rows)
    figure, axes = plt.subplots(
        1, 2, figsize=(9, 2.8), sharey=True, layout="constrained"
    )
    width = 0.8 / len(METHODS)
    for ax, (family, title) in zip(axes, _FAMILIES.items(), strict=True):
        for place, method in enumerate(METHODS):
            color, _, line = STYLES[method]
            heights = [
                fmean(
                    entries[(family + name, *dims, size, method)].power
                    for name, size in SIZES.items()
                )
                for dims in shown
            ]
            ax.bar(
                [
                    at + (place - (len(METHODS) - 1) / 2) * width
                    for at in range(len(shown))
                ],
                heights,
                width,
                color=color,
                alpha=0.55 if line == "--" else 1.0,  # a method's second form
                label=_LABELS[method],
            )
        ax.set_xticks(range(len(shown)), [f"{dim_x}, {dim}" for dim_x, dim in shown])
        ax.set(title=f"{title} posteriors".capitalize(), xlabel="dimensions of x and θ")
        ax.axhline(0.05, color=GREY, lw=0.8, ls=":")
    axes[0].set(ylabel="mean power", ylim=(0, 1.05))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=len(labels), frameon=False
    )
    return figure


def _dims_of(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Return the dimensions of both families that there are, small ones first."""
    return sorted(
        {(row.cell.dim_x, row.cell.dim) for row in rows if row.cell.task != "tree"}
    )


def _line(label: str, texts: Iterable[str]) -> str:
    return f"{label:<14}" + "".join(f"{text:>{_WIDTH}}" for text in texts).rstrip()


def _texts(row: Sequence[Entry | None], is_perturbed: bool) -> Iterator[str]:
    best = max((entry.power for entry in row[1:] if entry), default=0.0)
    for place, entry in enumerate(row):
        if entry is None:
            yield ""
            continue
        behind = is_perturbed and place == 0 and entry.power < best - 0.05
        yield f"{entry.power:.2f}±{entry.error:.2f}{'*' if behind else ' '}"


def efficiency_cells() -> list[Cell]:
    """Return one hard cell with 50 to 3000 simulations, half of them for training.

    Three task seeds up to 800 simulations, where the curves rise; one beyond.
    """
    cells = []
    for num_pairs in _PAIRS:
        cells += make_cells(
            [_HARD],
            (SIZES[_HARD.removeprefix("curved-")],),
            [(3, 3)],
            ("default", "paper-full", "paper-id"),
            seeds=(0, 1, 2) if num_pairs <= 400 else (0,),
            num_batches=50,
            draws_per_step=_DRAWS_PER_STEP,
            num_pairs=num_pairs,
        )
    return cells


def efficiency_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield mean power by the number of simulations, and where it reaches 0.8."""
    powers: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        if row.cell.num_pairs is not None:
            own = powers.setdefault(row.cell.method, {})
            own.setdefault(2 * row.cell.num_pairs, []).append(row.power)
    curves = {
        method: {size: fmean(values) for size, values in own.items()}
        for method, own in powers.items()
    }
    sizes = sorted({size for curve in curves.values() for size in curve})
    yield f"{'simulations':<14}" + "".join(f"{size:>8}" for size in sizes) + "   to 0.8"
    for name, curve in curves.items():
        texts = (f"{curve[s]:>8.2f}" if s in curve else " " * 8 for s in sizes)
        reached = _reached(curve, 0.8)
        end = "never" if reached is None else f"{reached:.0f}"
        yield f"{name:<14}" + "".join(texts) + f"{end:>9}"


def _reached(curve: dict[int, float], power: float) -> float | None:
    """Return how many simulations a power takes, by interpolation of logarithms."""
    points = sorted(curve.items())
    if points[0][1] >= power:
        return float(points[0][0])
    for (a, low), (b, high) in pairwise(points):
        if low < power <= high:
            share = (power - low) / (high - low)
            return math.exp(math.log(a) + share * math.log(b / a))
    return None


def cost_lines(
    repetitions: int = 3, show_progress_bar: bool = True, largest: int = 10
) -> Iterator[str]:
    """Yield the default's time beside that of C2ST, and exponents in N, K and d.

    Args:
        repetitions: How often each is timed; the least time counts.
        show_progress_bar: Whether to show progress.
        largest: How many times N, K and d are made larger to see how time grows.
    """
    base = {"N": 100, "K": 500, "d": 10}
    larger = {name: base | {name: largest * base[name]} for name in base}
    progress = tqdm(
        total=(2 + len(larger)) * repetitions, disable=not show_progress_bar
    )

    def least(run: Callable[[Draws, Draws], object], N: int, K: int, d: int) -> float:
        generator = torch.Generator().manual_seed(0)
        task = GaussianTask("covariance", 0.6, d, d)
        train, test = (task.draws(N, K, generator) for _ in range(2))
        seconds = math.inf
        for _ in range(repetitions):
            start = time.perf_counter()
            run(train, test)
            seconds = min(seconds, time.perf_counter() - start)
            progress.update()
        return seconds

    with progress:
        ours = least(_default, **base)
        theirs = least(_c2st, **base)
        grown = {name: least(_default, **size) for name, size in larger.items()}
    yield (
        f"Fit and test of the default: {ours:.2f} s; of C2ST, 1000 epochs: "
        f"{theirs:.2f} s; ratio {ours / theirs:.2f}"
    )
    for name, seconds in grown.items():
        exponent = math.log(seconds / ours) / math.log(largest)
        yield (
            f"{name} from {base[name]} to {largest * base[name]}: {seconds:.2f} s, "
            f"exponent {exponent:.2f}"
        )


def _default(train: Draws, test: Draws) -> None:
    CoLT(seed=0).fit(train, show_progress_bar=False).test(test)


def _c2st(train: Draws, test: Draws) -> None:
    C2ST(epochs=1000, learning_rate=1e-5, seed=0).fit(train).test(test)
