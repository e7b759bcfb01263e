"""Posteriors that sbi trained with one real mistake each, and how to undo it.

A `Training` says how a posterior is trained. Its defaults are sound; each entry of
`DEFECTS` differs from them in one or two settings. The problems are small, so that
training takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from sbi.inference import NPE
from sbi.neural_nets import posterior_nn
from sbi.utils import BoxUniform
from torch import Tensor, nn

from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.sampling.sbi_internals import train_quietly

__all__ = ["DEFECTS", "ENOUGH", "PROBLEMS", "Problem", "Training", "train"]

ENOUGH = 1000  # epochs, which no training reaches
_LARGEST_BATCH = 500  # otherwise a tenth of the simulations
_ESTIMATORS: dict[str, dict[str, Any]] = {
    "one Gaussian": {"model": "mdn", "num_components": 1},
    "mixture": {"model": "mdn", "num_components": 8},
    "maf": {"model": "maf", "num_transforms": 2},
    "nsf": {"model": "nsf", "num_transforms": 2, "num_bins": 8},
}


@dataclass(frozen=True)
class Problem:
    """A uniform prior on a box, and a simulator whose noise has a size."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    simulate: Callable[[Tensor, float], Tensor]

    def prior(self, share: float = 1.0) -> BoxUniform:
        """Return the prior, or its part around the centre of the box."""
        low, high = torch.tensor(self.low), torch.tensor(self.high)
        centre, half = (low + high) / 2, share * (high - low) / 2
        return BoxUniform(centre - half, centre + half)


def _squares(thetas: Tensor, noise: float) -> Tensor:
    """The sign of the first parameter is lost: its posterior has two modes."""
    clean = torch.stack([thetas[:, 0].square(), thetas[:, 1]], dim=1)
    return clean + 0.1 * noise * torch.randn_like(clean)


def _bent(thetas: Tensor, noise: float) -> Tensor:
    """Each parameter has a number of its own, and both share a third one."""
    a, b = thetas.T
    clean = torch.stack([a, b + 0.3 * a.square(), a * b], dim=1)
    sizes = noise * torch.tensor([0.3, 0.3, 1.0])
    return clean + sizes * torch.randn_like(clean)


def _edges(thetas: Tensor, noise: float) -> Tensor:
    """So much noise that most posteriors end at the faces of the box."""
    return thetas + 0.5 * noise * torch.randn_like(thetas)


def _series(thetas: Tensor, noise: float) -> Tensor:
    """An oscillation at 30 times; the parameters are its size and its frequency."""
    times = torch.linspace(0, 2 * math.pi, 30)
    clean = thetas[:, :1] * torch.sin(thetas[:, 1:] * times)  # (N, 30)
    return clean + 0.5 * noise * torch.randn_like(clean)


PROBLEMS = {
    "squares": Problem((-1.0, -1.0), (1.0, 1.0), _squares),
    "bent": Problem((-2.0, -2.0), (2.0, 2.0), _bent),
    "edges": Problem((0.0, 0.0), (1.0, 1.0), _edges),
    "series": Problem((0.5, 0.5), (2.0, 1.5), _series),
}


@dataclass(frozen=True)
class Training:
    """How a posterior is trained."""

    problem: str
    estimator: str = "mixture"
    num_simulations: int = 1000
    copies: int = 1  # of each simulation, so that validation pairs are trained on too
    max_epochs: int = ENOUGH
    noise: float = 1.0  # of the simulator in training, over that of the problem
    share: float = 1.0  # of each edge of the prior's box that training sees
    is_shuffled: bool = False  # xs against θs
    dropped: int | None = None  # place of a number of x that is set to zero
    embedding: int | None = None  # outputs of an embedding net


DEFECTS = {
    "one Gaussian for two modes": Training("squares", "one Gaussian"),
    "200 simulations": Training("bent", num_simulations=200),
    "stopped after 3 epochs": Training("bent", max_epochs=3),
    "overtrained on 300 simulations": Training(
        "bent", num_simulations=300, copies=3, max_epochs=100
    ),
    "x shuffled": Training("bent", is_shuffled=True),
    "a number of x dropped": Training("bent", dropped=1),
    "half the noise in training": Training("bent", noise=0.5),
    "prior cut in training": Training("bent", share=0.6),
    "a flow at the edges": Training("edges", "maf"),
    "an embedding net too small": Training("series", embedding=1),
}


def train(training: Training, seed: int) -> Any:
    """Return the posterior that sbi trains."""
    problem = PROBLEMS[training.problem]
    with isolated_rng(generator_from(seed, "defects", training.problem)):
        thetas = problem.prior(training.share).sample((training.num_simulations,))
        xs = problem.simulate(thetas, training.noise)
        if training.is_shuffled:
            xs = xs[torch.randperm(len(xs))]
        network = posterior_nn(
            **_ESTIMATORS[training.estimator],
            hidden_features=32,
            embedding_net=_embedding(xs.shape[1], training),
        )
        return train_quietly(
            NPE,
            problem.prior(),
            thetas.repeat(training.copies, 1),
            xs.repeat(training.copies, 1),
            network,
            training_batch_size=min(_LARGEST_BATCH, len(xs) // 10),
            learning_rate=1e-3,
            max_num_epochs=training.max_epochs,
        )


class _Without(nn.Module):
    """Sets one number of x to zero."""

    def __init__(self, num_inputs: int, place: int):
        super().__init__()
        kept = torch.ones(num_inputs)
        kept[place] = 0
        # A parameter, because sbi asks an embedding net for the device of its first.
        self.kept = nn.Parameter(kept, requires_grad=False)

    def forward(self, xs: Tensor) -> Tensor:  # (N, D) -> (N, D)
        return xs * self.kept


def _embedding(num_inputs: int, training: Training) -> nn.Module:
    if training.dropped is not None:
        return _Without(num_inputs, training.dropped)
    if training.embedding is None:
        return nn.Identity()
    return nn.Sequential(
        nn.Linear(num_inputs, 32), nn.ReLU(), nn.Linear(32, training.embedding)
    )
