"""Arrays from anywhere to tensors: converted without loss, checked once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbi_colt.checks import warn_caller

__all__ = [
    "as_float_tensor",
    "as_observation",
    "as_output",
    "as_tensor",
    "check_finite",
    "check_log_weights",
    "check_samples",
    "clean_pairs",
    "in_one_precision",
]


def as_tensor(
    value: Any, name: str, lists: bool = False, expected: str = "an array of numbers"
) -> Tensor:
    """Return an array of torch or NumPy as a tensor of real numbers.

    Args:
        value: The array.
        name: The argument that it was handed in as.
        lists: Whether a list of numbers will do as well.
        expected: What a message says was expected where the value is no array.
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
    if not isinstance(value, Tensor):
        return _from_numpy(_numpy_array(value, name, expected), name)
    _check_real(name, value.dtype, value.is_complex())
    if value.layout != torch.strided:
        raise TypeError(
            f"{name}: expected a dense tensor, got one of layout {value.layout}; "
            "convert it with to_dense()."
        )
    return value.detach()


def _check_real(name: str, dtype: Any, is_complex: bool) -> None:
    if is_complex:
        raise TypeError(
            f"{name}: expected real numbers, got {dtype}; "
            "split real and imaginary parts."
        )


def _numpy_array(value: Any, name: str, expected: str) -> np.ndarray:
    """Return a value as an array of real numbers, or raise if it is none."""
    came = "None" if value is None else type(value).__name__
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # such as ragged lists
        raise TypeError(
            f"{name}: expected {expected}, got {came} that is no array; stack its "
            "entries with torch.stack or numpy.stack."
        ) from error
    _check_real(name, array.dtype, array.dtype.kind == "c")
    if array.dtype.kind not in "fiub":
        of = "" if array.ndim == 0 else f" of dtype {array.dtype}"
        raise TypeError(f"{name}: expected {expected}, got {came}{of}.")
    return array


def _from_numpy(array: np.ndarray, name: str) -> Tensor:
    if array.dtype.itemsize > 8 or array.dtype == np.uint64:
        # torch has neither type: they go through doubles, if that loses nothing.
        exact = array.astype(np.float64)
        if not np.array_equal(exact.astype(array.dtype), array, equal_nan=True):
            raise TypeError(_inexact(name, array.dtype))
        array = exact
    # A copy, which may be written to, in the byte order of this machine.
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("=")))


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


def as_output(value: Any, name: str, expected: str) -> Tensor:
    """Return what a user's function returned as a tensor of floats, of any precision.

    Half precision stays as it is, because the truths must be rounded alike. Numbers of
    Python, which have no precision of their own, take that of torch.

    Args:
        value: What the function returned: an array, a number, or lists of numbers.
        name: The argument that the function was handed in as.
        expected: What a message says was expected where the value is no array.

    Example:
        >>> as_output([1, 2.5], "simulator", "data")
        tensor([1.0000, 2.5000])
        >>> as_output("1, 2.5", "simulator", "data")
        Traceback (most recent call last):
        ...
        TypeError: simulator: expected data, got str.
    """
    tensor = as_tensor(value, name, lists=True, expected=expected)
    if not tensor.is_floating_point():
        return as_float_tensor(tensor, name)
    first = value
    while isinstance(first, (list, tuple)) and len(first):
        first = first[0]
    is_plain = type(first) in (int, float, bool)
    return tensor.to(torch.get_default_dtype()) if is_plain else tensor


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


