"""Truths among draws: errors at all xs in one cloud, and how to paint it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.mathtext import MathTextParser

from sbi_colt.report.colours import BLUE, GREY, ORANGE
from sbi_colt.results.colt_result import CoLTResult

__all__ = [
    "Cloud",
    "figure_text",
    "most_wrong",
    "paint_corner",
    "paint_histogram",
    "paint_scatter",
    "standardise",
]

# Draws shown; more would only blacken the picture.
_MAX_POINTS = 2000
_MAX_TEXT = 30


def figure_text(text: str, length: int = _MAX_TEXT) -> str:
    """Return a name as matplotlib can show it: short, and with mathematics or none.

    Example:
        >>> figure_text("a name that goes on and on and on_17")
        'a name that goes on and on…_17'
    """
    text = str(text)
    if len(text) > length:
        text = f"{text[: length - 4]}…{text[-3:]}"  # its number is often at the end
    try:
        MathTextParser("agg").parse(text)
    except ValueError:
        text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text  # else no legend shows it


@dataclass(frozen=True)
class Cloud:
    """Standardised errors of draws and of truths, and which draws lie in the region."""

    errors: np.ndarray  # (S, d)
    truths: np.ndarray  # (N, d)
    inside: np.ndarray  # (S,)


def standardise(result: CoLTResult) -> Cloud:
    """Return the test pairs' bags, each standardised by its own mean and spread."""
    evidence = result.evidence
    members = evidence.members.double()
    mean = members.mean(dim=1, keepdim=True)
    scale = members.std(dim=1, keepdim=True).clamp_min(1e-300)
    errors = (members - mean) / scale  # (N, K + 1, d)
    inside = result.localize().contains(evidence.members.transpose(0, 1)).T
    is_draw = torch.ones(inside.shape, dtype=torch.bool, device=inside.device)
    rows = torch.arange(len(is_draw), device=inside.device)
    is_draw[rows, evidence.truth] = False
    truths = errors[rows, evidence.truth]
    return Cloud(
        errors[is_draw].cpu().numpy(),
        truths.cpu().numpy(),
        inside[is_draw].cpu().numpy(),
    )


def most_wrong(cloud: Cloud) -> list[int]:
    """Return the parameters, those first whose errors look least like draws."""
    shift = np.abs(cloud.truths.mean(axis=0))
    widths = [np.log(e.std(axis=0) + 1e-12) for e in (cloud.truths, cloud.errors)]
    return np.argsort(-(shift + np.abs(widths[0] - widths[1]))).tolist()


def _span(cloud: Cloud, *parameters: int) -> float:
    """Return how far from zero the errors of some parameters reach."""
    columns = list(parameters)
    draws = np.quantile(np.abs(cloud.errors[:, columns]), 0.999)
    truths = np.quantile(np.abs(cloud.truths[:, columns]), 0.99)
    return float(max(draws, truths)) or 1.0  # of a constant parameter


def paint_histogram(ax: Axes, cloud: Cloud, j: int) -> Axes:
    """Paint the errors of one parameter into an Axes, and return it."""
    span = _span(cloud, j)
    edges = np.linspace(-span, span, 31).tolist()
    masks = (cloud.inside, ~cloud.inside)
    ax.hist(
        [cloud.errors[mask, j] for mask in masks],
        edges,
        weights=[np.full(int(mask.sum()), 1 / len(mask)) for mask in masks],
        stacked=True,
        color=[BLUE, GREY],
        alpha=0.6,
        label=["draws in the region", "other draws"],
    )
    ax.hist(
        cloud.truths[:, j],
        edges,
        weights=np.full(len(cloud.truths), 1 / len(cloud.truths)),
        histtype="step",
        color=ORANGE,
        lw=2,
        label="truths",
    )
    ax.set_xlim(-span, span)
    return ax


def paint_scatter(
    ax: Axes, cloud: Cloud, i: int, j: int, *, seed: int, size: float = 1.0
) -> Axes:
    """Paint the errors of two parameters; ``size`` scales the points."""
    chosen = np.random.default_rng(seed).permutation(len(cloud.errors))[:_MAX_POINTS]
    inside = cloud.inside[chosen]
    for mask, color, text in (
        (~inside, GREY, "other draws"),
        (inside, BLUE, "draws in the region"),
    ):
        points = cloud.errors[chosen][mask]
        ax.scatter(
            points[:, i],
            points[:, j],
            s=5 * size,
            color=color,
            alpha=0.35,
            lw=0,
            label=text,
        )
    ax.scatter(
        cloud.truths[:, i],
        cloud.truths[:, j],
        s=14 * size,
        facecolor=ORANGE,
        edgecolor="white",
        lw=0.3 * size,
        label="truths",
        zorder=3,
    )
    across, up = _span(cloud, i), _span(cloud, j)
    ax.set(xlim=(-across, across), ylim=(-up, up))
    return ax


def paint_corner(
    ax: Axes, cloud: Cloud, parameters: Sequence[int], label: Sequence[str], seed: int
) -> Axes:
    """Paint all pairs of parameters into insets of one Axes, and return it."""
    ax.set_axis_off()
    first = None
    side = 1 / len(parameters)
    short = [figure_text(text, _MAX_TEXT // len(parameters)) for text in label]
    for row, i in enumerate(parameters):
        for column, j in enumerate(parameters[: row + 1]):
            corner = (column * side, 1 - (row + 1) * side)
            inset = ax.inset_axes((*corner, 0.94 * side, 0.94 * side))
            first = first or inset
            inset.tick_params(labelsize="x-small", length=2)
            if i == j:
                paint_histogram(inset, cloud, i)
            else:
                paint_scatter(inset, cloud, j, i, seed=seed, size=0.5)
            if row == len(parameters) - 1:
                inset.set_xlabel(short[column], fontsize="small")
            else:
                inset.tick_params(labelbottom=False)
            if column == 0 and row:
                inset.set_ylabel(short[row], fontsize="small")
            else:
                inset.tick_params(labelleft=False)
    assert first is not None
    handles, texts = first.get_legend_handles_labels()
    ax.legend(
        handles,
        texts,
        title="standardised errors",
        title_fontsize="small",
        fontsize="small",
        frameon=False,
        loc="upper right",
    )
    return ax
