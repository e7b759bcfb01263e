"""Measure power of every method at the paper's budget, as one table.

The table has both families of posteriors, all perturbations at one size, the blind
prior and no error, in four pairs of dimensions, and the tree. Print the table, its
means, and whether the claims about it hold (four hours on two cores). Cells that the
file already has are not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.figure import Figure
from scipy.stats import norm

from sbi_colt.benchmark.claims import (
    Claim,
    alarm_counts,
    claim_lines,
    false_alarms,
    powers,
)
from sbi_colt.benchmark.figures import add_legend, style_of
from sbi_colt.benchmark.grid.cells import make_cells
from sbi_colt.benchmark.grid.rows import Cell, Row
from sbi_colt.benchmark.grid.runner import run_grid
from sbi_colt.benchmark.methods import METHODS
from sbi_colt.benchmark.studies.shared import dims_option, grid_options
from sbi_colt.benchmark.tables import (
    Entries,
    Entry,
    Key,
    aligned,
    only,
    steps_line,
    summarise,
)
from sbi_colt.benchmark.tasks.task import DIMS
from sbi_colt.report.colours import GREY
from sbi_colt.report.figures import DetachedFigure

OPTIONS = {
    **grid_options("power.csv"),
    **dims_option("only these dimensions of x and theta, without the tree"),
    "--methods": {"nargs": "+", "choices": list(METHODS), "help": "only these methods"},
    "--plot": {"type": Path, "metavar": "FILE", "help": "write a figure of the means"},
}
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
_TREE = (0.0, 0.5, 1.0, 1.5, 4.0)
# A bias of so many standard deviations in one of 10 or of 30 parameters.
_BIAS = {("bias", 0.2): (10, 10), ("bias", 0.25): (30, 30)}
_CHEAP = ("default", "c2st", "sbc", "tarp")  # all but the paper's variants
_MARGIN = 0.05  # a method with this much more power is ahead


def run(options: argparse.Namespace) -> Iterator[str]:
    """Fill the file, yield the table and its claims, and write the figure."""
    if options.plot and not options.plot.parent.is_dir():
        raise ValueError(f"--plot: there is no folder {options.plot.parent}.")
    chosen = options.methods or METHODS
    cells = [cell for cell in power_cells(options.dims) if cell.method in chosen]
    rows = run_grid(cells, options)
    yield from (*power_lines(rows), "", *claim_lines(power_claims(rows)))
    if options.plot:
        plot_power(rows).savefig(options.plot, dpi=100)


def power_cells(dims: Sequence[tuple[int, int]] | None = None) -> list[Cell]:
    """Return the cells of the table: three task seeds, and the tree with one.

    With dimensions of x and θ, return their cells alone, without the tree.
    """
    few: Any = {"num_batches": 100, "draws_per_step": 10}
    cells = []
    for pair in dims or DIMS:
        for family in _FAMILIES:
            for name, size in SIZES.items():
                alphas = (0.0, size) if name == "covariance" else (size,)
                task = family + name
                cells += make_cells([task], alphas, [pair], seeds=(0, 1, 2), **few)
    for (task, size), pair in _BIAS.items() if dims is None else ():
        cells += make_cells(
            [task], (0.0, size), [pair], _CHEAP, seeds=(0, 1, 2), num_batches=100
        )
    # On the tree the paper's variants train for 5000 epochs, a quarter of an hour.
    for method in METHODS if dims is None else ():
        if method != "paper-id":
            alphas = _TREE[1:] if method == "paper-full" else _TREE
            cells += make_cells(["tree"], alphas, methods=[method], **few)
    return cells


def power_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table: one line for each family, dimension and perturbation.

    A star marks the default if another method has more power by over 0.05.
    """
    entries = summarise(rows)
    for family, title in _FAMILIES.items():
        for dims in _dims_of(rows):
            yield f"{title}, x of dimension {dims[0]}, theta of dimension {dims[1]}"
            yield _line("", METHODS)
            yield _line("none", _texts(entries, family + "covariance", dims, 0.0))
            for name, size in SIZES.items():
                yield _line(name, _texts(entries, family + name, dims, size))
            yield ""
        if means := mean_powers(entries, family):
            yield _line(f"{title}, mean", [f"{mean:.3f}   " for mean in means.values()])
            yield ""
    if only(entries, "bias"):
        yield "Bias of one parameter, 500 pairs, 200 draws"
        yield _line("", METHODS)
        for (task, size), pair in _BIAS.items():
            for alpha in (0.0, size):
                label = f"1 of {pair[1]}, {alpha:g}" if alpha else "none"
                yield _line(label, _texts(entries, task, pair, alpha))
        yield ""
    if only(entries, "tree"):
        yield "Tree, 1000 pairs, 100 draws"
        yield _line("", METHODS)
        for alpha in _TREE:
            texts = _texts(entries, "tree", (1, 2), alpha)
            yield _line(f"{alpha:g}" if alpha else "none", texts)
        yield ""
    yield "Power at level 0.05; in lines without an error (none), false alarms. 100"
    yield "training pairs, 500 draws per pair, batches of 100 test pairs. A star marks"
    yield "the default if another method has more power by over 0.05."
    if line := steps_line(entries):
        yield line


def mean_powers(entries: Entries, family: str = "") -> dict[str, float]:
    """Return each method's mean power over the perturbations of a family.

    The family is ``""`` or ``"curved-"``. Cells that some method lacks are left out.
    """
    sizes = {family + name: size for name, size in SIZES.items()}
    places = dict.fromkeys(k[:4] for k in entries if sizes.get(k.task) == k.alpha)
    whole = [p for p in places if all((*p, m) in entries for m in METHODS)]
    if not whole:
        return {}
    return {m: fmean(entries[Key(*p, m)].power for p in whole) for m in METHODS}


