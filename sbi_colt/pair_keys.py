"""Fingerprints of pairs: whether a pair was used twice.

A pair that occurs twice was used twice, unless it can repeat by chance. Where θ and x
have continuous columns, chance makes no repeats. Where θ or x looks discrete, the other
may come from a table or be a function of counts, so repeats alone prove nothing: they
are refused if all pairs repeat equally often, and reported in a warning otherwise.
"""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import torch
from torch import Tensor

from sbi_colt.checks import warn_caller

__all__ = ["any_continuous", "check_fresh", "make_pair_keys"]


def make_pair_keys(thetas: Tensor, xs: Tensor) -> Tensor | None:
    """Return a fingerprint of each pair, ``(N, 2)``, or `None` if pairs may repeat.

    Args:
        thetas: True parameters, with shape ``(N, d)``.
        xs: Observations, with shape ``(N, …)``.

    Raises:
        ValueError: Pairs repeat that cannot do so by chance. They are not independent,
            and a half of them could train what the other half tests.
    """
    columns_x = xs.double().reshape(len(xs), -1).cpu()
    rows = torch.cat([thetas.double().cpu(), columns_x], dim=1).numpy()
    keys = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows]
    counts = Counter(keys)
    repeats = len(keys) - len(counts)
    distinct = list({key: i for i, key in enumerate(keys)}.values())
    x_is_continuous = any_continuous(columns_x.numpy()[distinct])
    thetas_are_continuous = any_continuous(rows[distinct, : thetas.shape[1]])
    if not x_is_continuous and not thetas_are_continuous:
        return None
    if repeats:
        both = x_is_continuous and thetas_are_continuous
        if both or len(set(counts.values())) == 1:
            raise ValueError(
                f"thetas, xs: {repeats} of {len(keys)} pairs are repeats of others; a "
                "test needs independent pairs, each simulated once."
            )
        warn_caller(
            f"thetas, xs: {repeats} of {len(keys)} pairs are repeats of others. That "
            "is right if parameters and data are discrete; else simulate each pair "
            "once, because the p-values hold for independent pairs only."
        )
        return None
    numbers = np.frombuffer(b"".join(keys), np.int64).reshape(-1, 2)
    return torch.from_numpy(numbers.copy())


def check_fresh(keys: Tensor | None, known: Tensor | None, xs: Tensor) -> None:
    """Raise if test pairs were used in training.

    Args:
        keys: Fingerprints of the test pairs.
        known: Fingerprints of the training pairs.
        xs: Observations of the test pairs.
    """
    if keys is None or known is None:
        return
    used = set(map(tuple, known.tolist()))
    shared = sum(tuple(key) in used for key in keys.tolist())
    # Pairs of discrete x and θ may be shared by chance; most of them are not.
    columns = xs.double().reshape(len(xs), -1).cpu().numpy()
    if shared > (0 if any_continuous(columns) else len(keys) / 2):
        raise ValueError(
            f"draws: {shared} of {len(keys)} test pairs were used in training, "
            "which makes the p-value wrong; test on fresh pairs "
            "(train, test = draws.split(0.5))."
        )


def any_continuous(rows: np.ndarray) -> bool:
    """Return whether a column of the rows looks continuous."""
    return any(map(_looks_continuous, rows.T))


def _looks_continuous(values: np.ndarray) -> bool:
    """Return whether values all differ and mostly have more than four digits."""
    if len(np.unique(values)) < len(values):
        return False
    size = np.where(values == 0, 1.0, np.abs(values))
    unit = 10.0 ** (np.floor(np.log10(size)) - 3)
    rounded = np.round(values / unit) * unit
    return float(np.mean(np.abs(rounded - values) > 1e-6 * size)) > 0.5
