"""Posteriors that sbi trains on the published problems, and how wrong they are.

Training follows sbi's defaults (a tenth of the pairs for validation, a stop after 20
epochs without improvement, x and θ standardised), except for smaller batches where
there are few simulations.

The truth about a posterior is measured at ten observations, which all posteriors of a
problem share: the accuracy of a classifier between 2000 draws of the posterior and of
the true one (C2ST; 1/2 means that they cannot be told apart, 1 that they do not
overlap), and the ratio of standard deviations.

Posteriors, true draws and truths are kept in a folder, so an interrupted run goes on
where it stopped. Some files are pickles of torch: read only files that this command has
made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from sbi.inference import FMPE, NLE, NPE
from sbi.utils.metrics import c2st
from threadpoolctl import threadpool_limits
from torch import Tensor

from sbi_colt.benchmark.tasks.published import PROBLEMS, Problem
from sbi_colt.files import atomic_write, write_text
from sbi_colt.randomness import derive_seed, generator_from, isolated_rng
from sbi_colt.sampling.at_xs import draw_posterior_samples
from sbi_colt.sampling.sbi_internals import train_quietly

__all__ = [
    "ESTIMATORS",
    "TRAINED",
    "Trained",
    "Truth",
    "load_or_train",
    "observations",
    "read_or_measure",
    "reference_draws",
]

# The trainer and the density estimator, where there is a choice.
ESTIMATORS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "npe-maf": (NPE, ("maf",)),
    "npe-nsf": (NPE, ("nsf",)),
    "fmpe": (FMPE, ()),
    "nle-maf": (NLE, ("maf",)),
}
_TASKS = {
    "npe-maf": tuple(PROBLEMS),
    "npe-nsf": tuple(PROBLEMS),
    "fmpe": ("two-moons", "gaussian-mixture", "slcp"),
    "nle-maf": ("two-moons", "slcp"),
}
_NUM_OBSERVATIONS = 10
_NUM_DRAWS = 2000


@dataclass(frozen=True)
class Trained:
    """Which posterior: its problem, its estimator and its number of simulations."""

    task: str  # a name in `PROBLEMS`
    estimator: str  # a name in `ESTIMATORS`
    num_simulations: int

    @property
    def name(self) -> str:
        """A name for files, such as ``slcp_npe-maf_1000``."""
        return f"{self.task}_{self.estimator}_{self.num_simulations}"

    @property
    def label(self) -> str:
        """A name for tables, such as ``slcp npe-maf 1k``."""
        return f"{self.task} {self.estimator} {self.num_simulations // 1000}k"

    @property
    def problem(self) -> Problem:
        """The problem."""
        return PROBLEMS[self.task]


# All posteriors of the study, those that are trained quickly first.
TRAINED = [
    Trained(task, estimator, size)
    for size in (1000, 10_000)
    for estimator, tasks in _TASKS.items()
    for task in tasks
]


@dataclass(frozen=True)
class Truth:
    """What is known of a trained posterior.

    Ratios of widths are standard deviations of the posterior over those of the true
    one, for each parameter: geometric means over the observations. A few draws far away
    make them large, whereas C2ST hardly sees such draws.
    """

    c2st: float  # mean over the observations
    c2sts: list[float]
    width_ratios: list[float]
    train_seconds: float
    seconds: float  # of this measurement


def load_or_train(which: Trained, folder: Path) -> tuple[Any, float]:
    """Return a posterior, which is trained unless the folder has it, and the seconds.

    The estimators of a problem are trained on the same simulations.
    """

    def train() -> dict[str, Any]:
        start = time.perf_counter()
        posterior = _train(which)
        return {"posterior": posterior, "seconds": time.perf_counter() - start}

    kept = _load_or_make(folder / f"{which.name}.pt", train)
    return kept["posterior"], kept["seconds"]


def _load_or_make(path: Path, make: Callable[[], Any]) -> Any:
    if not path.exists():
        made = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, "wb") as file:
            torch.save(made, file)
    return torch.load(path, weights_only=False)


def _train(which: Trained) -> Any:
    problem, num = which.problem, which.num_simulations
    trainer, network = ESTIMATORS[which.estimator]
    with isolated_rng(generator_from(0, "published", which.task, num)):
        thetas = problem.prior().sample((num,))
        xs = problem.simulate(thetas)
    batch = min(200, max(20, num // 20))
    with isolated_rng(generator_from(0, "published training", which.name)):
        return train_quietly(
            trainer, problem.prior(), thetas, xs, *network, training_batch_size=batch
        )


def observations(task: str) -> Tensor:
    """Return ten observations with parameters from the prior, the same at each call."""
    problem = PROBLEMS[task]
    with isolated_rng(generator_from(0, "published observations", task)):
        return problem.simulate(problem.prior().sample((_NUM_OBSERVATIONS,)))


def reference_draws(task: str, folder: Path) -> Tensor:
    """Return draws of the true posterior at each observation, ``(10, 2000, dim)``."""

    def draw() -> Tensor:
        generator = generator_from(0, "published reference", task)
        sample = PROBLEMS[task].reference
        xs = observations(task)
        return torch.stack([sample(x, _NUM_DRAWS, generator) for x in xs])

    return _load_or_make(folder / f"{task}_reference.pt", draw)


def read_or_measure(
    which: Trained, posterior: Any, train_seconds: float, folder: Path
) -> Truth:
    """Return the truth about a posterior, from its JSON file if there is one."""
    path = folder / f"{which.name}.json"
    if not path.exists():
        truth = _measure(which, posterior, train_seconds, folder)
        write_text(path, json.dumps(asdict(truth), indent=1))
    return Truth(**json.loads(path.read_text(encoding="utf-8")))


def _measure(
    which: Trained, posterior: Any, train_seconds: float, folder: Path
) -> Truth:
    reference = reference_draws(which.task, folder)  # (10, 2000, d)
    start = time.perf_counter()
    draws = draw_posterior_samples(
        posterior,
        observations(which.task),
        _NUM_DRAWS,
        seed=derive_seed(0, "published truth", which.name),
        show_progress_bar=False,
    ).transpose(0, 1)  # (10, 2000, d)
    generator = generator_from(0, "published C2ST", which.name)
    # With threads, matrices as small as a classifier's take many times as long.
    with threadpool_limits(1), isolated_rng(generator):
        scores = [float(c2st(a, b)) for a, b in zip(reference, draws, strict=True)]
    ratios = (draws.std(dim=1) / reference.std(dim=1)).log().mean(dim=0).exp()
    seconds = time.perf_counter() - start
    return Truth(fmean(scores), scores, ratios.tolist(), train_seconds, seconds)
