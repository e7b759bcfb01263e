"""What a run needs to know besides the posterior, and checks of what users give."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "RunOptions",
    "check_name",
    "check_options",
    "checked_number",
    "checked_xs",
]


@dataclass(frozen=True)
class RunOptions:
    """Seed, limits, workers and device of one run.

    Args:
        seed: Seed of the run.
        deadline: When the run has to end, on the clock `time.monotonic`, or `None`.
        num_workers: Processes for samplers that take one x at a time.
        use_batched_sampling: Whether to prefer samplers that take many xs at once.
        memory_budget: Most bytes of proposals held at a time.
        min_acceptance: An x is given up when its acceptance is clearly below this.
        max_lost: Largest share of xs that may be given up.
        device: Device of the draws.
    """

    seed: int
    deadline: float | None
    num_workers: int
    use_batched_sampling: bool
    memory_budget: int
    min_acceptance: float
    max_lost: float
    device: torch.device

    def seconds_left(self) -> float | None:
        """Return the seconds until the deadline, or `None`."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def is_late(self) -> bool:
        """Return whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline


def check_options(
    max_sampling_time: Any,
    num_workers: Any,
    max_lost: Any,
    min_acceptance: Any,
    memory_budget: Any,
) -> None:
    """Raise where an option of `draw_posterior_samples` has no sense."""
    for name, value, expected, good in (
        (
            "max_sampling_time",
            max_sampling_time,
            "seconds >= 0 or None",
            lambda v: v is None or v >= 0,
        ),
        ("num_workers", num_workers, "an integer, not 0", lambda v: v == int(v) != 0),
        ("max_lost", max_lost, "a share in [0, 1]", lambda v: 0 <= v <= 1),
        ("min_acceptance", min_acceptance, "a share in (0, 1]", lambda v: 0 < v <= 1),
        ("memory_budget", memory_budget, "a number of bytes", lambda v: v >= 1),
    ):
        try:
            fine = not isinstance(value, str) and good(value)
        except (TypeError, ValueError):
            fine = False
        if not fine:
            raise ValueError(f"{name}: expected {expected}, got {value!r}.")


def check_name(name: Any, checkpoint: str | os.PathLike | None) -> None:
    """Raise where the name of a checkpoint has no sense."""
    if name is None:
        return
    if not isinstance(name, str) or not name:
        raise ValueError(f"checkpoint_name: expected a name or None, got {name!r}.")
    if checkpoint is None:
        raise ValueError(
            "checkpoint_name: expected checkpoint=folder too; without a folder a name "
            "has no effect."
        )


def checked_xs(xs: Any) -> Tensor:
    """Return observations as a tensor of finite floats with shape ``(N, …)``."""
    if isinstance(xs, (list, tuple)):
        raise TypeError(
            f"xs: expected a torch or NumPy array, got a {type(xs).__name__}; stack "
            f"its {len(xs)} entries with torch.stack or numpy.stack."
        )
    xs = torch.as_tensor(xs)
    if not xs.is_floating_point():
        xs = xs.float()
    if xs.ndim == 0 or len(xs) == 0:
        raise ValueError(f"xs: expected shape (N, …), got {tuple(xs.shape)}.")
    if not xs.isfinite().all():
        raise ValueError(
            "xs: expected finite values, got NaN or infinity; leave those pairs out."
        )
    return xs


def checked_number(number: Any) -> int:
    """Return a number of draws as an int."""
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        raise TypeError(f"num_samples: expected an int, got {number!r}.")
    if number < 1:
        raise ValueError(f"num_samples: expected at least 1, got {number}.")
    return int(number)
