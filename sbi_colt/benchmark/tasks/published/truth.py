"""How wrong a trained posterior is, measured against draws of the true one.

At ten observations, which all posteriors of a problem share: the accuracy of a
classifier between 2000 draws of either kind (C2ST; 1/2 means that they cannot be told
apart, 1 that they do not overlap), and the ratio of standard deviations.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from sbi.utils.metrics import c2st
from threadpoolctl import threadpool_limits
from torch import Tensor

from sbi_colt.benchmark.tasks.published import PROBLEMS
from sbi_colt.benchmark.tasks.published.trained import Trained
from sbi_colt.randomness import derive_seed, generator_from, isolated_rng
from sbi_colt.sampling.draw import draw_posterior_samples

__all__ = ["Truth", "observations", "read_or_measure", "reference_draws"]

_NUM_OBSERVATIONS = 10
_NUM_DRAWS = 2000


@dataclass(frozen=True)
class Truth:
    """What is known of a trained posterior.

    Args:
        c2st: Mean accuracy of the classifier over the observations.
        c2sts: Its accuracy at each observation.
        width_ratios: Standard deviation of the posterior over that of the reference,
            for each parameter; the geometric mean over the observations. A few draws
            far away make it large, whereas C2ST hardly sees them.
        train_seconds: Seconds of training.
        seconds: Seconds of this measurement.
    """

    c2st: float
    c2sts: list[float]
    width_ratios: list[float]
    train_seconds: float
    seconds: float


def observations(task: str) -> Tensor:
    """Return ten observations with parameters from the prior, the same at each call."""
    problem = PROBLEMS[task]
    with isolated_rng(generator_from(0, "published observations", task)):
        return problem.simulate(problem.prior().sample((_NUM_OBSERVATIONS,)))


def reference_draws(task: str, folder: Path) -> Tensor:
    """Return draws of the true posterior at each observation, ``(10, 2000, dim)``.

    Args:
        task: A name in `PROBLEMS`.
        folder: Folder in which the draws are kept once they are made.
    """
    path = folder / f"{task}_reference.pt"
    if path.exists():
        return torch.load(path)
    generator = generator_from(0, "published reference", task)
    draws = torch.stack(
        [PROBLEMS[task].reference(x, _NUM_DRAWS, generator) for x in observations(task)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    torch.save(draws, unfinished)
    os.replace(unfinished, path)
    return draws


def read_or_measure(
    which: Trained, posterior: Any, train_seconds: float, folder: Path
) -> Truth:
    """Return the truth about a posterior, from its JSON file if there is one.

    Args:
        which: Which posterior.
        posterior: The posterior.
        train_seconds: Seconds of its training.
        folder: Folder of the trained posteriors and of these files.
    """
    path = folder / f"{which.name}.json"
    if path.exists():
        return Truth(**json.loads(path.read_text(encoding="utf-8")))
    truth = _measure(which, posterior, train_seconds, folder)
    unfinished = path.with_suffix(".json.part")
    unfinished.write_text(json.dumps(asdict(truth), indent=1), encoding="utf-8")
    os.replace(unfinished, path)
    return truth


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
