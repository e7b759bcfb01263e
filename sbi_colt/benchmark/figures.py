"""Figures of the benchmark's rows: power curves, and errors of trained posteriors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sbi_colt.benchmark.grid.rows import EXACT, Row
from sbi_colt.benchmark.tables import PAPER, Entries, Entry, only, summarise
from sbi_colt.benchmark.tasks.gaussian import PERTURBATIONS
from sbi_colt.benchmark.tasks.settings import SETTINGS
from sbi_colt.report.colours import BLUE, GREEN, GREY, ORANGE, PURPLE

__all__ = ["Style", "add_legend", "plot_results", "style_of"]


class Style(NamedTuple):
    """How a method is shown."""

    label: str
    color: str
    marker: str
    line: str

    @property
    def look(self) -> dict[str, Any]:
        """The same for matplotlib, without the label."""
        return {"color": self.color, "marker": self.marker, "ls": self.line}


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


def add_legend(
    figure: Figure, axes: Iterable[Axes], place: Any = "outside upper center"
) -> None:
    """Add one legend for all axes, the paper's numbers last."""
    shown = {}
    for ax in axes:
        shown |= dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
    labels = sorted(shown, key=lambda label: _REPORTED in label)
    columns = len(labels) if "center" in place else 1
    handles = [shown[label] for label in labels]
    figure.legend(handles, labels, loc=place, ncols=columns, frameon=False)


def plot_results(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write a figure for each family of tasks to a folder, and return their paths.

    Large hollow markers are the numbers that the paper reports.
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


def _panels(rows: int, columns: int, width: float, height: float):
    shared: Any = {"layout": "constrained", "squeeze": False, "sharey": True}
    return plt.subplots(rows, columns, figsize=(width, height), **shared)


def _plot_family(entries: Entries, prefix: str) -> Figure | None:
    """Return a panel for each perturbation and pair of dimensions."""
    names = [name for name in PERTURBATIONS if name != "blind"]
    tasks = {prefix + name for name in names}
    dims = sorted({key[1:3] for key in entries if key.task in tasks})
    if not dims:
        return None
    size = (2.6 * len(names), 0.4 + 2.4 * len(dims))
    figure, axes = _panels(len(dims), len(names), *size)
    for row, pair in zip(axes, dims, strict=True):
        for ax, name in zip(row, names, strict=True):
            _plot_curves(ax, entries, prefix + name, pair)
            ax.set_title(f"{name} {pair}", fontsize="medium")
            ax.set_ylabel("power" if ax is row[0] else "")
    add_legend(figure, axes.flat)
    return figure


def _plot_single(entries: Entries, task: str) -> Figure | None:
    """Return one panel for a task in the plane."""
    if not only(entries, task):
        return None
    figure, ((ax,),) = _panels(1, 1, 7, 3.6)
    _plot_curves(ax, entries, task, (1, 2))
    add_legend(figure, [ax], "outside right upper")
    ax.set_title(task.capitalize())
    return figure


def _plot_curves(ax: Axes, entries: Entries, task: str, dims: tuple[int, int]) -> None:
    """Add the curve of each method over α, and the paper's points.

    Curves show the power, those of the diffusion the statistic.
    """
    is_statistic = task == "diffusion"
    for method in dict.fromkeys([*_STYLES, *(key.method for key in entries)]):
        curve = _curve(entries, task, dims, method)
        if not curve or method == EXACT or (is_statistic and method == "c2st"):
            continue
        look = style_of(method).look
        values = [e.statistic if is_statistic else e.power for e in curve.values()]
        errors = None if is_statistic else [e.error for e in curve.values()]
        ax.errorbar(list(curve), values, errors, ms=4, lw=1.3, label=method, **look)
        reported = {
            key[3]: power
            for key, (power, _) in PAPER.items()
            if key[:3] == (task, *dims) and key[4] == method
        }
        if reported:
            look |= {"ls": "", "ms": 9, "mfc": "none", "label": method + _REPORTED}
            ax.plot(list(reported), list(reported.values()), **look)
    ax.set_xlabel("alpha")
    if is_statistic:
        ax.set_ylabel("mean statistic")
        return
    ax.axhline(0.05, color=GREY, lw=0.8, ls=":")
    ax.set(ylim=(-0.03, 1.05), ylabel="power")


def _curve(
    entries: Entries, task: str, dims: tuple[int, int], method: str
) -> dict[float, Entry]:
    """Return the entries of one method by α, in rising order."""
    # At α = 0 all perturbations of a family are the same task.
    null = "curved-covariance" if task.startswith("curved-") else "covariance"
    nulls = only(entries, null, method, lambda key: key.alpha == 0)
    own = nulls | only(entries, task, method)
    points = {key.alpha: entry for key, entry in own.items() if key[1:3] == dims}
    return dict(sorted(points.items()))


def _plot_trained(entries: Entries) -> Figure | None:
    """Return a panel for each trained posterior: distance and accuracy."""
    trained = {name for name, setting in SETTINGS.items() if setting.is_trained}
    tasks = sorted({key.task for key in entries if key.task in trained and key.alpha})
    if not tasks:
        return None
    figure, (axes,) = _panels(1, len(tasks), 3.2 * len(tasks), 3.4)
    for ax, task in zip(axes, tasks, strict=True):
        for method, label, chance in (
            ("default", "CoLT's distance", 0.0),
            (EXACT, "C2ST - 1/2", 0.5),
        ):
            own = sorted(only(entries, task, method).items())
            values = {key.alpha: entry.statistic - chance for key, entry in own}
            style = style_of(method)
            exact = values.pop(0.0, None)
            ax.plot(list(values), list(values.values()), label=label, **style.look)
            if exact is not None:
                ax.axhline(exact, color=style.color, lw=0.8, ls=":")
        ax.set(
            xscale="log", xlabel="training simulations", title=task, ylim=(-0.02, 0.55)
        )
    axes[0].set_ylabel("how wrong (dotted: exact posterior)")
    axes[0].legend(fontsize="small")
    return figure
