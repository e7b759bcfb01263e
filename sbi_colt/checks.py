"""Checks of arguments, and warnings to the caller, that several rooms share."""

from __future__ import annotations

import sys
import warnings

import torch

__all__ = ["checked_device", "warn_caller"]


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
