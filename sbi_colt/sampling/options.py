"""What a run needs to know besides the posterior and its xs."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

__all__ = ["RunOptions"]


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
