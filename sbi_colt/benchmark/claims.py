"""Claims about measured results, checked whenever a table is made.

A claim is a sentence that the documents make about a table. A study checks its claims
against the rows that it prints, and says under the table whether each of them holds. So
a new measurement that contradicts a document shows it, without being an error.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from scipy.stats import binom

from sbi_colt.benchmark.tables import Entry, Key

__all__ = [
    "Claim",
    "alarm_counts",
    "claim_lines",
    "false_alarms",
    "key_text",
    "powers",
]

_WIDTH = 80


@dataclass(frozen=True)
class Claim:
    """A sentence about a table, and what in the table contradicts it.

    Args:
        text: The sentence, without a full stop.
        against: The numbers that contradict it; none if the claim holds.
    """

    text: str
    against: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts the claim."""
        return not self.against

    def __str__(self) -> str:
        if self.holds:
            return f"{self.text}: holds."
        return f"{self.text}: does not hold: {'; '.join(self.against)}."


def claim_lines(claims: Iterable[Claim]) -> Iterator[str]:
    """Yield the claims as a list, wrapped to the width of a terminal."""
    lines = [
        textwrap.fill(f"- {claim}", _WIDTH, subsequent_indent="  ") for claim in claims
    ]
    if lines:
        yield "Claims, checked against these rows:"
        yield from lines


def key_text(key: Key) -> str:
    """Return the name of an entry, as in "mean 0.15 (3, 3) default"."""
    task, dim_x, dim, alpha, method = key
    return f"{task} {alpha:g} ({dim_x}, {dim}) {method}"


def powers(
    text: str, entries: dict[Key, Entry], least: float, most: float = 1
) -> Claim:
    """Return the claim that every entry's power lies between two numbers."""
    against = tuple(
        f"{key_text(key)} has {entry.power:.2f}"
        for key, entry in entries.items()
        if not least <= entry.power <= most
    )
    return Claim(text, against)


def false_alarms(
    text: str,
    counts: dict[str, tuple[int, int]],
    level: float = 0.05,
    band: float = 0.99,
) -> Claim:
    """Return the claim that counts of false alarms lie in their binomial bands.

    Args:
        text: The sentence.
        counts: Rejections and tests where nothing is wrong, by the name of the cell.
        level: The level of the tests.
        band: Probability of the band under a binomial distribution with this level.
    """
    against = []
    for name, (count, trials) in counts.items():
        low, high = binom.interval(band, trials, level)
        if not low <= count <= high:
            against.append(
                f"{name} has {count} of {trials}, the band is {low:.0f} to {high:.0f}"
            )
    return Claim(text, tuple(against))


def alarm_counts(entries: dict[Key, Entry]) -> dict[str, tuple[int, int]]:
    """Return rejections and tests of each entry, by its name."""
    return {
        key_text(key): (round(entry.power * entry.num_batches), entry.num_batches)
        for key, entry in entries.items()
    }
