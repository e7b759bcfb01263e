"""Tables of power from the benchmark's rows, beside the numbers that the paper reports.

`summarise` turns the rows of all seeds into one entry for each cell.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import NamedTuple

from sbi_colt.benchmark.grid.rows import EXACT, Row, unpacked
from sbi_colt.benchmark.methods import known_methods
from sbi_colt.benchmark.tasks.task import DIMS

__all__ = [
    "PAPER",
    "Entries",
    "Entry",
    "Key",
    "aligned",
    "only",
    "steps_line",
    "summarise",
    "table_lines",
]


def aligned(texts: Iterable[object], *widths: int) -> str:
    """Return a line of a table: the first text to the left, the others to the right.

    The last width is that of all further columns.

    Example:
        >>> aligned(["mean", 0.1, 0.2], 6, 5)
        'mean    0.1  0.2'
    """
    first, *others = map(str, texts)
    sizes = chain(widths[1:], repeat(widths[-1]))
    columns = (f"{text:>{size}}" for text, size in zip(others, sizes, strict=False))
    return f"{first:<{widths[0]}}" + "".join(columns)


class Key(NamedTuple):
    """A cell without its seed."""

    task: str
    dim_x: int
    dim: int
    alpha: float
    method: str

    def __str__(self) -> str:
        place = f"({self.dim_x}, {self.dim})"
        return f"{self.task} {self.alpha:g} {place} {self.method}"


# Power that the paper reports, with its standard error over three seeds.
PAPER: dict[tuple, tuple[float, float]] = {
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


@dataclass(frozen=True)
class Entry:
    """The rows of one cell over all seeds: means, and the number of batches.

    The standard error of the power is binomial over all batches, or that of the seeds'
    means where it is larger.
    """

    power: float
    error: float
    statistic: float
    num_batches: int
    draws_per_step: int | None
    rejected: tuple[bool, ...] = ()  # batch by batch, where that was kept


Entries = dict[Key, Entry]


def only(
    entries: Entries,
    task: str | None = None,
    method: str | None = None,
    where: Callable[[Key], bool] = lambda key: True,
) -> Entries:
    """Return the entries of a task and of a method for whose keys ``where`` is true."""
    return {
        key: entry
        for key, entry in entries.items()
        if task in (None, key.task) and method in (None, key.method) and where(key)
    }


def summarise(rows: Sequence[Row]) -> Entries:
    """Return the rows of all seeds as one entry for each cell."""
    groups: dict[Key, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        cell = row.cell
        key = Key(cell.task, cell.dim_x, cell.dim, cell.alpha, cell.method)
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

    A number that the paper reports stands in a line below ours. A star marks ours if
    the two differ by more than two standard errors.
    """
    entries = summarise(rows)
    found = {key.method for key in entries}
    names = [name for name in (*known_methods(), EXACT) if name in found]
    names += sorted(found - set(names))
    for task, dim_x, dim in dict.fromkeys(key[:3] for key in entries):
        dims = (dim_x, dim)
        own = only(entries, task, where=lambda key, dims=dims: key[1:3] == dims)
        here = [name for name in names if only(own, method=name)]
        yield f"{task}, x of dimension {dim_x}, theta of dimension {dim}"
        yield aligned(("", "alpha", *here), 0, 8, 12)
        for alpha in sorted({key.alpha for key in own}):
            keys = [Key(task, dim_x, dim, alpha, name) for name in here]
            texts = (_text(key, own.get(key)) for key in keys)
            yield aligned(("", f"{alpha:g}", *texts), 0, 8, 12)
            if any(key in PAPER for key in keys):
                reported = map(_paper_text, keys)
                yield aligned(("", "paper", *reported), 0, 8, 12).rstrip()
        if line := steps_line(own):
            yield line
        yield ""


def steps_line(entries: Entries) -> str:
    """Return a sentence on the draws per training step, "" if they are all draws."""
    paper = only(entries, where=lambda key: key.method.startswith("paper"))
    steps = {entry.draws_per_step for entry in paper.values()}
    if not steps - {None}:
        return ""
    shown = " or ".join(str(step or "all") for step in sorted(steps, key=str))
    return f"The paper's variants see {shown} draws per training step."


def _entry(rows: Sequence[Row]) -> Entry:
    batches = sum(row.cell.num_batches for row in rows)
    power = sum(row.power * row.cell.num_batches for row in rows) / batches
    error = math.nan
    if not math.isnan(power):
        error = math.sqrt(max(power * (1 - power), 0) / batches)
    if len(rows) > 1:
        spread = sum((row.power - power) ** 2 for row in rows) / (len(rows) - 1)
        error = max(error, math.sqrt(spread / len(rows)))
    statistic = sum(row.statistic for row in rows) / len(rows)
    kept = [unpacked(row) for row in sorted(rows, key=lambda row: row.cell.seed)]
    rejected = tuple(bit for bits in kept for bit in bits) if all(kept) else ()
    steps = rows[0].cell.draws_per_step
    return Entry(power, error, statistic, batches, steps, rejected)


def _text(key: Key, entry: Entry | None) -> str:
    if entry is None:
        return ""
    if key.method == EXACT:
        return f"{entry.statistic:.3f} acc."
    star = " "
    if key in PAPER:
        reported, other = PAPER[key]
        # A share of 0 or 1 has an error too: at least that of one batch.
        error = max(entry.error, 1 / entry.num_batches)
        both = error if math.isnan(other) else math.hypot(error, other)
        star = "*" if abs(entry.power - reported) > 2 * both else " "
    return f"{entry.power:.2f}±{entry.error:.2f}{star}"


def _paper_text(key: Key) -> str:
    power, error = PAPER.get(key, (math.nan, math.nan))
    if math.isnan(power):
        return ""
    return f"{power:.2f}" + ("      " if math.isnan(error) else f"±{error:.2f} ")
