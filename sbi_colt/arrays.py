"""Arrays from anywhere to tensors: converted without loss, checked once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["as_float_tensor", "as_tensor", "check_finite", "in_one_precision"]


def as_tensor(value: Any, name: str, lists: bool = False) -> Tensor:
    """Return an array of torch or NumPy as a tensor of real numbers.

    Args:
        value: The array.
        name: The argument that it was handed in as.
        lists: Whether a list of numbers will do as well.
    """
    if isinstance(value, (list, tuple)) and not lists:
        raise TypeError(
            f"{name}: expected a torch or NumPy array, got a {type(value).__name__}; "
            f"stack its {len(value)} entries with torch.stack or numpy.stack."
        )
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: expected a plain array, got a masked one; leave the masked pairs "
            "out."
        )
    if isinstance(value, Tensor):
        tensor = value.detach()
    else:
        tensor = _from_numpy(np.asarray(value), name, type(value).__name__)
    if tensor.is_complex():
        raise TypeError(
            f"{name}: expected real numbers, got {tensor.dtype}; "
            "split real and imaginary parts."
        )
    return tensor


def _from_numpy(array: np.ndarray, name: str, kind: str) -> Tensor:
    if array.dtype.kind == "c":
        raise TypeError(
            f"{name}: expected real numbers, got {array.dtype}; "
            "split real and imaginary parts."
        )
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{name}: expected an array of numbers, got {kind} of dtype {array.dtype}."
        )
    if array.dtype.itemsize > 8 or array.dtype == np.uint64:
        # torch has neither type: they go through doubles, if that loses nothing.
        exact = array.astype(np.float64)
        if not np.array_equal(exact.astype(array.dtype), array, equal_nan=True):
            raise TypeError(_inexact(name, array.dtype))
        array = exact
    return torch.from_numpy(np.array(array))


def as_float_tensor(value: Any, name: str) -> Tensor:
    """Return an array as a tensor of single or double precision, without loss."""
    tensor = as_tensor(value, name)
    if tensor.dtype in (torch.float32, torch.float64):
        return tensor
    for dtype in (torch.float32, torch.float64):  # half precision, integers, booleans
        converted = tensor.to(dtype)
        same = (converted.to(tensor.dtype) == tensor) | converted.isnan()
        if bool(same.all()):
            return converted
    raise TypeError(_inexact(name, tensor.dtype))


def _inexact(name: str, dtype: Any) -> str:
    return (
        f"{name}: dtype {dtype} holds values that no float represents exactly; "
        "convert it yourself."
    )


def in_one_precision(
    first: Any, first_name: str, second: Any, second_name: str
) -> tuple[Tensor, Tensor]:
    """Return two arrays as tensors of one float type, both rounded to the coarser.

    True parameters and draws that were rounded differently could be told apart by
    their digits: ranks would take the rounding for an error of the posterior.

    Example:
        >>> draws = torch.tensor([0.1], dtype=torch.float16)
        >>> truths, draws = in_one_precision(torch.tensor([0.1]), "a", draws, "b")
        >>> bool(truths == draws)
        True
    """
    floats, tensors = [], []
    for value, name in ((first, first_name), (second, second_name)):
        own = as_tensor(value, name).dtype
        tensors.append(as_float_tensor(value, name))
        floats.append(own if own.is_floating_point else tensors[-1].dtype)
    if floats[0] == floats[1]:
        return tensors[0], tensors[1]
    coarser = max(floats, key=lambda dtype: torch.finfo(dtype).eps)
    return _rounded(tensors[0], coarser), _rounded(tensors[1], coarser)


def _rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return doubles with the digits of a coarser type, and of any size."""
    rounded = values.to(dtype).double()
    return torch.where(rounded.isfinite(), rounded, values.double())


def check_finite(values: Tensor, name: str) -> None:
    """Raise where values are NaN or infinite."""
    if values.numel() == 0 or all(bound.isfinite() for bound in torch.aminmax(values)):
        return
    bad = ~values.isfinite()
    raise ValueError(
        f"{name}: expected finite values, got {int(bad.sum())} NaN or infinite, the "
        f"first at index {bad.nonzero()[0].tolist()}; mend the posterior or simulator "
        "that made them, or leave their pairs out before the test."
    )
