"""Warnings and errors about xs that have no draws.

An x is missing either because it was given up (too few of its proposals are finite and
inside the prior's support) or because time ran out before it was complete.
"""

from __future__ import annotations

import os

from torch import Tensor

from sbi_colt.checks import warn_caller
from sbi_colt.sampling.estimate import in_words
from sbi_colt.sampling.pool import PosteriorSamples, SamplingError

__all__ = ["report_given_up", "report_late"]

# Fewer complete xs than this, once time has run out, are an error.
_MIN_COMPLETE = 20


def report_given_up(result: PosteriorSamples, max_lost: float) -> None:
    """Warn of xs that were given up; raise if they are more than ``max_lost``."""
    lost = result.given_up.nonzero().flatten()
    if not len(lost):
        return
    reached = int((result.mask | result.given_up).sum())
    if bool(result.acceptance[lost].isfinite().any()):
        order = result.acceptance[lost].nan_to_num(nan=2.0).argsort()  # worst first
        lost = lost[order]
        named = [f"{int(i)} ({_percent(result.acceptance[i])})" for i in lost]
        what = "Their numbers, with the share of proposals inside the prior's support: "
        advice = (
            "The posterior leaks out of the prior's support: retrain it, or lower "
            "min_acceptance."
        )
    else:
        named = [str(int(i)) for i in lost]
        what = "Their numbers: "
        advice = (
            "The posterior's draws there are not finite, or one x takes more than a "
            "minute: mend the posterior."
        )
    message = (
        f"posterior: {len(lost)} of {reached} xs could not be sampled. {what}"
        f"{', '.join(named[:5])}{', …' if len(named) > 5 else ''}."
    )
    if len(lost) > max_lost * reached:
        raise SamplingError(
            f"{message} That is more than max_lost = {max_lost:g}. {advice}", result
        )
    warn_caller(f"{message} They are left out.")


def report_late(
    result: PosteriorSamples, seconds: float, checkpoint: str | os.PathLike | None
) -> None:
    """Warn of xs that time did not suffice for; raise if too few are complete."""
    late = int((~result.mask & ~result.given_up).sum())
    if not late:
        return
    complete, total = int(result.mask.sum()), len(result.mask)
    message = (
        f"max_sampling_time: {complete} of {total} xs were completed in "
        f"{in_words(seconds)}"
    )
    if checkpoint is not None:
        advice = "Call again with the same checkpoint to go on from here."
    elif complete:
        needed = in_words(seconds * total / complete)
        advice = f"All of them would take about {needed}."
    else:
        advice = "Raise max_sampling_time, or ask for fewer draws."
    if complete < _MIN_COMPLETE:
        raise SamplingError(
            f"{message}; at least {_MIN_COMPLETE} are needed. {advice}", result
        )
    warn_caller(f"{message}; the others are left out, by their position. {advice}")


def _percent(value: Tensor) -> str:
    return "unknown" if value.isnan() else f"{float(value):.2g}"
