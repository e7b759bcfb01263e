"""What a run says: how long it will take, and which xs have no draws.

An x is missing either because it was given up (too few of its proposals are finite and
inside the prior's support) or because time ran out before it was complete.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.checks import warn_caller
from sbi_colt.sampling.pool import PosteriorSamples, SamplingError

__all__ = ["Estimate", "in_words", "report_given_up", "report_late"]

# Without a limit, the progress bar shows an estimate that is longer than this.
_LONG = 120.0
# The first seconds of a run, in which processes start and libraries load, count little.
_SETTLED = 5.0
# Fewer complete xs than this, once time has run out, are an error.
_MIN_COMPLETE = 20


@dataclass
class Estimate:
    """Says once, after the first xs, how long all of them will take.

    If the run will not end within its time limit, a warning says how many xs will be
    done by then and what fewer draws would take. Without a limit, the progress bar
    shows the estimate if it is longer than two minutes.

    Args:
        num_xs: xs that this run has to draw at.
        num_samples: Draws per x.
        limit: Seconds that the run may take, or `None`.
        progress: Progress bar of the run.
        grows_with_draws: Whether half of the draws take half of the time; Markov
            chains, for example, spend most of their time before the first draw.
    """

    num_xs: int
    num_samples: int
    limit: float | None
    progress: tqdm
    grows_with_draws: bool
    start: float = field(default_factory=lambda: time.monotonic(), init=False)
    is_said: bool = field(default=False, init=False)

    def update(self, num_done: int) -> None:
        """Take note of the number of xs that are done."""
        seconds = time.monotonic() - self.start
        settled = _SETTLED if self.limit is None else min(_SETTLED, self.limit / 20)
        is_late = self.limit is not None and seconds >= self.limit
        if self.is_said or num_done == 0 or seconds < settled or is_late:
            return
        self.is_said = True
        whole = seconds * self.num_xs / num_done
        if self.limit is None:
            if whole > _LONG:
                self.progress.set_postfix_str(
                    f"about {in_words(whole)} in all{self._fewer_draws(whole, ', ')}"
                )
        elif whole > self.limit:
            reached = max(num_done, int(self.num_xs * self.limit / whole))
            warn_caller(
                f"max_sampling_time: {self.num_xs} xs × {self.num_samples} draws will "
                f"take about {in_words(whole)}; in {in_words(self.limit)} about "
                f"{reached} xs will be done{self._fewer_draws(whole, '; ')}."
            )

    def _fewer_draws(self, seconds: float, separator: str) -> str:
        fewer = self.num_samples // 5
        if not self.grows_with_draws or fewer < 10:
            return ""
        return (
            f"{separator}{fewer} draws per x would take about "
            f"{in_words(seconds * fewer / self.num_samples)}"
        )


def in_words(seconds: float) -> str:
    """Return a duration in words.

    Example:
        >>> in_words(43.2), in_words(2580), in_words(9000)
        ('43 s', '43 min', '2.5 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 300:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


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
    warn_caller(f"{message}; the others, chosen at random, are left out. {advice}")


def _percent(value: Tensor) -> str:
    return "unknown" if value.isnan() else f"{float(value):.2g}"
