"""Posteriors that sbi trains on the published problems, kept in a folder.

Training follows sbi's defaults (a tenth of the pairs for validation, a stop after 20
epochs without improvement, x and θ standardised), except for smaller batches where
there are few simulations. A posterior is written to its file at once, so an interrupted
run goes on where it stopped. The files are pickles of torch: read only files that this
command has made.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sbi.inference import FMPE, NLE, NPE

from sbi_colt.benchmark.tasks.published import PROBLEMS, Problem
from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.sampling.sbi_internals import train_quietly

__all__ = ["ESTIMATORS", "TRAINED", "Trained", "load_or_train"]

# The trainer and the density estimator, where there is a choice.
ESTIMATORS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "npe-maf": (NPE, ("maf",)),
    "npe-nsf": (NPE, ("nsf",)),
    "fmpe": (FMPE, ()),
    "nle-maf": (NLE, ("maf",)),
}
_SIZES = (1000, 10_000)


@dataclass(frozen=True)
class Trained:
    """Which posterior: its problem, its estimator and its number of simulations.

    Args:
        task: A name in `PROBLEMS`.
        estimator: A name in `ESTIMATORS`.
        num_simulations: Number of simulations to train on.
    """

    task: str
    estimator: str
    num_simulations: int

    @property
    def name(self) -> str:
        """A name for files, such as ``slcp_npe-maf_1000``."""
        return f"{self.task}_{self.estimator}_{self.num_simulations}"

    @property
    def problem(self) -> Problem:
        """The problem."""
        return PROBLEMS[self.task]


def _all() -> list[Trained]:
    """Return the posteriors of the study, those that are trained quickly first."""
    some = ("two-moons", "gaussian-mixture", "slcp")
    kinds = [("npe-maf", PROBLEMS), ("npe-nsf", PROBLEMS), ("fmpe", some)]
    kinds.append(("nle-maf", ("two-moons", "slcp")))
    return [
        Trained(task, estimator, size)
        for size in _SIZES
        for estimator, tasks in kinds
        for task in tasks
    ]


TRAINED = _all()


def load_or_train(which: Trained, folder: Path, seed: int = 0) -> tuple[Any, float]:
    """Return a posterior and the seconds of its training.

    Args:
        which: Which posterior.
        folder: Folder of the trained posteriors. A posterior that is there is loaded,
            and any other is trained and written there.
        seed: Seed of simulation and training. The estimators of a problem are trained
            on the same simulations.
    """
    path = folder / f"{which.name}.pt"
    if path.exists():
        kept = torch.load(path, weights_only=False)
        return kept["posterior"], kept["seconds"]
    start = time.perf_counter()
    posterior = _train(which, seed)
    seconds = time.perf_counter() - start
    folder.mkdir(parents=True, exist_ok=True)
    # A process that is killed leaves no half of a file under the right name.
    unfinished = path.with_suffix(".part")
    torch.save({"posterior": posterior, "seconds": seconds}, unfinished)
    os.replace(unfinished, path)
    return posterior, seconds


def _train(which: Trained, seed: int) -> Any:
    problem, num = which.problem, which.num_simulations
    trainer, network = ESTIMATORS[which.estimator]
    with isolated_rng(generator_from(seed, "published", which.task, num)):
        thetas = problem.prior().sample((num,))
        xs = problem.simulate(thetas)
    with isolated_rng(generator_from(seed, "published training", which.name)):
        return train_quietly(
            trainer,
            problem.prior(),
            thetas,
            xs,
            *network,
            training_batch_size=min(200, max(20, num // 20)),
        )
