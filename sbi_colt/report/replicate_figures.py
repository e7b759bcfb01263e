"""Figures of the data side: observations among their replicates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from scipy.stats import binom
from torch import Tensor

from sbi_colt.draws import Draws
from sbi_colt.report.colours import BLUE, GREY, ORANGE
from sbi_colt.report.pictures import as_picture, frame, is_image

__all__ = ["paint_outside", "paint_replicates"]

_NUM_PAIRS = 4  # shown as lines
_NUM_IMAGES = 3  # pairs shown as images
_NUM_POINTS = 30  # pairs shown where x is one number
_MAX_REPLICATES = 30
_MAX_BARS = 60  # features with a mark each; more are a line


def paint_replicates(ax: Axes, data: Draws, x_shape: tuple[int, ...]) -> Axes:
    """Paint the observations that differ most from their replicates, among them.

    Args:
        ax: Where to plot.
        data: The data side: observations as ``thetas``, replicates as ``samples``.
        x_shape: The shape of one x.
    """
    order = _misfit(data).argsort(descending=True).tolist()
    ax.set_title("Data: observed (orange) among replicates")
    if is_image(x_shape):
        return _paint_images(ax, data, order[:_NUM_IMAGES], x_shape)
    if data.dim == 1:
        return _paint_points(ax, data, order[:_NUM_POINTS])
    return _paint_lines(ax, data, order[:_NUM_PAIRS])


def paint_outside(ax: Axes, data: Draws, x_shape: tuple[int, ...]) -> Axes:
    """Paint how often an observation lies outside the range of its replicates.

    The chance is 2 / (M + 1) for each feature if x is exchangeable with its replicates.
    The grey band has 95% of all shares if that holds, Bonferroni's over the features.
    If x is equal to the smallest (or largest) of its replicates and t of them are, x
    counts 1 / (t + 1): as often as it would be the smallest if ties were broken at
    random.

    Args:
        ax: Where to plot.
        data: The data side: observations as ``thetas``, replicates as ``samples``.
        x_shape: The shape of one x.
    """
    shares = _outside(data).numpy()  # (D,)
    number, expected = len(data), 2 / (data.num_posterior_samples + 1)
    tail = 0.05 / (2 * len(shares))
    low, high = (float(binom.ppf(q, number, expected)) for q in (tail, 1 - tail))
    ax.set_title("Data: outside the range of replicates")
    if is_image(x_shape):
        picture = as_picture(shares, x_shape)
        shown = ax.imshow(picture, cmap="cividis", vmin=0, vmax=1)
        ax.figure.colorbar(shown, ax=ax, label=f"share (expected {expected:.0%})")
        ax.set(xticks=[], yticks=[])
        return ax
    places = np.arange(len(shares))
    band = f"chance, {number} pairs"
    ax.axhspan(low / number, high / number, color=GREY, alpha=0.25, lw=0, label=band)
    ax.axhline(expected, color=GREY, ls="--", lw=1)
    if len(shares) <= _MAX_BARS:
        ax.vlines(places, expected, shares, color=BLUE, lw=1)
        ax.plot(places, shares, "o", color=BLUE, ms=4)
    else:
        ax.plot(places, shares, color=BLUE, lw=1)
    ax.set(xlabel="feature of x", ylabel="share of observations", ylim=(0, 1))
    ax.set_xlim(-0.5, len(shares) - 0.5)  # room for an integer, also with one feature
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.legend(fontsize="small", frameon=False)
    return ax


def _misfit(data: Draws) -> Tensor:
    """Return how far each observation is from its replicates, with shape ``(n,)``."""
    xs, replicates = data.thetas.double().cpu(), data.samples.double().cpu()
    gaps = (xs - replicates.mean(dim=0)).square()  # (n, D)
    own = replicates.var(dim=0, correction=0)
    typical = own.median(dim=0).values
    scale = own + typical
    return (gaps / scale.clamp_min(1e-300)).clamp_max(1e6).mean(dim=1)


def _outside(data: Draws) -> Tensor:
    """Return the share of observations outside their replicates, for each feature."""
    xs, replicates = data.thetas.cpu(), data.samples.cpu()
    low, high = replicates.amin(dim=0), replicates.amax(dim=0)
    tied = (replicates == xs).sum(dim=0)  # (n, D)
    outside = (xs <= low) / (tied + 1.0) + (xs >= high) / (tied + 1.0)
    return outside.double().mean(dim=0)


def _paint_points(ax: Axes, data: Draws, pairs: list[int]) -> Axes:
    """Paint data of one number: pairs side by side, in the order of x."""
    xs = data.thetas[pairs, 0].cpu()
    order = xs.argsort()
    replicates = data.samples[:_MAX_REPLICATES, pairs, 0].cpu()[:, order]
    for row in replicates:
        ax.plot(range(len(pairs)), row, "o", color=GREY, ms=3, alpha=0.6)
    ax.plot(range(len(pairs)), xs[order], "D", color=ORANGE, ms=5)
    ax.set(xlabel="pairs that differ most, in the order of x", ylabel="x", xticks=[])
    return ax


def _paint_lines(ax: Axes, data: Draws, pairs: list[int]) -> Axes:
    """Paint vectors and series as lines, one small plot for each pair."""
    ax.set_axis_off()
    places = np.arange(data.dim)
    marker = "." if data.dim <= 20 else None
    scales = data.samples.double().cpu().std(dim=(0, 1)).clamp_min(1e-300)
    uneven = float(scales.max() / scales.median()) > 30  # one feature would hide others
    unit = scales.numpy() if uneven else np.ones(data.dim)
    for number, pair in enumerate(pairs):
        inset = _inset(ax, number, 2, 2)
        replicates = data.samples[:_MAX_REPLICATES, pair].double().cpu().numpy()
        for row in replicates:
            inset.plot(places, row / unit, color=GREY, lw=0.8, alpha=0.7)
        x = data.thetas[pair].double().cpu().numpy() / unit
        inset.plot(places, x, color=ORANGE, lw=1.4, marker=marker)
        inset.tick_params(labelsize=6)
        if number >= 2:
            text = "feature of x (in its standard deviations)" if uneven else "feature"
            inset.set_xlabel(text, fontsize=7)
    return ax


def _paint_images(
    ax: Axes, data: Draws, pairs: list[int], x_shape: tuple[int, ...]
) -> Axes:
    """Paint images: each row is an observation, framed, and some of its replicates."""
    ax.set_axis_off()
    columns = min(4, 1 + data.num_posterior_samples)
    for row, pair in enumerate(pairs):
        shown = [data.thetas[pair], *data.samples[: columns - 1, pair]]
        pictures = [as_picture(x.double().cpu().numpy(), x_shape) for x in shown]
        limits: dict[str, Any] = {
            "vmin": min(p.min() for p in pictures),
            "vmax": max(p.max() for p in pictures),
        }
        for column, picture in enumerate(pictures):
            inset = _inset(ax, row * columns + column, len(pairs), columns)
            inset.imshow(picture, cmap="gray", **limits)
            inset.set(xticks=[], yticks=[])
            if column == 0:
                frame(inset)
    return ax


def _inset(ax: Axes, number: int, rows: int, columns: int) -> Axes:
    row, column = divmod(number, columns)
    width, height = 1 / columns, 1 / rows
    pad = 0.02 + 0.1 * math.sqrt(width * height) / 2
    return ax.inset_axes(
        (
            column * width + pad,
            1 - (row + 1) * height + pad,
            width - 1.5 * pad,
            height - 2 * pad,
        )
    )
