"""How long a call takes."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["seconds_of"]


def seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
