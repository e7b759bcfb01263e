"""Figures of the benchmark's rows: power curves, and errors of trained posteriors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sbi_colt.benchmark.grid.cells import EXACT
from sbi_colt.benchmark.grid.rows import Row
from sbi_colt.benchmark.tables import PAPER, Entry, Key, summarise
from sbi_colt.benchmark.tasks.gaussian import PERTURBATIONS
from sbi_colt.benchmark.tasks.settings import SETTINGS
from sbi_colt.report.clouds import BLUE, GREEN, GREY, ORANGE, PURPLE

__all__ = ["Style", "plot_results", "style_of"]


class Style(NamedTuple):
    """How a method is shown."""

    label: str
    color: str
    marker: str
    line: str


_STYLES = {
    "default": Style("CoLT here", BLUE, "o", "-"),
    "paper-full": Style("CoLT Full (paper)", ORANGE, "s", "-"),
    "paper-id": Style("CoLT ID (paper)", ORANGE, "^", "--"),
    "c2st": Style("C2ST", GREEN, "D", "-"),
    "sbc": Style("SBC", PURPLE, "v", "-"),
    "tarp": Style("TARP", PURPLE, "P", "--"),
    EXACT: Style("C2ST - 1/2", GREY, "x", ":"),
}
_REPORTED = ", in the paper"


def style_of(method: str) -> Style:
    """Return how a method is shown; a method without a style of its own is grey."""
    return _STYLES.get(method, Style(method, GREY, "x", "-"))


def plot_results(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write a figure for each family of tasks and return their paths.

    Large hollow markers are the numbers that the paper reports.

    Args:
        rows: The results.
        folder: Where to write the figures.
    """
    entries = summarise(rows)
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "gaussian": _plot_family(entries, ""),
        "curved": _plot_family(entries, "curved-"),
        "tree": _plot_single(entries, "tree"),
        "diffusion": _plot_single(entries, "diffusion"),
        "trained": _plot_trained(entries),
    }
    paths = []
    for name, figure in figures.items():
        if figure is not None:
            paths.append(folder / f"{name}.png")
            figure.savefig(paths[-1], dpi=90)
            plt.close(figure)
    return paths


def _plot_family(entries: dict[Key, Entry], prefix: str) -> Figure | None:
    """Return a panel for each perturbation and pair of dimensions."""
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


def _plot_single(entries: dict[Key, Entry], task: str) -> Figure | None:
    """Return one panel for a task in the plane: power, or the diffusion's statistic."""
    if not any(key[0] == task for key in entries):
        return None
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
    return figure


def _plot_curves(
    ax: Axes,
    entries: dict[Key, Entry],
    task: str,
    dims: tuple[int, int],
    statistic: bool = False,
) -> None:
    """Add the curve of each method over α, and the paper's points."""
    for method in dict.fromkeys([*_STYLES, *(key[4] for key in entries)]):
        if method == EXACT or (statistic and method == "c2st"):
            continue
        _, color, marker, line = style_of(method)
        curve = _curve(entries, task, dims, method)
        if curve:
            ax.errorbar(
                list(curve),
                [e.statistic if statistic else e.power for e in curve.values()],
                yerr=None if statistic else [e.error for e in curve.values()],
                color=color,
                marker=marker,
                ls=line,
                ms=4,
                lw=1.3,
                label=method,
            )
        reported = {
            key[3]: power
            for key, (power, _) in PAPER.items()
            if key[:3] == (task, *dims) and key[4] == method
        }
        if curve and reported:
            ax.plot(
                list(reported),
                list(reported.values()),
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


def _curve(
    entries: dict[Key, Entry], task: str, dims: tuple[int, int], method: str
) -> dict[float, Entry]:
    """Return the entries of one method by α, in rising order."""
    # At α = 0 all perturbations of a family are the same task.
    null = "curved-covariance" if task.startswith("curved-") else "covariance"
    points = {
        key[3]: entry
        for name in (null, task)
        for key, entry in entries.items()
        if key[:3] == (name, *dims)
        and key[4] == method
        and (name == task or key[3] == 0)
    }
    return dict(sorted(points.items()))


def _plot_trained(entries: dict[Key, Entry]) -> Figure | None:
    """Return a panel for each trained posterior: distance and accuracy."""
    trained = {name for name, setting in SETTINGS.items() if setting.is_trained}
    tasks = sorted({key[0] for key in entries if key[0] in trained and key[3] > 0})
    if not tasks:
        return None
    figure, axes = plt.subplots(
        1,
        len(tasks),
        figsize=(3.2 * len(tasks), 3.4),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    for ax, task in zip(axes[0], tasks, strict=True):
        for method, label, chance in (
            ("default", "CoLT's distance", 0.0),
            (EXACT, "C2ST - 1/2", 0.5),
        ):
            values = {
                key[3]: entry.statistic - chance
                for key, entry in sorted(entries.items())
                if key[0] == task and key[4] == method
            }
            _, color, marker, line = style_of(method)
            exact = values.pop(0.0, None)
            ax.plot(
                list(values),
                list(values.values()),
                color=color,
                marker=marker,
                ls=line,
                label=label,
            )
            if exact is not None:
                ax.axhline(exact, color=color, lw=0.8, ls=":")
        ax.set(
            xscale="log", xlabel="training simulations", title=task, ylim=(-0.02, 0.55)
        )
    axes[0, 0].set_ylabel("how wrong (dotted: exact posterior)")
    axes[0, 0].legend(fontsize="small")
    return figure
