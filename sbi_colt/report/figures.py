"""Figures: each function plots one thing into an `Axes` and returns it.

Without ``ax`` a function makes a figure of its own. Pyplot does not know such figures,
so they do not pile up; a notebook shows one where it is the last value of a cell.
"""

from __future__ import annotations

import io
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.stats import kstwo
from torch import Tensor

from sbi_colt.probes.ball import BallProbe
from sbi_colt.report.clouds import (
    figure_text,
    most_wrong,
    paint_corner,
    paint_histogram,
    paint_scatter,
    standardise,
)
from sbi_colt.report.colours import BLUE, GREY, ORANGE, PALETTE
from sbi_colt.report.observation_figures import paint_observation
from sbi_colt.report.replicate_figures import paint_outside, paint_replicates
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.results.test_result import TestResult
from sbi_colt.stats.nearness import nearness_weights

if TYPE_CHECKING:
    from sbi_colt.report.diagnostic import DiagnosticReport

__all__ = [
    "panels",
    "plot_comparison",
    "plot_discrepancy_map",
    "plot_localization",
    "plot_ranks",
    "plot_report",
    "plot_training",
]

_MAX_POINTS = 2000


def plot_ranks(
    result: CoLTResult | TestResult,
    ax: Axes | None = None,
    *,
    level: float = 0.05,
    names: Sequence[str] | None = None,
    title: str | None = None,
) -> Axes:
    """Plot how the distribution of ranks differs from the uniform one.

    The grey band holds all curves with probability 1 − ``level`` if q = p (exact
    Kolmogorov–Smirnov band, Bonferroni's over the curves).

    Args:
        result: A result that has ranks: CoLT's (a curve per probe), SBC's (a curve per
            parameter), TARP's or coverage.
        ax: Where to plot; by default a new figure.
        level: Level of the band.
        names: Names of the curves.
        title: Title; by default the name of the method.
    """
    ax = _axes(ax)
    if isinstance(result, CoLTResult):
        title = title or "CoLT"
        curves = [probe.ranks for probe in result.probes]
        names = names or [probe.name for probe in result.probes]
    else:
        if result.ranks is None:
            raise ValueError(f"result: {result.name!r} has no ranks to plot.")
        ranks = result.ranks.reshape(len(result.ranks), -1)
        title, curves = title or figure_text(result.name.upper()), list(ranks.T)
        names = names or [f"theta[{i}]" for i in range(len(curves))]
    n, grid = len(curves[0]), np.linspace(0, 1, 201)
    critical = float(kstwo.isf(level / len(curves), n))
    ax.fill_between(grid, -critical, critical, color=GREY, alpha=0.25, lw=0)
    ax.axhline(0, color=GREY, lw=0.8)
    order = sorted(range(len(curves)), key=lambda i: -_deviation(curves[i], grid))
    for place, i in enumerate(order):
        named = place < len(PALETTE)  # the curves that deviate most
        ax.plot(
            grid,
            _difference(curves[i], grid),
            color=PALETTE[place] if named else GREY,
            lw=1.5 if named else 0.6,
            zorder=3 if named else 2,
            label=figure_text(names[i]) if named and len(curves) > 1 else None,
        )
    ax.set(title=title, xlabel="rank u", ylabel="F(u) − u", xlim=(0, 1))
    if len(curves) > 1:
        ax.legend(fontsize="small", framealpha=0.7, edgecolor="none", loc="best")
    return ax


