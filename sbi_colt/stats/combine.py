"""Several p-values, one verdict."""

from __future__ import annotations

import math

__all__ = ["holm", "two_halves_p_value"]


def holm(p_values: list[float]) -> list[float]:
    """Return Holm's (1979) adjusted p-values, which control the family-wise level.

    Example:
        >>> [round(p, 2) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def two_halves_p_value(test: float, training: float) -> float:
    r"""Return one p-value of two independent ones, the second with half the weight.

    .. math:: p = 1 - (1 - p_\text{test} \sqrt{p_\text{training}})^2

    is the p-value of Good's (1955) weighted product of p-values: exact for two that are
    independent and uniform, valid where re-drawing makes them discrete. The training
    pairs are seen by fewer probes, so they weigh less.

    Args:
        test: p-value of the test pairs.
        training: p-value of the training pairs.

    Example:
        >>> round(two_halves_p_value(0.05, 0.05), 4)
        0.0222
    """
    return 1 - (1 - test * math.sqrt(training)) ** 2
