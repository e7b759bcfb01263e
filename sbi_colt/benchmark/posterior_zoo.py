r"""One trained posterior of every kind that sbi has, on a problem with a known answer.

.. math:: θ \sim N(0, I_2), \quad x = A θ + 0.5 ε, \quad
          p(θ | x) = N(S A^T x / 0.25, S), \quad S = (I + A^T A / 0.25)^{-1}

The posteriors are trained for seconds, not for accuracy: they serve to check and to
time how draws are made. Two kinds change the problem: ``images`` spreads x over an 8×8
picture, and ``mixed`` adds a discrete datum.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from sbi.inference import FMPE, MNLE, MNPE, NLE, NPE, NPE_A, NPSE, NRE
from sbi.inference.posteriors import EnsemblePosterior
from sbi.neural_nets import posterior_nn
from sbi.neural_nets.embedding_nets import CNNEmbedding
from sbi.utils import MultipleIndependent
from torch import Tensor
from torch.distributions import Bernoulli, MultivariateNormal, Normal

from sbi_colt.randomness import generator_from, isolated_rng

__all__ = ["ZOO", "Exhibit", "exhibit", "prior", "simulate"]

_MIXING = torch.tensor([[1.0, 0.5], [0.0, 1.0]])
_NOISE = 0.5


def prior() -> MultivariateNormal:
    """Return the prior N(0, I)."""
    return MultivariateNormal(torch.zeros(2), torch.eye(2))


def simulate(num: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return pairs, both with shape ``(num, 2)``."""
    thetas = torch.randn(num, 2, generator=generator)
    noise = _NOISE * torch.randn(num, 2, generator=generator)
    return thetas, thetas @ _MIXING.T + noise


def _observe(num: int, generator: torch.Generator) -> Tensor:
    return simulate(num, generator)[1]


@dataclass(frozen=True)
class Exhibit:
    """A trained posterior, and a function that makes xs for it."""

    posterior: Any
    observe: Callable[[int, torch.Generator], Tensor] = _observe


