"""Checks of arguments, and warnings to the caller, that several rooms share."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import torch

__all__ = [
    "check_choice",
    "check_inner_share",
    "check_integer",
    "check_number",
    "check_share",
    "checked_device",
    "warn_caller",
]


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise unless a value is one of the choices."""
    if value not in choices:
        raise ValueError(
            f"{name}: expected one of {', '.join(choices)}, got {value!r}."
        )


def check_integer(name: str, value: Any, least: int) -> int:
    """Return a value as an int, or raise unless it is an integer of at least this.

    Example:
        >>> check_integer("num_hidden", 3, least=1)
        3
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name}: expected an integer >= {least}, got {value!r}.")
    return int(value)


def check_number(
    name: str, value: Any, expected: str, holds: Callable[[Any], bool]
) -> None:
    """Raise unless a value is a number for which a condition holds."""
    try:
        good = not isinstance(value, (str, bool)) and bool(holds(value))
    except (TypeError, ValueError):
        good = False
    if not good:
        raise ValueError(f"{name}: expected {expected}, got {value!r}.")


def check_share(name: str, value: Any) -> None:
    """Raise unless a value is a number in [0, 1], as every p-value is."""
    check_number(name, value, "a number in [0, 1]", lambda v: 0 <= v <= 1)


def check_inner_share(name: str, value: Any) -> None:
    """Raise unless a value is a number in (0, 1), such as the level of a test."""
    check_number(name, value, "a number in (0, 1)", lambda v: 0 < v < 1)


def checked_device(device: str | torch.device) -> torch.device:
    """Return the device, or raise where this machine does not have it.

    Example:
        >>> checked_device("cpu")
        device(type='cpu')
        >>> checked_device("gpu")
        Traceback (most recent call last):
        ...
        ValueError: device: expected a device such as "cpu" or "cuda", got 'gpu'.
    """
    try:
        known = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f'device: expected a device such as "cpu" or "cuda", got {device!r}.'
        ) from error
    if known.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise ValueError(
                f"device: expected a device of this machine, got {str(known)!r} but "
                'this machine has no CUDA; use device="cpu".'
            )
        if known.index is not None and known.index >= count:
            raise ValueError(
                f"device: expected a device of this machine, got {str(known)!r} but "
                f"it has {count} CUDA device{'s' if count > 1 else ''}."
            )
    if known.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError(
            f"device: expected a device of this machine, got {str(known)!r} but this "
            'machine has no MPS; use device="cpu".'
        )
    return known


def warn_caller(message: str) -> None:
    """Warn, and name the line outside this package from which the call came."""
    level = 2  # the caller of this function
    while True:
        try:
            module = sys._getframe(level - 1).f_globals.get("__name__", "")
        except ValueError:  # the whole stack is this package's, as on the command line
            break
        if module.split(".")[0] != "sbi_colt":
            break
        level += 1
    warnings.warn(message, stacklevel=level)
