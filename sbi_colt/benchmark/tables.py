"""Tables and power curves from the benchmark's results, beside the paper's figures."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sbi_colt.benchmark.grid.cells import EXACT, TRAINED
from sbi_colt.benchmark.grid.rows import Row
from sbi_colt.benchmark.methods import METHODS
from sbi_colt.benchmark.tasks.gaussian import PERTURBATIONS
from sbi_colt.benchmark.tasks.settings import DIMS
from sbi_colt.report.clouds import BLUE, GREEN, GREY, ORANGE, PURPLE

__all__ = ["PAPER", "STYLES", "Entry", "plot_results", "summarise", "table_lines"]

# Power that the paper reports, with its standard error over three seeds.
PAPER: dict[tuple[str, int, int, float, str], tuple[float, float]] = {
    ("tree", 1, 2, 1.5, "paper-full"): (0.877, math.nan),
    ("tree", 1, 2, 4.0, "paper-full"): (1.0, math.nan),
    ("tree", 1, 2, 1.5, "c2st"): (0.0, math.nan),
    ("tree", 1, 2, 4.0, "c2st"): (0.065, math.nan),
}
_BLIND = {
    1.0: {
        "paper-id": ((1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (1.0, 0.0)),
        "paper-full": ((0.975, 0.014), (0.778, 0.222), (0.693, 0.307), (0.452, 0.26)),
        "c2st": ((1.0, 0.0), (1.0, 0.0), (0.847, 0.038), (0.122, 0.007)),
        "sbc": ((0.052, 0.004), (0.028, 0.007), (0.048, 0.007), (0.04, 0.015)),
        "tarp": ((0.053, 0.004), (0.047, 0.012), (0.035, 0.009), (0.068, 0.004)),
    },
    0.0: {
        "paper-id": ((0.057, 0.009), (0.055, 0.008), (0.047, 0.004), (0.043, 0.002)),
        "paper-full": ((0.04, 0.008), (0.04, 0.003), (0.052, 0.011), (0.047, 0.009)),
        "c2st": ((0.077, 0.004), (0.043, 0.007), (0.02, 0.005), (0.023, 0.007)),
        "sbc": ((0.04, 0.01), (0.035, 0.0), (0.035, 0.0), (0.035, 0.009)),
        "tarp": ((0.037, 0.009), (0.038, 0.002), (0.052, 0.011), (0.043, 0.002)),
    },
}
for _alpha, _methods in _BLIND.items():
    for _method, _values in _methods.items():
        for (_dim_x, _dim), _value in zip(DIMS, _values, strict=True):
            PAPER["blind", _dim_x, _dim, _alpha, _method] = _value

# Colour, marker and line of each method.
STYLES = {
    "default": (BLUE, "o", "-"),
    "paper-full": (ORANGE, "s", "-"),
    "paper-id": (ORANGE, "^", "--"),
    "c2st": (GREEN, "D", "-"),
    "sbc": (PURPLE, "v", "-"),
    "tarp": (PURPLE, "P", "--"),
    EXACT: (GREY, "x", ":"),
}
_REPORTED = ", in the paper"


@dataclass(frozen=True)
class Entry:
    """The rows of one cell over all seeds.

    Args:
        power: Mean power.
        error: Its standard error: binomial over all batches, or that of the seeds'
            means where it is larger.
        statistic: Mean statistic.
        num_batches: Batches behind it, over all seeds.
        draws_per_step: As in `Cell`.
    """

    power: float
    error: float
    statistic: float
    num_batches: int
    draws_per_step: int | None


Key = tuple[str, int, int, float, str]


def summarise(rows: Sequence[Row]) -> dict[Key, Entry]:
    """Return the entries by task, dimensions of x and θ, α and method."""
    groups: dict[Key, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        cell = row.cell
        key = (cell.task, cell.dim_x, cell.dim, cell.alpha, cell.method)
        first = next(iter(groups[key].values()), row)
        if _settings(first) != _settings(row):
            raise ValueError(
                f"{cell.task}, {cell.method}: expected rows with one number of pairs "
                f"and of draws per step, got {_settings(first)} and {_settings(row)}; "
                "keep them in two files (benchmark efficiency prints its own table)."
            )
        known = groups[key].get(cell.seed)
        # Fewer batches of a seed are a part of more of them.
        if known is None or known.cell.num_batches < cell.num_batches:
            groups[key][cell.seed] = row
    return {key: _entry(list(group.values())) for key, group in groups.items()}


def _settings(row: Row) -> tuple[str, str]:
    cell = row.cell
    return str(cell.num_pairs or "all"), str(cell.draws_per_step or "all")


def table_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of power for each task and pair of dimensions.

    Where the paper reports a figure, it stands below ours, and a star marks ours where
    they differ by more than two standard errors.
    """
    entries = summarise(rows)
    names = [name for name in (*METHODS, EXACT) if any(k[4] == name for k in entries)]
    names += sorted({key[4] for key in entries} - set(names))
    tables = dict.fromkeys(key[:3] for key in entries)
    for task, dim_x, dim in tables:
        here = [
            n
            for n in names
            if any(k[:3] == (task, dim_x, dim) and k[4] == n for k in entries)
        ]
        yield f"{task}, x of dimension {dim_x}, theta of dimension {dim}"
        yield f"{'alpha':>8}" + "".join(f"{name:>12}" for name in here)
        alphas = sorted({k[3] for k in entries if k[:3] == (task, dim_x, dim)})
        for alpha in alphas:
            keys = [(task, dim_x, dim, alpha, name) for name in here]
            yield f"{alpha:>8g}" + "".join(
                f"{_cell_text(entries.get(key), PAPER.get(key), key[4]):>12}"
                for key in keys
            )
            if any(key in PAPER for key in keys):
                reported = "".join(_paper_text(key) for key in keys)
                yield f"{'paper':>8}{reported.rstrip()}"
        steps = {
            entry.draws_per_step
            for key, entry in entries.items()
            if key[:3] == (task, dim_x, dim) and key[4].startswith("paper")
        } - {None}
        if steps:
            shown = " or ".join(map(str, sorted(filter(None, steps))))
            yield f"The paper's variants see {shown} draws per training step."
        yield ""


