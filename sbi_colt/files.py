"""Files of arrays and JSON, never of pickled objects."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["load_file", "prefixed", "save_file", "unprefixed"]


def save_file(
    path: str | os.PathLike, header: dict[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Write a header and tensors to a file, in NumPy's ``.npz`` format."""
    arrays: dict[str, Any] = {
        f"tensor/{name}": tensor.detach().cpu().numpy()
        for name, tensor in tensors.items()
    }
    with open(path, "wb") as file:
        np.savez_compressed(file, header=np.array(json.dumps(header)), **arrays)


def load_file(
    path: str | os.PathLike, kind: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a header of a kind and its tensors; nothing in the file is executed."""
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            tensors = {
                name.removeprefix("tensor/"): torch.from_numpy(file[name])
                for name in file.files
                if name != "header"
            }
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy's own words suggest to allow pickle
        raise ValueError(f"{path}: expected a file of {kind}.") from error
    if not isinstance(header, dict) or header.get("format") != kind:
        raise ValueError(f"{path}: expected a file of {kind}.")
    return header, tensors


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors under names that begin with a prefix and a dot."""
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def unprefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a prefix under their own names."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): value
        for name, value in tensors.items()
        if name.startswith(start)
    }
