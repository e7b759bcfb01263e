"""Draws in an ``.npz`` file of arrays, without pickle.

For N pairs, S draws at each x and d parameters it has ``thetas (N, d)``, ``xs (N, …)``
and ``samples (S, N, d)``. Further arrays are optional:

``log_weights (S + 1, N)``
    The weights of all members, for pairs from a proposal (`sbi_colt.draws.Draws`).
``replicates (M, n, …)`` and ``thetas_of_posterior (n, d)``
    The data side, at the first n xs. With it ``samples`` may be missing, and must not
    have ``thetas_of_posterior`` among them.
``replicated_xs (n, …)``
    The observations of the data side, if they are not the first n xs.
``drawn (n,)``
    At which xs of the data side the posterior could be sampled.
``shuffled``
    Whether the draws at each x come in random order; `Draws.save` writes it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from sbi_colt.files import atomic_write

if TYPE_CHECKING:
    from sbi_colt.draws import Draws

__all__ = ["read_arrays", "write_draws"]

_DATA_SIDE = {"replicates", "thetas_of_posterior"}


def write_draws(path: str | os.PathLike, draws: Draws) -> None:
    """Write draws with their data side, if they have one."""
    tensors = {"thetas": draws.thetas, "xs": draws.xs}
    if draws.num_posterior_samples:
        tensors["samples"] = draws.samples
    if draws.log_weights is not None:
        tensors["log_weights"] = draws.log_weights
    if (data := draws.predictive) is not None:
        shape = (len(data), *draws.xs.shape[1:])
        tensors["replicated_xs"] = data.thetas.reshape(shape)
        tensors["replicates"] = data.samples.reshape(-1, *shape)
        tensors["thetas_of_posterior"] = data.xs
        if data.drawn is not None:
            tensors["drawn"] = data.drawn
    arrays: dict[str, Any] = {
        name: value.detach().cpu().numpy() for name, value in tensors.items()
    }
    with atomic_write(path, "wb") as file:
        np.savez_compressed(file, shuffled=True, **arrays)


def read_arrays(path: str | os.PathLike) -> dict[str, Any]:
    """Return the arrays of a file by name; raise if it lacks one that it needs."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy's own message suggests to allow pickle
        raise ValueError(
            f"{path}: expected an .npz file with thetas, xs and samples "
            "(numpy.savez or Draws.save)."
        ) from error
    expected = {"thetas", "xs"}
    expected |= _DATA_SIDE if _DATA_SIDE & set(arrays) else {"samples"}
    missing = expected - set(arrays)
    if missing:
        raise ValueError(
            f"{path}: expected arrays {', '.join(sorted(expected))}, "
            f"missing {', '.join(sorted(missing))}."
        )
    return arrays