def plot_results(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write a figure for each family of tasks and return their paths.

    Large hollow markers are what the paper reports.

    Args:
        rows: The results.
        folder: Where to write them.
    """
    entries = summarise(rows)
    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Figure] = {}
    for family, prefix in (("gaussian", ""), ("curved", "curved-")):
        figure = _plot_family(entries, prefix)
        if figure is not None:
            figures[family] = figure
    for task in ("tree", "diffusion"):
        if any(key[0] == task for key in entries):
            figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
            _plot_curves(ax, entries, task, (1, 2), task == "diffusion")
            handles, labels = ax.get_legend_handles_labels()
            order = sorted(range(len(labels)), key=lambda i: _REPORTED in labels[i])
            figure.legend(
                [handles[i] for i in order],
                [labels[i] for i in order],
                loc="outside right upper",
                frameon=False,
            )
            ax.set_title(task.capitalize())
            figures[task] = figure
    trained = sorted(
        {key[0] for key in entries if key[0].startswith(TRAINED) and key[3] > 0}
    )
    if trained:
        figures["trained"] = _plot_trained(entries, trained)
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=90)
        plt.close(figure)
    return paths


def _entry(rows: Sequence[Row]) -> Entry:
    batches = sum(row.cell.num_batches for row in rows)
    power = sum(row.power * row.cell.num_batches for row in rows) / batches
    error = (
        math.sqrt(max(power * (1 - power), 0) / batches) if power == power else power
    )
    if len(rows) > 1:
        spread = sum((row.power - power) ** 2 for row in rows) / (len(rows) - 1)
        error = max(error, math.sqrt(spread / len(rows)))
    statistic = sum(row.statistic for row in rows) / len(rows)
    return Entry(power, error, statistic, batches, rows[0].cell.draws_per_step)


def _cell_text(
    entry: Entry | None, paper: tuple[float, float] | None, method: str
) -> str:
    if entry is None:
        return ""
    if method == EXACT:
        return f"{entry.statistic:.3f} acc."
    star = " "
    if paper is not None:
        # A share of 0 or 1 has an error too: at least that of one batch.
        error = max(entry.error, 1 / entry.num_batches)
        other = paper[1] if paper[1] == paper[1] else 0.0
        star = (
            "*" if abs(entry.power - paper[0]) > 2 * math.hypot(error, other) else " "
        )
    return f"{entry.power:.2f}±{entry.error:.2f}{star}"


def _paper_text(key: Key) -> str:
    if key not in PAPER:
        return " " * 12
    power, error = PAPER[key]
    text = f"{power:.2f}" + ("      " if error != error else f"±{error:.2f} ")
    return f"{text:>12}"


def _plot_family(entries: dict[Key, Entry], prefix: str) -> Figure | None:
    names = [name for name in PERTURBATIONS if name != "blind"]
    dims = sorted({k[1:3] for k in entries if k[0] in {prefix + n for n in names}})
    if not dims:
        return None
    figure, axes = plt.subplots(
        len(dims),
        len(names),
        figsize=(2.6 * len(names), 0.4 + 2.4 * len(dims)),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    for row, pair in zip(axes, dims, strict=True):
        for ax, name in zip(row, names, strict=True):
            _plot_curves(ax, entries, prefix + name, pair)
            ax.set_title(f"{name} {pair}", fontsize="medium")
            ax.set_ylabel("power" if ax is row[0] else "")
    shown = {}
    for ax in axes.flat:
        handles, labels = ax.get_legend_handles_labels()
        shown |= dict(zip(labels, handles, strict=True))
    figure.legend(
        list(shown.values()),
        list(shown),
        loc="outside upper center",
        ncols=len(shown),
        frameon=False,
    )
    return figure


def _plot_curves(
    ax: Axes,
    entries: dict[Key, Entry],
    task: str,
    dims: tuple[int, int],
    statistic: bool = False,
) -> None:
    # At alpha = 0 all perturbations of a family are one and the same.
    family = "curved-" if task.startswith("curved-") else ""
    null = f"{family}covariance"
    for method, (color, marker, line) in STYLES.items():
        points = {
            key[3]: entry
            for name in (null, task)
            for key, entry in entries.items()
            if key[:3] == (name, *dims)
            and key[4] == method
            and (name == task or key[3] == 0)
        }
        curve = sorted(points.items(), key=lambda point: point[0])
        if not curve or method == EXACT or (statistic and method == "c2st"):
            continue
        ax.errorbar(
            [alpha for alpha, _ in curve],
            [e.statistic if statistic else e.power for _, e in curve],
            yerr=None if statistic else [e.error for _, e in curve],
            color=color,
            marker=marker,
            ls=line,
            ms=4,
            lw=1.3,
            label=method,
        )
        reported = [
            (key[3], power)
            for key, (power, _) in PAPER.items()
            if key[:3] == (task, *dims) and key[4] == method
        ]
        if reported:
            ax.plot(
                [alpha for alpha, _ in reported],
                [power for _, power in reported],
                color=color,
                marker=marker,
                ls="",
                ms=9,
                mfc="none",
                label=method + _REPORTED,
            )
    ax.set_xlabel("alpha")
    if statistic:
        ax.set_ylabel("mean statistic")
        return
    ax.axhline(0.05, color=GREY, lw=0.8, ls=":")
    ax.set(ylim=(-0.03, 1.05), ylabel="power")


def _plot_trained(entries: dict[Key, Entry], tasks: Sequence[str]) -> Figure:
    figure, axes = plt.subplots(
        1,
        len(tasks),
        figsize=(3.2 * len(tasks), 3.4),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    for ax, task in zip(axes[0], tasks, strict=True):
        for method, label in (("default", "CoLT's distance"), (EXACT, "C2ST - 1/2")):
            shift = 0.5 if method == EXACT else 0.0
            curve = sorted(
                (key[3], entry.statistic - shift)
                for key, entry in entries.items()
                if key[0] == task and key[4] == method and key[3] > 0
            )
            color, marker, line = STYLES[method]
            ax.plot(
                [num for num, _ in curve],
                [value for _, value in curve],
                color=color,
                marker=marker,
                ls=line,
                label=label,
            )
            exact = [
                entry.statistic - shift
                for key, entry in entries.items()
                if key[0] == task and key[4] == method and key[3] == 0
            ]
            for value in exact:
                ax.axhline(value, color=color, lw=0.8, ls=":")
        ax.set(
            xscale="log", xlabel="training simulations", title=task, ylim=(-0.02, 0.55)
        )
    axes[0, 0].set_ylabel("how wrong (dotted: exact posterior)")
    axes[0, 0].legend(fontsize="small")
    return figure
