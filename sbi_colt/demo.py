"""The demonstration: an NPE trained properly, and one that never sees x."""

from __future__ import annotations

import contextlib
import io
import textwrap
import warnings
from pathlib import Path
from typing import Any

import torch
from sbi.inference import NPE
from torch import Tensor
from torch.distributions import MultivariateNormal

from sbi_colt.comparison import compare
from sbi_colt.randomness import generator_from, isolated_rng

__all__ = ["run_demo"]

_PROBLEM = (
    "A line of unknown intercept and slope, seen at five times with noise. Two neural "
    "posteriors (NPE) are trained with sbi on {num} simulations: one properly, one "
    "with the data of the simulations shuffled, so that it cannot learn from x and "
    "returns the prior whatever it sees. Both are tested on {pairs} fresh simulations."
)
_NAMES = ("intercept", "slope")
_TIMES = torch.linspace(-1, 1, 5)


def run_demo(seed: int, quick: bool, show_progress_bar: bool, folder: Path) -> None:
    """Train, test, print both reports and write them as HTML.

    Args:
        seed: Seed of everything.
        quick: Whether to use smaller budgets.
        show_progress_bar: Whether to show progress.
        folder: Where to write the HTML files.
    """
    num_simulations, num_pairs = (1000, 200) if quick else (4000, 500)
    folder.mkdir(parents=True, exist_ok=True)
    problem = _PROBLEM.format(num=num_simulations, pairs=num_pairs)
    print(f"{textwrap.fill(problem, 80)}\n")
    prior = MultivariateNormal(torch.zeros(2), torch.eye(2))
    kinds = {"proper": False, "blind": True}
    posteriors = {
        name: _train(prior, num_simulations, blind, quick, seed)
        for name, blind in kinds.items()
    }
    comparison = compare(
        posteriors,
        prior,
        _simulate,
        num_simulations=num_pairs,
        num_posterior_samples=200 if quick else 500,
        parameter_names=_NAMES,
        seed=seed,
        show_progress_bar=show_progress_bar,
    )
    for name in kinds:
        path = folder / f"sbi_colt_demo_{name}.html"
        comparison[name].to_html(path)
        print(f"{name.upper()}  ({path})\n\n{comparison[name]}\n")
    print(f"SIDE BY SIDE\n\n{comparison}")


def _simulate(thetas: Tensor) -> Tensor:
    line = thetas[:, :1] + thetas[:, 1:] * _TIMES  # (n, 5)
    return line + 0.5 * torch.randn_like(line)


def _train(prior: Any, num: int, blind: bool, quick: bool, seed: int) -> Any:
    with (
        isolated_rng(generator_from(seed, "demo", int(blind))),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        thetas = prior.sample((num,))
        xs = _simulate(thetas)
        if blind:
            xs = xs[torch.randperm(num)]
        trainer = NPE(prior, "mdn")
        trainer.append_simulations(thetas, xs)
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train(max_num_epochs=60 if quick else 200, show_train_summary=False)
        return trainer.build_posterior()
