"""Train with sbi in silence: no lines for every epoch, no folder of logs."""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any

from torch import Tensor

__all__ = ["train_quietly"]


class _NoTracker:
    """Takes what sbi would write into a folder of logs, and keeps nothing."""

    log_dir = None

    def log_metric(self, name: str, value: float, step: int | None = None) -> None:
        """Keep nothing."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Keep nothing."""

    def log_params(self, params: dict[str, Any]) -> None:
        """Keep nothing."""

    def add_figure(self, name: str, figure: Any, step: int | None = None) -> None:
        """Keep nothing."""

    def flush(self) -> None:
        """Keep nothing."""


def train_quietly(
    trainer: Any, prior: Any, thetas: Tensor, xs: Tensor, *network: Any, **options: Any
) -> Any:
    """Return the posterior that a trainer of sbi builds.

    Args:
        trainer: A class such as `NPE`.
        prior: The prior.
        thetas: Parameters to train on, with shape ``(N, d)``.
        xs: Their observations.
        *network: The network, where it is not the default.
        **options: Options of the trainer's ``train``.
    """
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        trained = trainer(
            prior, *network, tracker=_NoTracker(), show_progress_bars=False
        )
        trained.append_simulations(thetas, xs)
        trained.train(**options)
        return trained.build_posterior()
