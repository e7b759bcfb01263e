"""What this package reads of sbi 0.27 beyond its documented names.

Private attributes, texts of warnings and errors, and modules that sbi does not export
are named here and nowhere else. A new version of sbi is checked against this page.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sbi.inference.posteriors import (
    DirectPosterior,
    EnsemblePosterior,
    ImportanceSamplingPosterior,
    MCMCPosterior,
    RejectionPosterior,
    VectorFieldPosterior,
    VIPosterior,
)
from sbi.inference.posteriors.base_posterior import NeuralPosterior
from sbi.inference.posteriors.filtered_direct_posterior import FilteredDirectPosterior
from sbi.inference.posteriors.npe_a_posterior import NPE_A_Posterior
from sbi.utils.sbiutils import within_support
from sbi.utils.user_input_checks import process_prior
from torch import Tensor

__all__ = [
    "DirectPosterior",
    "EnsemblePosterior",
    "FilteredDirectPosterior",
    "ImportanceSamplingPosterior",
    "MCMCPosterior",
    "NPE_A_Posterior",
    "NeuralPosterior",
    "RejectionPosterior",
    "VIPosterior",
    "VectorFieldPosterior",
    "component_weights",
    "composes_trials",
    "corrects_for_proposal",
    "default_observation",
    "device_of",
    "is_amortized",
    "is_timeout",
    "is_vectorised",
    "process_prior",
    "samples_like",
    "silent",
    "train_quietly",
    "trained_x_shape",
    "within_support",
]


def samples_like(posterior: Any, kind: type) -> bool:
    """Return whether a posterior is of a kind and has not changed how that samples."""
    own = type(posterior)
    return isinstance(posterior, kind) and all(
        getattr(own, name) is getattr(kind, name)
        for name in ("sample", "sample_batched")
    )


def device_of(posterior: NeuralPosterior) -> str | torch.device:
    """Return the device that a posterior's networks are on."""
    return posterior._device


def default_observation(posterior: Any) -> Tensor | None:
    """Return the observation that a posterior of sbi is meant for, or `None`."""
    if not isinstance(posterior, NeuralPosterior):
        return None
    return posterior.default_x


def corrects_for_proposal(posterior: NPE_A_Posterior) -> bool:
    """Return whether NPE-A was trained in several rounds.

    Its ``sample`` then corrects for the proposal; its ``sample_batched`` does not.
    """
    return bool(posterior._apply_correction)


def composes_trials(posterior: VectorFieldPosterior) -> bool:
    """Return whether a score or flow network combines several iid trials."""
    return bool(posterior.vector_field_estimator.compose_enabled)


def is_vectorised(posterior: MCMCPosterior) -> bool:
    """Return whether the chains of many xs can run at once."""
    return posterior.method == "slice_np_vectorized"


def is_amortized(posterior: VIPosterior) -> bool:
    """Return whether a variational posterior was trained for all xs at once."""
    return posterior._mode == "amortized"


def component_weights(posterior: EnsemblePosterior) -> Tensor:
    """Return the weights of an ensemble's components, with shape ``(C,)``."""
    return torch.as_tensor(posterior._weights).double().cpu()


def trained_x_shape(posterior: Any) -> tuple[int, ...] | None:
    """Return the shape of one observation that a posterior was trained on."""
    for owner in (posterior, getattr(posterior, "potential_fn", None)):
        for name, shape in (
            ("posterior_estimator", "condition_shape"),
            ("vector_field_estimator", "condition_shape"),
            ("likelihood_estimator", "input_shape"),
            ("ratio_estimator", "condition_shape"),
        ):
            known = getattr(getattr(owner, name, None), shape, None)
            if known is not None:
                return tuple(known)
    return None


def is_timeout(error: Exception) -> bool:
    """Return whether an error says that rejection sampling ran out of time."""
    return "max_sampling_time" in str(error)


@contextmanager
def silent() -> Iterator[None]:
    """Silence warnings of sbi about batches and leakage, which are handled here."""
    with warnings.catch_warnings():
        for message in (
            "Capping max_sampling_batch_size",
            "Note that for batched sampling",
            "The passed number of MCMC chains is larger",
            ".* lie outside the prior support",
        ):
            warnings.filterwarnings("ignore", message)
        yield


class _NoTracker:
    """Takes what sbi would write into a folder of logs, and keeps nothing."""

    log_dir = None

    def log_metric(self, *args: Any, **kwargs: Any) -> None:
        """Keep nothing."""

    log_metrics = log_params = add_figure = flush = log_metric


def train_quietly(
    trainer: Any, prior: Any, thetas: Tensor, xs: Tensor, *network: Any, **options: Any
) -> Any:
    """Return the posterior that a trainer of sbi builds, without logs or messages.

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
