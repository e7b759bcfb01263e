"""``power``: power of every method at the paper's budget.

The table has each of the paper's perturbations at one size, in four pairs of dimensions
and for two families of posteriors, and the tree.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from sbi_colt.benchmark.claims import (
    Claim,
    alarm_counts,
    claim_lines,
    false_alarms,
    key_text,
    powers,
)
from sbi_colt.benchmark.figures import style_of
from sbi_colt.benchmark.grid.cells import Cell, make_cells
from sbi_colt.benchmark.grid.rows import Row
from sbi_colt.benchmark.methods import METHODS
from sbi_colt.benchmark.studies.options import (
    add_dims,
    add_grid_options,
    run_grid,
    show,
)
from sbi_colt.benchmark.tables import Entry, Key, steps_line, summarise
from sbi_colt.benchmark.tasks.task import DIMS
from sbi_colt.report.clouds import GREY

__all__ = [
    "SIZES",
    "add_options",
    "mean_powers",
    "plot_power",
    "power_cells",
    "power_claims",
    "power_lines",
    "run",
]

DESCRIPTION = (
    "Measure power for both families of posteriors, all perturbations, the blind prior "
    "and no error, in four pairs of dimensions, and for the tree. Print the table, its "
    "means, and whether the claims about it hold (four hours on two cores). Cells that "
    "the file already has are not run again."
)
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
_NUM_BATCHES = 100
_DRAWS_PER_STEP = 10  # of the paper's variants
_MARGIN = 0.05  # a method with this much more power is ahead
_WIDTH = 11


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_grid_options(parser, "power.csv")
    add_dims(parser, "only these dimensions of x and theta, without the tree")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="write a figure of the means"
    )


def run(options: argparse.Namespace) -> int:
    """Fill the file, print the table and its claims, and write the figure."""
    if options.plot and not options.plot.parent.is_dir():
        raise ValueError(f"--plot: there is no folder {options.plot.parent}.")
    rows = run_grid(power_cells(options.dims), options)
    show([*power_lines(rows), "", *claim_lines(power_claims(rows))])
    if options.plot:
        plot_power(rows).savefig(options.plot, dpi=100)
    return 0


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
    # On the tree the paper's variants train for 5000 epochs, a quarter of an hour.
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

    A star marks the default if another method has more power by over 0.05.
    """
    entries = summarise(rows)
    for family, title in _FAMILIES.items():
        for dim_x, dim in _dims_of(rows):
            yield f"{title}, x of dimension {dim_x}, theta of dimension {dim}"
            yield _line("", METHODS)
            for name in ("none", *SIZES):
                task = family + ("covariance" if name == "none" else name)
                row = _row(entries, task, (dim_x, dim), SIZES.get(name, 0.0))
                yield _line(name, _texts(row, name != "none"))
            yield ""
        if means := mean_powers(entries, family):
            yield _line(f"{title}, mean", [f"{mean:.3f}   " for mean in means.values()])
            yield ""
    if any(row.cell.task == "tree" for row in rows):
        yield "Tree, 1000 pairs, 100 draws"
        yield _line("", METHODS)
        for alpha in _TREE:
            row = _row(entries, "tree", (1, 2), alpha)
            yield _line(f"{alpha:g}" if alpha else "none", _texts(row, alpha > 0))
        yield ""
    yield "Power at level 0.05; in lines without an error (none), false alarms. 100"
    yield "training pairs, 500 draws per pair, batches of 100 test pairs. A star marks"
    yield "the default if another method has more power by over 0.05."
    if line := steps_line(entries):
        yield line


def mean_powers(entries: dict[Key, Entry], family: str) -> dict[str, float]:
    """Return each method's mean power over the perturbations of a family.

    Cells that some method lacks are left out.

    Args:
        entries: The entries.
        family: ``""`` for the Gaussian family, ``"curved-"`` for the curved one.
    """
    sizes = {family + name: size for name, size in SIZES.items()}
    places = dict.fromkeys(k[:4] for k in entries if sizes.get(k[0]) == k[3])
    whole = [p for p in places if all((*p, method) in entries for method in METHODS)]
    if not whole:
        return {}
    return {m: fmean(entries[(*place, m)].power for place in whole) for m in METHODS}


