"""Several p-values, one verdict."""

from __future__ import annotations

import math

__all__ = ["SHARE_OF_PARAMETERS", "both_sides_p_value", "holm", "two_halves_p_value"]

# How much of the level the parameter side has in the verdict over both sides.
SHARE_OF_PARAMETERS = 0.8


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
    product = test * math.sqrt(training)
    return product * (2 - product)  # 1 − (1 − product)², which would round to 0


def both_sides_p_value(parameters: float, data: float) -> float:
    r"""Return one p-value of the parameter side and the data side.

    .. math:: T = \min(p_\text{parameters} / 0.8, p_\text{data} / 0.2), \quad
              p = 1 - (1 - \min(1, 0.8 T)) (1 - \min(1, 0.2 T))

    is the p-value of the smaller of two weighted p-values (Šidák 1967, with weights):
    exact for two that are independent and uniform, valid where re-drawing makes them
    discrete. Null hypothesis: both null hypotheses hold. At the level 0.05 the
    parameter side rejects from 0.040 on and the data side from 0.010 on.

    The weights: where only parameters are wrong, equal weights cost 0.07 of the power
    in the mean over the errors of ``sbi-colt benchmark share``. The p-values of the
    data side are usually far below 0.01 where it sees an error at all.

    Example:
        >>> round(both_sides_p_value(0.6, 0.002), 4)
        0.01
    """
    smallest = min(parameters / SHARE_OF_PARAMETERS, data / (1 - SHARE_OF_PARAMETERS))
    shares = (SHARE_OF_PARAMETERS, 1 - SHARE_OF_PARAMETERS)
    first, second = (min(1.0, share * smallest) for share in shares)
    return first + second - first * second  # 1 − (1 − first) (1 − second)
