"""The true sizes of the errors of `sbi_colt.benchmark.tasks.errors`, where known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from scipy.stats import norm

from sbi_colt.benchmark.tasks.errors import ErrorTask

__all__ = ["TrueSize", "true_size"]

_HIGH = float(norm.ppf(2 / 3))  # the upper third of a standard normal x begins here
_MEAN_HIGH = 3 * float(norm.pdf(_HIGH))  # its mean there
_NUM_LARGE = 50_000


@dataclass(frozen=True)
class TrueSize:
    """What a size should be.

    Args:
        base: The family, without x.
        parameters: The parameters that are wrong.
        feature: A feature of x whose upper third is meant, or `None` for all xs.
        value: The size by the pattern of a wrong shape; the pattern is "" elsewhere.
    """

    base: str
    parameters: tuple[int, ...]
    feature: int | None
    value: Callable[[str], float]


def true_size(task: ErrorTask) -> TrueSize:
    """Return the true size of a task's error."""
    one, other = task.parameters
    size, everything = task.size, tuple(range(task.dim))
    less = size / math.sqrt(1 + size**2)  # of a blind posterior
    share_far = float(norm.sf(1)) * 3  # of the upper third that is above 1
    known: dict[str, tuple[str, tuple[int, ...], int | None, float]] = {
        "one shifted": ("shift", (one,), None, size),
        "all shifted": ("shift", everything, None, size),
        "one too wide": ("width", (one,), None, size),
        "one too narrow": ("width", (one,), None, size),
        "all too wide": ("width", everything, None, size),
        "all too narrow": ("width", everything, None, size),
        "correlation missed": ("correlation", (one, other), None, -size),
        "correlation invented": ("correlation", (one, other), None, size),
        "correlation follows x": ("correlation", (one, other), 0, -size),
        "mode missing": ("missing", (), None, size),
        "mean follows x": ("shift", (one,), 0, size * _MEAN_HIGH),
        "wide where x > 0": ("width", (one,), 0, size),
        "narrow where x > 0": ("width", (one,), 0, size),
        "wide at the ends of x": (
            "width",
            (one,),
            0,
            (1 - share_far + share_far / size**2) ** -0.5,
        ),
        "shifted in a corner of x": ("shift", (one,), 0, size * float(norm.sf(0.3))),
        "blind to one feature of x": ("shift", (one,), 0, -less * _MEAN_HIGH),
        "blind to x": ("shift", (one,), one, -less * _MEAN_HIGH),
    }
    if task.kind in known:
        base, parameters, feature, value = known[task.kind]
        return TrueSize(base, parameters, feature, lambda pattern: value)
    follows = 0 if task.kind == "skew follows x" else None
    below, centre = _shares(task.kind, size)
    return TrueSize(
        "shape", (one,), follows, lambda p: below if p == "skew" else centre
    )


@cache
def _shares(kind: str, size: float) -> tuple[float, float]:
    """Return the shares of truths below the draws' median and in their central third.

    Of a hundred draws, as in the study: the quantiles of finitely many draws are noisy,
    which moves the shares of a law with narrow modes.
    """
    generator = torch.Generator().manual_seed(0)
    truth, draws, xs = ErrorTask(kind, size, 1).errors(_NUM_LARGE, 99, generator)
    ranks = ((draws < truth).sum(dim=0)[:, 0] + 0.5) / (len(draws) + 1)  # (N,)
    if kind == "skew follows x":
        ranks = ranks[xs[:, 0] > _HIGH]
    centre = (ranks > 1 / 3) & (ranks < 2 / 3)
    return float((ranks < 0.5).double().mean()), float(centre.double().mean())
