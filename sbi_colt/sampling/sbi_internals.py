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
from sbi.utils.torchutils import BoxUniform
from sbi.utils.user_input_checks import process_prior
from sbi.utils.user_input_checks_utils import (
    MultipleIndependent,
    OneDimPriorWrapper,
    PytorchReturnTypeWrapper,
)
from torch import Tensor
from torch.distributions import Distribution, constraints

__all__ = [
    "DirectPosterior",
    "EnsemblePosterior",
    "FilteredDirectPosterior",
    "ImportanceSamplingPosterior",
    "MCMCPosterior",
    "NPE_A_Posterior",
    "NeuralPosterior",
    "RejectionPosterior",
    "SampledPrior",
    "VIPosterior",
    "VectorFieldPosterior",
    "component_weights",
    "composes_trials",
    "corrects_for_proposal",
    "default_observation",
    "device_of",
    "is_amortized",
    "is_normalised",
    "is_timeout",
    "is_vectorised",
    "prior_of",
    "process_prior",
    "samples_like",
    "silent",
    "train_quietly",
    "trained_x_shape",
    "within_support",
]


class SampledPrior(Distribution):
    """A prior that can be sampled and has no density, which sbi does not take.

    Args:
        prior: An object with ``sample`` and without ``log_prob``.
    """

    lacks_density = True

    def __init__(self, prior: Any):
        self.prior = prior
        dim = torch.as_tensor(prior.sample((2,))).reshape(2, -1).shape[1]
        super().__init__(event_shape=torch.Size([dim]), validate_args=False)

    @property
    def arg_constraints(self) -> dict[str, Any]:
        """There are no parameters to check."""
        return {}

    @property
    def support(self) -> Any:
        """All vectors: where the prior has no density is not known."""
        return constraints.independent(constraints.real, 1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Return draws of the prior."""
        drawn = torch.as_tensor(self.prior.sample(tuple(sample_shape))).float()
        return drawn.reshape(*sample_shape, *self.event_shape)


def is_normalised(prior: Any) -> bool:
    """Return whether the density of a prior is known to integrate to 1.

    Distributions of torch and sbi's box are; a prior of the user's own may not be.
    """
    if isinstance(prior, OneDimPriorWrapper | PytorchReturnTypeWrapper):
        return is_normalised(prior.prior)
    if isinstance(prior, MultipleIndependent):
        return all(map(is_normalised, prior.dists))
    base = getattr(prior, "base_dist", None)  # of independent and transformed ones
    if base is not None and not is_normalised(base):
        return False
    kind = type(prior)
    return kind is BoxUniform or kind.__module__.startswith("torch.distributions")


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


def prior_of(posterior: Any) -> Any:
    """Return the prior that a posterior of sbi was trained with, or `None`."""
    if isinstance(posterior, EnsemblePosterior):
        return prior_of(posterior.posteriors[0])
    if not isinstance(posterior, NeuralPosterior):
        return None
    owners = (posterior, getattr(posterior, "potential_fn", None))
    known = (getattr(owner, "prior", None) for owner in owners)
    return next((prior for prior in known if prior is not None), None)


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
