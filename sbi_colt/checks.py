"""Checks of arguments, once for all rooms: errors name the argument and the fix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

__all__ = ["check_choice", "check_integer", "check_number"]


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
