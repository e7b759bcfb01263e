"""How long a run will take, said early in the run."""

from __future__ import annotations

import time

from tqdm.auto import tqdm

from sbi_colt.checks import warn_caller

__all__ = ["Estimate", "in_words"]

# Without a limit, the progress bar shows an estimate that is longer than this.
_LONG = 120.0
# The first seconds of a run, in which processes start and libraries load, count little.
_SETTLED = 5.0


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

    def __init__(
        self,
        num_xs: int,
        num_samples: int,
        limit: float | None,
        progress: tqdm,
        grows_with_draws: bool,
    ):
        self.num_xs = num_xs
        self.num_samples = num_samples
        self.limit = limit
        self.progress = progress
        self.grows_with_draws = grows_with_draws
        self.start = time.monotonic()
        self.is_said = False

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