def power_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims about those cells that the rows have."""
    entries = summarise(rows)
    ours = only(entries, method="default")
    claims = [
        false_alarms(
            "The default's false alarms are within the 99% band of 0.05 in every cell "
            "without an error",
            alarm_counts(only(ours, where=lambda key: key.alpha == 0)),
        ),
        _ahead_claim(entries),
        *powers(
            "The default finds the Gaussian blind prior (0.98 or more)",
            only(ours, "blind"),
            0.98,
        ),
        *powers(
            "The default finds the curved blind prior for x of up to 10 dimensions "
            "(0.9 or more)",
            only(ours, "curved-blind", where=lambda key: key.dim_x <= 10),
            0.9,
        ),
        *powers(
            "No method finds the curved blind prior for x of more than 10 dimensions "
            "(at most 0.1)",
            only(entries, "curved-blind", where=lambda key: key.dim_x > 10),
            0.0,
            0.1,
        ),
    ]
    if set(_dims_of(rows)) == set(DIMS):
        claims += _mean_claims(entries)
    blurs = only(ours, "tree", where=lambda key: key.alpha > 0)
    large = only(blurs, where=lambda key: key.alpha >= 1)
    claims += powers(
        "The default finds every blur of the tree (0.9 or more)", blurs, 0.9
    )
    return claims + powers("The default always finds a blur of 1 or more", large, 1)


def _ahead_claim(entries: Entries) -> Claim:
    sizes = {f + name: size for f in _FAMILIES for name, size in SIZES.items()}
    against = []
    for key, entry in entries.items():
        if sizes.get(key.task) != key.alpha and (key.task, key.alpha) not in _BIAS:
            continue
        ours = entries.get(key._replace(method="default"))
        if ours and _lead(entry, ours) > _MARGIN:
            shown = f"{entry.power:.2f}, the default {ours.power:.2f}"
            against.append(f"{key} has {shown}")
    text = "No other method is ahead of the default by more than 0.05 in any cell"
    return Claim(f"{text}, batch by batch and with 99% confidence", tuple(against))


def _lead(other: Entry, ours: Entry) -> float:
    """Return how far another method is ahead, at least, with 99% confidence.

    Both have tested the same batches. Without a record of them, the mean counts.
    """
    mean = other.power - ours.power
    if len(other.rejected) != len(ours.rejected) or not ours.rejected:
        return mean
    pairs = zip(other.rejected, ours.rejected, strict=True)
    gaps = [int(a) - int(b) for a, b in pairs]
    return mean - float(norm.isf(0.01)) * stdev(gaps) / len(gaps) ** 0.5


def _mean_claims(entries: Entries) -> Iterable[Claim]:
    families = [mean_powers(entries, family) for family in _FAMILIES]
    if not all(families):
        return
    titles = _FAMILIES.values()
    for title, means, least in zip(titles, families, (0.92, 0.75), strict=True):
        mean = means["default"]
        against = () if mean >= least else (f"the mean is {mean:.3f}",)
        text = f"The default's mean power on {title} posteriors is at least {least}"
        yield Claim(text, against)
    overall = {m: fmean(means[m] for means in families) for m in METHODS}
    paper = max(overall["paper-full"], overall["paper-id"])
    ours = overall["default"]
    against = () if ours >= 1.5 * paper else (f"{ours:.3f} against {paper:.3f}",)
    text = "The default's mean power is at least 1.5 times that of either paper variant"
    yield Claim(text, against)


def plot_power(rows: Sequence[Row]) -> Figure:
    """Return a figure of mean power over the perturbations, by family and dimension."""
    entries = summarise(rows)
    shown = _dims_of(rows)
    figure = DetachedFigure(figsize=(9, 2.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    width = 0.8 / len(METHODS)
    for ax, (family, title) in zip(axes, _FAMILIES.items(), strict=True):
        for place, method in enumerate(METHODS):
            style = style_of(method)
            left = (place - (len(METHODS) - 1) / 2) * width
            heights = [
                fmean(
                    entries[Key(family + name, *dims, size, method)].power
                    for name, size in SIZES.items()
                )
                for dims in shown
            ]
            places = [at + left for at in range(len(shown))]
            opacity = 0.55 if style.line == "--" else 1.0
            look = {"color": style.color, "alpha": opacity, "label": style.label}
            ax.bar(places, heights, width, **look)
        ax.set_xticks(range(len(shown)), [f"{dim_x}, {dim}" for dim_x, dim in shown])
        ax.set(title=f"{title} posteriors".capitalize(), xlabel="dimensions of x and θ")
        ax.axhline(0.05, color=GREY, lw=0.8, ls=":")
    axes[0].set(ylabel="mean power", ylim=(0, 1.05))
    add_legend(figure, axes[:1])
    return figure


def _dims_of(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Return the dimensions that the rows of the families have, small ones first."""
    others = ("tree", "bias")
    return sorted(
        {(r.cell.dim_x, r.cell.dim) for r in rows if r.cell.task not in others}
    )


def _line(label: str, texts: Iterable[str]) -> str:
    return aligned((label, *texts), 14, 11).rstrip()


def _texts(
    entries: Entries, task: str, dims: tuple[int, int], alpha: float
) -> Iterator[str]:
    row = {m: entries.get(Key(task, *dims, alpha, m)) for m in METHODS}
    best = max((e.power for m, e in row.items() if e and m != "default"), default=0.0)
    for method, entry in row.items():
        is_behind = entry and alpha and entry.power < best - _MARGIN
        star = "*" if method == "default" and is_behind else " "
        yield f"{entry.power:.2f}±{entry.error:.2f}{star}" if entry else ""
