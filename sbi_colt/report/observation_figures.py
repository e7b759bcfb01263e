"""Figures of one observation among simulated data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from sbi_colt.report.colours import BLUE, GREY, ORANGE
from sbi_colt.report.pictures import as_picture, frame, is_image
from sbi_colt.results.plausibility_result import PlausibilityResult

__all__ = ["paint_observation"]

_NUM_IMAGES = 6  # with the observation
_MAX_MARKERS = 30  # numbers with a marker each
_SIMULATED = "simulations from the prior"
_REPLICATES = "from posterior draws at x_o"
_LEGEND: dict[str, Any] = {"fontsize": "x-small", "framealpha": 0.7, "loc": "best"}
_UNEVEN = 30  # scales that differ by more are shown in standard deviations


def paint_observation(ax: Axes, result: PlausibilityResult) -> Axes:
    """Paint x_o among prior simulations; features in which it stands out are marked.

    Vectors and series are lines over bands that hold 50% and 95% of simulated data.
    Two numbers are a point in a cloud, and a single number is a line in a histogram.
    Images stand beside the simulations that are nearest to them. Data simulated from
    posterior draws at x_o are blue.

    Args:
        ax: Where to plot.
        result: Whether the simulator could have made x_o.
    """
    ax.set_title(f"x_o among simulated data (p = {result.p_value:.2g})")
    if is_image(result.x_shape):
        return _paint_images(ax, result)
    if result.x_o.numel() == 1:
        return _paint_number(ax, result)
    if result.x_o.numel() == 2:
        return _paint_point(ax, result)
    return _paint_lines(ax, result)


def _marked(result: PlausibilityResult) -> list[int]:
    """Return the places of the numbers in which x_o stands out."""
    places = (one.index for one in result.standing_out)
    return sorted({place for place in places if place is not None})


def _paint_number(ax: Axes, result: PlausibilityResult) -> Axes:
    values = _rows(result.references)[:, 0]
    ax.hist(values, bins=30, color=GREY, alpha=0.6, label=_SIMULATED)
    if result.replicates is not None:
        replicates = _rows(result.replicates)[:, 0]
        marks = {"color": BLUE, "ms": 12, "mew": 1.5, "label": _REPLICATES}
        ax.plot(replicates, np.zeros_like(replicates), "|", **marks)
    ax.axvline(float(result.x_o), color=ORANGE, lw=2, label="x_o")
    ax.set(xlabel="x", ylabel="simulations")
    ax.legend(**_LEGEND)
    return ax


def _paint_point(ax: Axes, result: PlausibilityResult) -> Axes:
    observed = result.x_o.double().flatten().cpu().numpy()
    clouds = [(result.references, GREY, 3.0, _SIMULATED)]
    if result.replicates is not None:
        clouds.append((result.replicates, BLUE, 4.5, _REPLICATES))
    for xs, color, size, label in clouds:
        ax.plot(*_rows(xs).T, "o", color=color, ms=size, mew=0, alpha=0.7, label=label)
    ax.plot(*observed, "*", color=ORANGE, ms=14, mec="white", label="x_o")
    ax.set(xlabel="x[0]", ylabel="x[1]")
    ax.legend(**_LEGEND)
    return ax


def _paint_lines(ax: Axes, result: PlausibilityResult) -> Axes:
    rows = _rows(result.references)
    observed = result.x_o.double().flatten().cpu().numpy()
    middle, scale = np.median(rows, axis=0), rows.std(axis=0)
    is_uneven = scale.max() > _UNEVEN * max(float(np.median(scale)), 1e-300)
    if is_uneven:  # one number would hide the others
        scale = np.where(scale > 0, scale, 1.0)
        rows, observed = (rows - middle) / scale, (observed - middle) / scale
    places = np.arange(len(observed))
    for share, alpha in ((0.95, 0.25), (0.5, 0.35)):
        tail = (1 - share) / 2
        low, high = np.quantile(rows, [tail, 1 - tail], axis=0)
        label = f"{share:.0%} of simulations"
        ax.fill_between(places, low, high, color=GREY, alpha=alpha, lw=0, label=label)
    if result.replicates is not None:
        replicates = _rows(result.replicates)
        if is_uneven:
            replicates = (replicates - middle) / scale
        first, *others = ax.plot(places, replicates.T, color=BLUE, lw=0.8, alpha=0.6)
        first.set_label(_REPLICATES)
        for line in others:
            line.set_label(f"_{_REPLICATES}")  # one entry in the legend
    marker = "." if len(places) <= _MAX_MARKERS else None
    ax.plot(places, observed, color=ORANGE, lw=1.4, marker=marker, label="x_o")
    marked = _marked(result)
    if marked:
        rings = {"mfc": "none", "mec": "black", "ms": 10, "mew": 1.3}
        ax.plot(marked, observed[marked], "o", label="stands out", **rings)
    ax.set_xlabel("feature of x")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_ylabel("standard deviations from the median" if is_uneven else "x")
    ax.set_xlim(-0.5, len(places) - 0.5)
    ax.legend(**_LEGEND)
    return ax


def _paint_images(ax: Axes, result: PlausibilityResult) -> Axes:
    """Paint x_o, framed, and the simulations nearest to it."""
    ax.set_axis_off()
    shape = result.x_shape
    rows = _rows(result.references)
    observed = result.x_o.double().flatten().cpu().numpy()
    scale = np.maximum(rows.std(axis=0), 1e-12)
    gaps = (np.clip((rows - observed) / scale, -10, 10) ** 2).mean(axis=1)
    nearest = rows[gaps.argsort()[: _NUM_IMAGES - 1]]
    pictures = [as_picture(row, shape) for row in (observed, *nearest)]
    low, high = np.quantile(np.stack(pictures), [0.01, 0.99])
    for number, picture in enumerate(pictures):
        row, column = divmod(number, 3)
        inset = ax.inset_axes((column / 3 + 0.01, 0.5 - row / 2, 0.31, 0.41))
        inset.imshow(picture, cmap="gray", vmin=low, vmax=high)
        inset.set(xticks=[], yticks=[])
        inset.set_title("x_o" if number == 0 else f"nearest, {number}", fontsize=8)
        if number == 0:
            frame(inset)
            for place in _marked(result):
                *_, down, across = np.unravel_index(place, shape)
                inset.plot(across, down, "o", mfc="none", mec=ORANGE, ms=9, mew=1.5)
    return ax


def _rows(xs: Tensor) -> np.ndarray:
    """Return data ``(N, …)`` as rows."""
    return torch.flatten(xs, start_dim=1).double().cpu().numpy()
