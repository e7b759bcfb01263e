"""Claims about measured results, checked whenever a table is made.

A claim is a sentence that the documents make about a table. A study checks its claims
against the rows that it prints, and says under the table whether each of them holds. So
a new measurement that contradicts a document shows it, without being an error.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from scipy.stats import binom

from sbi_colt.benchmark.tables import Entries

__all__ = ["Claim", "alarm_counts", "claim_lines", "false_alarms", "powers"]


class Claim(NamedTuple):
    """A sentence without its full stop, and the numbers that contradict it."""

    text: str
    against: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.against:
            return f"{self.text}: holds."
        return f"{self.text}: does not hold: {'; '.join(self.against)}."


def claim_lines(claims: Iterable[Claim]) -> Iterator[str]:
    """Yield the claims as a list, wrapped to the width of a terminal."""
    lines = [textwrap.fill(f"- {c}", 80, subsequent_indent="  ") for c in claims]
    if lines:
        yield "Claims, checked against these rows:"
        yield from lines


def powers(text: str, entries: Entries, least: float, most: float = 1) -> list[Claim]:
    """Return the claim that each power is in [least, most]; none without entries."""
    against = tuple(
        f"{key} has {entry.power:.2f}"
        for key, entry in entries.items()
        if not least <= entry.power <= most
    )
    return [Claim(text, against)] if entries else []


def false_alarms(
    text: str, counts: dict[str, tuple[int, int]], band: float = 0.99
) -> Claim:
    """Return the claim that counts of false alarms lie in their binomial bands.

    ``counts`` has rejections and tests where nothing is wrong, by the name of the cell;
    ``band`` is the probability of the band at level 0.05.
    """
    against = []
    for name, (count, trials) in counts.items():
        low, high = binom.interval(band, trials, 0.05)
        if not low <= count <= high:
            against.append(
                f"{name} has {count} of {trials}, the band is {low:.0f} to {high:.0f}"
            )
    return Claim(text, tuple(against))


def alarm_counts(entries: Entries) -> dict[str, tuple[int, int]]:
    """Return rejections and tests of each entry, by its name."""
    return {
        str(key): (round(entry.power * entry.num_batches), entry.num_batches)
        for key, entry in entries.items()
    }