def power_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims about those cells that the rows have."""
    entries = summarise(rows)
    own = {k: e for k, e in entries.items() if k[4] == "default"}
    nulls = {k: e for k, e in own.items() if k[3] == 0}
    claims = [
        false_alarms(
            "The default's false alarms are within the 99% band of 0.05 in every cell "
            "without an error",
            alarm_counts(nulls),
        ),
        _ahead_claim(entries),
        *_blind_claims(entries),
    ]
    if set(_dims_of(rows)) == set(DIMS):
        claims += _mean_claims(entries)
    if tree := {k: e for k, e in own.items() if k[0] == "tree" and k[3] > 0}:
        strong = {k: e for k, e in tree.items() if k[3] >= 1}
        claims += [
            powers("The default finds every blur of the tree (0.9 or more)", tree, 0.9),
            powers("The default always finds a blur of 1 or more", strong, 1),
        ]
    return claims


def _ahead_claim(entries: dict[Key, Entry]) -> Claim:
    sizes = {
        family + name: size for family in _FAMILIES for name, size in SIZES.items()
    }
    against = []
    for key, entry in entries.items():
        ours = entries.get((*key[:4], "default"))
        if ours and sizes.get(key[0]) == key[3] and entry.power > ours.power + _MARGIN:
            against.append(
                f"{key_text(key)} has {entry.power:.2f}, the default {ours.power:.2f}"
            )
    text = "No other method is ahead of the default by more than 0.05 in any cell"
    return Claim(f"{text} of the two families", tuple(against))


def _blind_claims(entries: dict[Key, Entry]) -> Iterable[Claim]:
    def blind(task: str, method: str | None, is_large: bool | None) -> dict[Key, Entry]:
        return {
            key: entry
            for key, entry in entries.items()
            if key[0] == task
            and key[3]
            and method in (None, key[4])
            and is_large in (None, key[1] > 10)
        }

    for text, found, least, most in (
        (
            "The default finds the Gaussian blind prior (0.98 or more)",
            blind("blind", "default", None),
            0.98,
            1.0,
        ),
        (
            "The default finds the curved blind prior for x of up to 10 dimensions "
            "(0.9 or more)",
            blind("curved-blind", "default", False),
            0.9,
            1.0,
        ),
        (
            "No method finds the curved blind prior for x of more than 10 dimensions "
            "(at most 0.1)",
            blind("curved-blind", None, True),
            0.0,
            0.1,
        ),
    ):
        if found:
            yield powers(text, found, least, most)


def _mean_claims(entries: dict[Key, Entry]) -> Iterable[Claim]:
    families = [mean_powers(entries, family) for family in _FAMILIES]
    if not all(families):
        return
    for title, means, least in zip(
        _FAMILIES.values(), families, (0.92, 0.75), strict=True
    ):
        mean = means["default"]
        against = () if mean >= least else (f"the mean is {mean:.3f}",)
        text = f"The default's mean power on {title} posteriors is at least {least}"
        yield Claim(text, against)
    overall = {m: fmean(means[m] for means in families) for m in METHODS}
    paper = max(overall["paper-full"], overall["paper-id"])
    ours = overall["default"]
    against = () if ours >= 1.5 * paper else (f"{ours:.3f} against {paper:.3f}",)
    yield Claim(
        "The default's mean power is at least 1.5 times that of either paper variant",
        against,
    )


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
            style = style_of(method)
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
                color=style.color,
                alpha=0.55 if style.line == "--" else 1.0,
                label=style.label,
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
    """Return the dimensions that the rows of the families have, small ones first."""
    return sorted(
        {(row.cell.dim_x, row.cell.dim) for row in rows if row.cell.task != "tree"}
    )


def _row(
    entries: dict[Key, Entry], task: str, dims: tuple[int, int], alpha: float
) -> list[Entry | None]:
    return [entries.get((task, *dims, alpha, method)) for method in METHODS]


def _line(label: str, texts: Iterable[str]) -> str:
    return f"{label:<14}" + "".join(f"{text:>{_WIDTH}}" for text in texts).rstrip()


def _texts(row: Sequence[Entry | None], is_perturbed: bool) -> Iterator[str]:
    best = max((entry.power for entry in row[1:] if entry), default=0.0)
    for place, entry in enumerate(row):
        if entry is None:
            yield ""
            continue
        behind = is_perturbed and place == 0 and entry.power < best - _MARGIN
        yield f"{entry.power:.2f}±{entry.error:.2f}{'*' if behind else ' '}"
