"""The options of `draw_posterior_samples`: checked once, handed down as one object."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

import torch

from sbi_colt.checks import check_number

__all__ = ["RunOptions"]


@dataclass(frozen=True)
class RunOptions:
    """Seed, limits, workers and device of one run.

    `draw_posterior_samples` explains the options. ``deadline`` is the time at which the
    run has to end, or `None`; it is measured by `time.time`, which is the same in all
    processes. With a time limit the xs are sampled in a ``random_order``. The caller
    may have sorted them by the true parameters, and the xs that are missing when time
    runs out must not depend on these.
    """

    seed: int
    max_sampling_time: float | None = None
    num_workers: int = 1
    show_progress_bar: bool = True
    use_batched_sampling: bool = True
    checkpoint: str | os.PathLike | None = None
    checkpoint_name: str | None = None
    max_lost: float = 0.1
    min_acceptance: float = 1e-3
    memory_budget: int = 2**30
    device: str | torch.device = "cpu"
    random_order: bool = False
    deadline: float | None = field(init=False)

    def __post_init__(self):
        for name, expected, holds in (
            (
                "max_sampling_time",
                "seconds >= 0 or None",
                lambda v: v is None or v >= 0,
            ),
            ("num_workers", "an integer, not 0", lambda v: v == int(v) != 0),
            ("max_lost", "a share in [0, 1]", lambda v: 0 <= v <= 1),
            ("min_acceptance", "a share in (0, 1]", lambda v: 0 < v <= 1),
            ("memory_budget", "a number of bytes", lambda v: v >= 1),
        ):
            check_number(name, getattr(self, name), expected, holds)
        name, limit = self.checkpoint_name, self.max_sampling_time
        if name is not None and (not isinstance(name, str) or not name):
            raise ValueError(f"checkpoint_name: expected a name or None, got {name!r}.")
        if name is not None and self.checkpoint is None:
            raise ValueError(
                "checkpoint_name: expected checkpoint=folder too; without a folder a "
                "name has no effect."
            )
        deadline = None if limit is None else time.time() + float(limit)
        object.__setattr__(self, "deadline", deadline)
        object.__setattr__(self, "random_order", self.random_order or bool(deadline))

    def seconds_left(self) -> float | None:
        """Return the seconds until the deadline, or `None`."""
        return None if self.deadline is None else max(0, self.deadline - time.time())

    def is_late(self) -> bool:
        """Return whether the deadline has passed."""
        return self.deadline is not None and time.time() >= self.deadline
