"""Checks of the data side: observations, posterior draws θ' and their replicates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbi_colt.arrays import as_float_tensor, check_finite, in_one_precision
from sbi_colt.checks import warn_caller
from sbi_colt.pair_keys import any_continuous

__all__ = ["check_further", "check_randomness", "clean_data_side"]

# Identical rounds show a fixed seed if at least so many data differ from the most
# frequent one, or if chance makes such rounds with a smaller probability than this.
_TELLING = 5
_RARE = 1e-6


def clean_data_side(
    xs: Any, thetas: Any, replicates: Any, drawn: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Check the arrays of `make_predictive`, and drop pairs with a NaN or an infinity.

    Returns:
        Observations ``(n, D)`` and replicates ``(M, n, D)``, both flattened, with the
        parameters ``(n, d)`` between them, and ``drawn`` as booleans ``(n,)``.
    """
    xs, replicates = in_one_precision(xs, "xs", replicates, "replicates")
    expected = ", ".join(map(str, ("M", *xs.shape)))
    if replicates.ndim < 2 or replicates.shape[1:] != xs.shape or not len(replicates):
        raise ValueError(
            f"replicates: expected shape ({expected}) with M >= 1, as xs has shape "
            f"{tuple(xs.shape)}, got {tuple(replicates.shape)}."
        )
    thetas = as_float_tensor(thetas, "thetas_of_posterior")
    if thetas.ndim != 2 or len(thetas) != len(xs):
        raise ValueError(
            f"thetas_of_posterior: expected shape ({len(xs)}, d), one draw for each x "
            f"that has replicates, got {tuple(thetas.shape)}."
        )
    if drawn is not None:
        drawn = torch.as_tensor(drawn).cpu().bool()
        if drawn.shape != (len(xs),):
            raise ValueError(
                f"drawn: expected shape ({len(xs)},), one entry for each x that has "
                f"replicates, got {tuple(drawn.shape)}."
            )
    finite = _finite_bags(xs, replicates)
    if not finite.all():
        xs, thetas, replicates = xs[finite], thetas[finite], replicates[:, finite]
        drawn = None if drawn is None else drawn[finite.cpu()]
    check_finite(thetas, "thetas_of_posterior")
    check_randomness(replicates if len(replicates) > 1 else [xs, *replicates])
    flat = replicates.reshape(*replicates.shape[:2], -1)
    xs = xs.reshape(len(xs), -1)
    return xs, thetas, flat, drawn


def _finite_bags(xs: Tensor, replicates: Tensor) -> Tensor:
    """Return which bags of data are finite, with shape ``(n,)``; warn of the others."""
    finite = xs.isfinite().reshape(len(xs), -1).all(dim=1)
    finite &= replicates.isfinite().reshape(*replicates.shape[:2], -1).all(2).all(0)
    lost, total = int((~finite).sum()), len(finite)
    if lost == total:
        raise ValueError(
            f"xs, replicates: each of the {total} xs, or one of its replicates, has a "
            "NaN or an infinity; nothing is left to test on the data side."
        )
    if lost:
        warn_caller(
            f"xs, replicates: dropped {lost} of {total} pairs of the data side, "
            "because x or one of its replicates has a NaN or an infinity."
        )
    return finite


def check_further(chosen: np.ndarray, samples: np.ndarray) -> None:
    """Raise if the draws θ' of the data side are among those of the parameter side."""
    among = int(np.isin(chosen, samples).reshape(len(chosen), -1).all(axis=1).sum())
    if among and any_continuous(chosen.reshape(len(chosen), -1)):
        raise ValueError(
            f"thetas_of_posterior: {among} of {len(chosen)} are among samples. The two "
            "sides are independent only if thetas_of_posterior are further draws: "
            "draw once more at each x that has replicates, and keep that draw out of "
            "samples."
        )


def check_randomness(rounds: Sequence[Tensor] | Tensor, num_workers: int = 1) -> None:
    """Raise if two rounds of simulations at the same parameters are identical.

    A simulator that sets a seed itself makes identical rounds. Discrete data can be
    identical by chance: nearly all rare counts are 0. Such bags are harmless, because
    ties are broken at random. So this function raises only if chance is an unlikely
    explanation:

    - Some rounds differ. Two different rounds agree at a share a of the n parameters,
      in the mean. By chance they agree at all n with a probability of at most aⁿ (the
      geometric mean is at most the arithmetic one).
    - All rounds are identical, and the data differ from θ to θ: at least five data are
      not the most frequent one. Chance does that in two rounds at 20 parameters with a
      probability below 1e-5, and less often at more parameters.

    Args:
        rounds: Two or more rounds, each with shape ``(n, …)``.
        num_workers: Processes that simulated.
    """
    flat = torch.stack([one.reshape(len(one), -1) for one in rounds])  # (M, n, D)
    distinct, sizes = flat.reshape(len(flat), -1).unique(dim=0, return_counts=True)
    if len(distinct) == len(flat):
        return
    if len(distinct) == 1:
        counts = flat[0].unique(dim=0, return_counts=True)[1]
        by_chance = int(counts.sum() - counts.max()) < _TELLING
    else:
        others = distinct.reshape(len(distinct), *flat.shape[1:])
        agree = [
            (one == another).all(dim=1).double().mean()
            for one, another in itertools.combinations(others, 2)
        ]
        chance = float(torch.stack(agree).mean()) ** flat.shape[1]
        by_chance = math.comb(len(flat), 2) * chance > _RARE
    if by_chance:
        return
    text = (
        f"replicates: {int(sizes.max())} of {len(flat)} simulations from the same "
        "parameters are identical at every x. A simulator that sets a random seed "
        "itself, or that has no randomness, cannot be checked against its own data: "
        "remove the seed from the simulator, or leave the data side out "
        "(num_replicates=0)."
    )
    if num_workers > 1:
        text += (
            " With num_workers > 1 a random generator that the simulator holds, such "
            "as numpy.random.default_rng(), is copied to each worker with the same "
            "state: make the generator inside the simulator, or use num_workers=1."
        )
    raise ValueError(text)