@cache
def exhibit(name: str) -> Exhibit:
    """Train a posterior of the zoo, once; see ``ZOO`` for the names."""
    if name not in ZOO:
        raise ValueError(f"name: expected one of {', '.join(ZOO)}, got {name!r}.")
    with isolated_rng(generator_from(0, "zoo", name)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few epochs, on purpose
        made = ZOO[name]()
    return made if isinstance(made, Exhibit) else Exhibit(made)


def _train(trainer: Any, thetas: Tensor, xs: Tensor, epochs: int, **kept: Any) -> Any:
    trainer.append_simulations(thetas, xs, **kept)
    with contextlib.redirect_stdout(io.StringIO()):  # sbi prints every epoch
        trainer.train(
            max_num_epochs=epochs, training_batch_size=100, show_train_summary=False
        )
    return trainer


def _pairs(num: int = 2000) -> tuple[Tensor, Tensor]:
    return simulate(num, generator_from(1, "zoo pairs"))


def _built(trainer: Any, epochs: int = 15, **how: Any) -> Any:
    """Return the posterior of a trainer; ``how`` says how to sample it."""
    return _train(trainer, *_pairs(), epochs=epochs).build_posterior(**how)


def _npe_a() -> Exhibit:
    focus = torch.tensor([[0.5, -0.5]])
    trainer = _train(NPE_A(prior(), num_components=2), *_pairs(), epochs=60)
    proposal = trainer.build_posterior().set_default_x(focus)
    thetas = proposal.sample((1000,), show_progress_bars=False)
    xs = thetas @ _MIXING.T + _NOISE * torch.randn(1000, 2)
    _train(trainer, thetas, xs, epochs=60, proposal=proposal)
    # The correction holds near the observation that the second round was about.
    return Exhibit(
        trainer.build_posterior(),
        lambda n, g: focus + 0.3 * torch.randn(n, 2, generator=g),
    )


def _likelihood(sample_with: str) -> Any:
    return _built(NLE(prior(), "maf"), sample_with=sample_with)


def _mcmc(method: str = "slice_np_vectorized") -> dict[str, Any]:
    few = {"num_chains": 4, "warmup_steps": 20, "thin": 2}
    return {"sample_with": "mcmc", "mcmc_method": method, "mcmc_parameters": few}


def _iid_trials() -> Exhibit:
    def observe(num: int, generator: torch.Generator) -> Tensor:
        thetas = torch.randn(num, 1, 2, generator=generator)
        noise = _NOISE * torch.randn(num, 3, 2, generator=generator)
        return thetas @ _MIXING.T + noise

    return Exhibit(_built(NLE(prior(), "maf"), **_mcmc()), observe)


def _amortized_vi() -> Any:
    posterior = _likelihood("vi")
    posterior.train_amortized(
        *_pairs(), max_num_iters=60, n_particles=32, show_progress_bar=False
    )
    return posterior


def _ensemble() -> Any:
    parts = [_train(NPE(prior(), "maf"), *_pairs(500 + i), epochs=5) for i in range(2)]
    weights = torch.tensor([0.8, 0.2])
    posteriors = [part.build_posterior() for part in parts]
    return EnsemblePosterior(posteriors, weights=weights)


def _images() -> Exhibit:
    def picture(xs: Tensor, generator: torch.Generator) -> Tensor:
        noise = 0.1 * torch.randn(len(xs), 1, 8, 8, generator=generator)
        noise[:, 0, :4] += xs[:, :1, None]
        noise[:, 0, 4:] += xs[:, 1:, None]
        return noise

    net = CNNEmbedding(
        (8, 8), num_conv_layers=1, out_channels_per_layer=[4], kernel_size=3
    )
    builder = posterior_nn("maf", embedding_net=net, hidden_features=20)
    thetas, xs = _pairs(1000)
    images = picture(xs, generator_from(2, "zoo images"))
    trainer = _train(NPE(prior(), builder), thetas, images, epochs=15)
    return Exhibit(trainer.build_posterior(), lambda n, g: picture(_observe(n, g), g))


def _with_choice(thetas: Tensor, xs: Tensor, generator: torch.Generator) -> Tensor:
    """Return x[:, :1] and a discrete datum that is 1 more often for larger θ_2."""
    probability = torch.sigmoid(2 * thetas[:, 1:])
    choice = torch.rand(len(thetas), 1, generator=generator) < probability
    return torch.cat([xs[:, :1], choice.float()], dim=1)


def _mixed_data() -> Exhibit:
    thetas, xs = _pairs(1000)
    data = _with_choice(thetas, xs, generator_from(2, "zoo mixed"))
    trainer = _train(MNLE(prior()), thetas, data, epochs=10)
    return Exhibit(
        trainer.build_posterior(**_mcmc()),
        lambda n, g: _with_choice(*simulate(n, g), generator=g),
    )


def _mixed_parameters() -> Exhibit:
    parts = [Normal(torch.zeros(1), torch.ones(1)), Bernoulli(torch.tensor([0.5]))]
    mixed = MultipleIndependent(parts, validate_args=False)
    generator = generator_from(2, "zoo mixed parameters")

    def pairs(num: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        first = torch.randn(num, 1, generator=generator)
        second = (torch.rand(num, 1, generator=generator) < 0.5).float()
        thetas = torch.cat([first, second], dim=1)
        noise = _NOISE * torch.randn(num, 2, generator=generator)
        return thetas, thetas @ _MIXING.T + noise

    trainer = _train(MNPE(mixed), *pairs(1000, generator), epochs=10)
    return Exhibit(trainer.build_posterior(), lambda n, g: pairs(n, g)[1])


# Functions that train a posterior; those that change the problem return an `Exhibit`.
ZOO: dict[str, Callable[[], Any]] = {
    "npe-maf": lambda: _built(NPE(prior(), "maf")),
    "npe-nsf": lambda: _built(NPE(prior(), "nsf")),
    "npe-mdn": lambda: _built(NPE(prior(), "mdn")),
    "npe-a, two rounds": _npe_a,
    "nle, vectorised slice": lambda: _built(NLE(prior(), "maf"), **_mcmc()),
    "nle, slice": lambda: _built(NLE(prior(), "maf"), **_mcmc("slice_np")),
    "nre, vectorised slice": lambda: _built(NRE(prior()), **_mcmc()),
    "nle, iid trials": _iid_trials,
    "nle, rejection": lambda: _likelihood("rejection"),
    "nle, importance": lambda: _likelihood("importance"),
    "nle, vi": lambda: _likelihood("vi"),
    "nle, amortized vi": _amortized_vi,
    "npse, sde": lambda: _built(NPSE(prior()), 40, sample_with="sde"),
    "npse, ode": lambda: _built(NPSE(prior()), 40, sample_with="ode"),
    "fmpe, ode": lambda: _built(FMPE(prior()), 40, sample_with="ode"),
    "fmpe, sde": lambda: _built(FMPE(prior()), 40, sample_with="sde"),
    "mnle": _mixed_data,
    "mnpe": _mixed_parameters,
    "ensemble": _ensemble,
    "npe on images": _images,
}