def plot_localization(
    result: CoLTResult,
    ax: Axes | None = None,
    *,
    parameters: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> Axes:
    """Plot truths over posterior draws, and the region where they differ most.

    Errors are standardised at each x with the mean and standard deviation of its bag,
    so that all xs share one picture: if q is right, the truths look like draws.

    Args:
        result: CoLT's result.
        ax: Where to plot; by default a new figure.
        parameters: One parameter (a histogram), two (a scatter) or more (all pairs);
            by default the three whose errors look least like draws.
        names: Names of all parameters.
        seed: Seed of the subset of draws that is shown.
    """
    ax = _axes(ax)
    cloud = standardise(result)
    dim = cloud.truths.shape[1]
    if parameters is None:
        parameters = sorted(most_wrong(cloud)[: min(3, dim)])
    if not 1 <= len(parameters) <= dim or not set(parameters) <= set(range(dim)):
        raise ValueError(
            f"parameters: expected positions among 0 to {dim - 1}, got {parameters!r}."
        )
    label = [figure_text(names[j]) if names else f"theta[{j}]" for j in parameters]
    where = result.localize()
    kind = "ball" if isinstance(result.evidence.probe, BallProbe) else "region"
    ax.set_title(
        f"Worst {kind}: {where.mass_q:.0%} of draws, {where.mass_p:.0%} of truths"
    )
    if len(parameters) == 1:
        paint_histogram(ax, cloud, parameters[0])
        ax.set(xlabel=f"error of {label[0]}", ylabel="share")
        ax.legend(fontsize="small", framealpha=0.8, loc="best")
    elif len(parameters) == 2:
        paint_scatter(ax, cloud, *parameters, seed=seed)
        ax.set(xlabel=f"error of {label[0]}", ylabel=f"error of {label[1]}")
        ax.legend(fontsize="small", framealpha=0.8, loc="best", markerscale=2)
    else:
        paint_corner(ax, cloud, parameters, label, seed)
    return ax


def plot_discrepancy_map(
    result: CoLTResult,
    ax: Axes | None = None,
    *,
    features: int | Sequence[int] | None = None,
    num_neighbours: int | None = None,
) -> Axes:
    """Plot where in x the truths' mass in the worst ball differs from the draws'.

    Args:
        result: CoLT's result.
        ax: Where to plot; by default a new figure.
        features: One feature of x (a curve) or two (a map), by position in the
            flattened x; by default those that go with the discrepancy most.
        num_neighbours: Test pairs to average over; by default a tenth of them, and at
            least 30.
    """
    ax = _axes(ax)
    evidence = result.evidence
    flat = evidence.xs.double().reshape(len(evidence.xs), -1).cpu()
    mass_q = result.leading.mass_q
    excess = (result.leading.ranks <= mass_q).double() - mass_q  # (N,)
    if features is None:
        features = _related(excess, flat)[: min(2, flat.shape[1])]
    chosen = _checked_features(features, flat.shape[1])
    if num_neighbours is not None and not isinstance(num_neighbours, bool):
        num_neighbours = _as_int(num_neighbours, "num_neighbours")
    count = evidence.checked_neighbours(num_neighbours)
    columns = flat[:, chosen]
    scaled = columns / columns.std(dim=0).clamp_min(1e-300)
    shown = slice(None, None, math.ceil(len(flat) / _MAX_POINTS))
    weights = nearness_weights(scaled, scaled[shown], count)  # (n, N)
    smooth = (weights @ excess) / weights.sum(dim=1)
    margin = 1.96 * (mass_q * (1 - mass_q) / (0.83 * count)) ** 0.5
    paint = _paint_curve if len(chosen) == 1 else _paint_map
    paint(ax, columns[shown], smooth, margin)
    names = [f"x[{feature}]" for feature in chosen]
    ax.set_xlabel(names[0])
    if len(names) == 2:
        ax.set_ylabel(names[1])
    ax.set_title("Discrepancy over x")
    return ax


def _paint_curve(ax: Axes, columns: Tensor, smooth: Tensor, margin: float) -> Axes:
    """Paint the smoothed excess over one feature of x."""
    order = columns[:, 0].argsort()
    x, y = columns[order, 0].numpy(), smooth[order].numpy()
    text = "chance, at each x by itself"
    ax.axhspan(-margin, margin, color=GREY, alpha=0.25, lw=0, label=text)
    ax.legend(fontsize="small", frameon=False)
    ax.axhline(0, color=GREY, lw=0.8)
    ax.plot(x, y, color=BLUE)
    ax.plot(x, np.full_like(x, ax.get_ylim()[0]), "|", color=GREY, ms=4)
    ax.set_ylabel("excess mass of truths in the region")
    return ax


def _paint_map(ax: Axes, columns: Tensor, smooth: Tensor, margin: float) -> Axes:
    """Paint the smoothed excess over two features of x."""
    size = max(float(smooth.abs().max()), 1e-9)
    clear = smooth.abs() > margin
    ax.scatter(*columns[~clear].T.numpy(), color=GREY, alpha=0.4, s=8, lw=0)
    points = ax.scatter(
        *columns[clear].T.numpy(),
        c=smooth[clear].numpy(),
        cmap="PuOr_r",
        vmin=-size,
        vmax=size,
        s=18,
    )
    text = "excess mass of truths in the region (grey: chance)"
    ax.figure.colorbar(points, ax=ax, label=text)
    return ax


def _checked_features(features: Any, number: int) -> list[int]:
    """Return one or two positions in the flattened x, or raise."""
    places = features if hasattr(features, "__len__") else [features]
    chosen = [_as_int(place, "features") for place in places]
    if len(chosen) not in (1, 2) or not set(chosen) <= set(range(number)):
        raise ValueError(
            f"features: expected one or two positions among 0 to {number - 1}, got "
            f"{features!r}."
        )
    return chosen


def _as_int(value: Any, name: str) -> int:
    """Return any kind of integer, such as NumPy's, as an `int`."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name}: expected an integer, got {value!r}.") from error


def plot_training(result: CoLTResult, ax: Axes | None = None) -> Axes:
    """Plot the divergence of held-out ranks from uniform during training.

    Dots mark the states that were kept.
    """
    ax = _axes(ax)
    colours = itertools.cycle(PALETTE)
    shown = False
    for name, history in result.history.items():
        held_out = bool(history.validation)
        values = history.validation or history.training
        if not values:
            continue
        shown, color = True, next(colours)
        start = 0 if held_out else 1
        epochs = range(start, start + len(values))
        ax.plot(epochs, values, color=color, lw=1, label=name)
        kept = min(history.best_epoch - start, len(values) - 1)
        ax.plot(history.best_epoch, values[kept], "o", color=color, ms=5)
    ax.set(title="Training", xlabel="epoch", ylabel="divergence of held-out ranks")
    if shown:
        ax.legend(fontsize="small", frameon=False)
    else:
        ax.text(0.5, 0.5, "nothing was trained", ha="center", transform=ax.transAxes)
    return ax


def plot_comparison(
    distances: Mapping[str, tuple[float, float, float, bool]], ax: Axes | None = None
) -> Axes:
    """Plot the distances of several posteriors with their intervals.

    Args:
        distances: By name: the distance, both ends of its interval, and whether the
            posterior is rejected.
        ax: Where to plot; by default a new figure.
    """
    ax = _axes(ax, (6.4, 1.4 + 0.45 * len(distances)))
    for place, (value, low, high, rejected) in enumerate(distances.values()):
        color = ORANGE if rejected else BLUE
        ax.plot([low, high], [place, place], color=color, lw=2)
        ax.plot(value, place, "s" if rejected else "o", color=color, ms=7)
    for rejected, color, marker in ((False, BLUE, "o"), (True, ORANGE, "s")):
        if rejected in {entry[3] for entry in distances.values()}:
            text = "rejected" if rejected else "not rejected"
            ax.plot([], [], marker, color=color, label=text)
    ax.set_yticks(range(len(distances)), labels=list(map(figure_text, distances)))
    ax.set_ylim(len(distances) - 0.5, -0.5)  # the closest on top
    ax.set(xlim=(0, None), xlabel="misplaced mass (distance)")
    ax.grid(axis="x", color=GREY, alpha=0.3)
    ax.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    return ax


def panels(report: DiagnosticReport) -> list[tuple[str, Callable[[Axes], Axes]]]:
    """Return the panels of a report: what each shows, and a function that plots it."""
    names = [figure_text(name) for name in report.names]
    found: list[tuple[str, Callable[[Axes], Axes]]] = []
    if report.observation is not None:
        plot = partial(paint_observation, result=report.observation)
        found.append(("observation", plot))
    data = report.replicates
    if data is not None:
        shape = report.x_shape
        found.append(("data", partial(paint_replicates, data=data, x_shape=shape)))
        if data.num_posterior_samples > 2:
            plot = partial(paint_outside, data=data, x_shape=shape)
            found.append(("outside", plot))
    for name, result in report.results.items():
        if not isinstance(result, CoLTResult) and result.ranks is None:
            continue
        curves = names if name == "sbc" else None
        own_level = report.level / max(1, len(report.sides))
        title = "Predictive" if name == "predictive" else None
        plot = partial(plot_ranks, result, level=own_level, names=curves, title=title)
        found.append((f"ranks of {name}", plot))
    if report.colt is not None:
        found += [
            ("localization", partial(plot_localization, report.colt, names=names)),
            ("discrepancy over x", partial(plot_discrepancy_map, report.colt)),
            ("training", partial(plot_training, report.colt)),
        ]
    return found


def plot_report(report: DiagnosticReport) -> Figure:
    """Plot a whole report in one figure."""
    shown = panels(report)
    rows = max(1, math.ceil(len(shown) / 3))
    figure = DetachedFigure(figsize=(12, 3.8 * rows), layout="constrained")
    axes = figure.subplots(rows, 3, squeeze=False)
    for place, ax in enumerate(axes.flat):
        if place < len(shown):
            shown[place][1](ax)
        else:
            ax.set_axis_off()
    return figure


class DetachedFigure(Figure):
    """A figure that pyplot does not keep, and that notebooks show as an image."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def _axes(ax: Axes | None, figsize: tuple[float, float] | None = None) -> Axes:
    if ax is not None:
        return ax
    return DetachedFigure(figsize=figsize, layout="constrained").add_subplot()


def _difference(ranks: Tensor, grid: np.ndarray) -> np.ndarray:
    ordered = np.sort(ranks.numpy())
    return np.searchsorted(ordered, grid, side="right") / len(ordered) - grid


def _deviation(ranks: Tensor, grid: np.ndarray) -> float:
    return float(np.abs(_difference(ranks, grid)).max())


def _related(excess: Tensor, flat: Tensor) -> list[int]:
    """Return features of x, those first that go with the excess most."""
    centred = flat - flat.mean(dim=0)
    centred = centred / centred.norm(dim=0).clamp_min(1e-300)
    return ((excess - excess.mean()) @ centred).abs().argsort(descending=True).tolist()