def clean_pairs(thetas: Any, xs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Check pairs and drop those whose x has a NaN or an infinity, with a warning.

    Args:
        thetas: True parameters, with shape ``(N, d)``.
        xs: Observations, with shape ``(N, …)``.

    Returns:
        Parameters and observations of the pairs kept, and the mask ``(N,)`` of them.
    """
    thetas = as_float_tensor(thetas, "thetas")
    xs = as_float_tensor(xs, "xs").to(thetas.device)
    _check_pairs(thetas, xs)
    mask = xs.isfinite().reshape(len(xs), -1).all(dim=1)  # (N,)
    dropped, total = int((~mask).sum()), len(mask)
    if dropped == total:
        raise ValueError(
            f"xs: every one of the {total} observations has a NaN or an infinity; "
            "nothing is left to test."
        )
    if dropped:
        warn_caller(
            f"xs: dropped {dropped} of {total} pairs whose x has a NaN or an "
            "infinity; `mask` says which ones were kept."
        )
    thetas, xs = thetas[mask], xs[mask]
    check_finite(thetas, "thetas")
    return thetas, xs, mask


def _check_pairs(thetas: Tensor, xs: Tensor) -> None:
    if thetas.ndim != 2:
        raise ValueError(
            f"thetas: expected shape (N, d), got {tuple(thetas.shape)}; "
            "use thetas.reshape(-1, 1) for a single parameter."
        )
    num_pairs, dim = thetas.shape
    if num_pairs == 0 or dim == 0:
        raise ValueError(
            "thetas: expected at least one pair and one parameter, "
            f"got shape {tuple(thetas.shape)}."
        )
    if xs.ndim == 0 or len(xs) != num_pairs:
        raise ValueError(
            f"xs: expected {num_pairs} observations, one per row of thetas, "
            f"got shape {tuple(xs.shape)}."
        )
    if xs[0].numel() == 0:
        raise ValueError(f"xs: observations are empty, got shape {tuple(xs.shape)}.")


def check_samples(samples: Tensor, num_pairs: int, dim: int) -> None:
    """Raise unless draws have the shape ``(S, num_pairs, dim)`` with S >= 1."""
    if samples.ndim != 3 or samples.shape[1:] != (num_pairs, dim):
        hint = ""
        if samples.ndim == 3 and samples.shape[0] == num_pairs != samples.shape[1]:
            hint = "; it looks transposed: use samples.transpose(0, 1)"
        raise ValueError(
            f"samples: expected shape (S, {num_pairs}, {dim}), as thetas has shape "
            f"({num_pairs}, {dim}), got {tuple(samples.shape)}{hint}."
        )
    if samples.shape[0] == 0:
        raise ValueError(
            "samples: expected at least one posterior draw per x (S >= 1), got S = 0."
        )


def check_log_weights(log_weights: Any, shape: tuple[int, int]) -> Tensor:
    """Return logarithms of the weights of all members, the truths' finite, or raise."""
    tensor = as_float_tensor(log_weights, "log_weights").double().cpu()
    if tuple(tensor.shape) != shape:
        raise ValueError(
            f"log_weights: expected shape {shape}, one row for the true parameters and "
            f"one for each draw, got {tuple(tensor.shape)}."
        )
    if bool(tensor.isnan().any()) or bool((tensor == torch.inf).any()):
        raise ValueError("log_weights: expected numbers or -inf, got NaN or +inf.")
    bad = (~tensor[0].isfinite()).nonzero().flatten()
    if len(bad):
        raise ValueError(
            f"log_weights: {len(bad)} of {shape[1]} true parameters have weight 0, the "
            f"first at pair {int(bad[0])}. A proposal has a positive density at what "
            "was simulated from it: check the proposal and the prior."
        )
    return tensor


def as_observation(x_o: Any, xs: Tensor) -> Tensor:
    """Return one observation like one of the xs, or raise.

    Args:
        x_o: The observation, with the shape of one x, or with a leading axis of one. A
            number where x is a single one.
        xs: Simulated data, with shape ``(n, …)``.
    """
    shape = tuple(xs.shape[1:])
    own = as_output(x_o, "x_o", "an array of numbers").to(xs)
    known = [shape, (1, *shape), *([()] if shape == (1,) else [])]
    if tuple(own.shape) not in known:
        hint = "; reshape it" if own.numel() == math.prod(shape) else ""
        if own.numel() > math.prod(shape) and own.numel() % math.prod(shape) == 0:
            hint = "; if it has several trials, the simulator must make as many"
        raise ValueError(
            f"x_o: expected shape {shape}, that of one simulation, got "
            f"{tuple(own.shape)}{hint}."
        )
    bad = int((~own.isfinite()).sum())
    if bad:
        raise ValueError(
            f"x_o: expected finite values, got {bad} NaN or infinite; train and test "
            "with an x in which missing numbers are coded as finite ones."
        )
    return own.reshape(shape)
