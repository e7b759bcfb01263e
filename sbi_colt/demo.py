"""The demonstration: an NPE trained properly, and one that never sees x."""

from __future__ import annotations

import textwrap
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from sbi.inference import NPE
from torch import Tensor
from torch.distributions import MultivariateNormal
from tqdm.auto import tqdm

from sbi_colt.compare import compare
from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.sampling.sbi_internals import train_quietly

__all__ = ["run_demo"]

_PROBLEM = (
    "A line of unknown intercept and slope, seen at five times with noise. Two neural "
    "posteriors (NPE) are trained with sbi on {num} simulations: one properly, one "
    "with the data of the simulations shuffled, so that it cannot learn from x and "
    "returns the prior whatever it sees. Both are tested on {pairs} fresh simulations."
)
_NAMES = ("intercept", "slope")
_COLUMN = 39  # two of them and a gap are 80 columns
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
    posteriors = {}
    for name, blind in tqdm(
        kinds.items(),
        desc="Training posteriors",
        disable=not show_progress_bar,
        leave=False,
    ):
        posteriors[name] = _train(prior, num_simulations, blind, quick, seed)
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
    columns = []
    for name in kinds:
        path = folder / f"sbi_colt_demo_{name}.html"
        comparison[name].to_html(path)
        columns.append(f"{name.upper()}\n\n{comparison[name].summary(_COLUMN)}")
    print(_side_by_side(*columns))
    print(f"\n{'-' * 80}\n\n{comparison}\n")
    print(f"Pages: {', '.join(f'sbi_colt_demo_{name}.html' for name in kinds)}")


def _side_by_side(left: str, right: str) -> str:
    rows = zip_longest(left.splitlines(), right.splitlines(), fillvalue="")
    return "\n".join(f"{a:<{_COLUMN + 2}}{b}".rstrip() for a, b in rows)


def _simulate(thetas: Tensor) -> Tensor:
    line = thetas[:, :1] + thetas[:, 1:] * _TIMES  # (n, 5)
    return line + 0.5 * torch.randn_like(line)


def _train(prior: Any, num: int, blind: bool, quick: bool, seed: int) -> Any:
    with isolated_rng(generator_from(seed, "demo", int(blind))):
        thetas = prior.sample((num,))
        xs = _simulate(thetas)
        if blind:
            xs = xs[torch.randperm(num)]
        epochs = 60 if quick else 200
        return train_quietly(NPE, prior, thetas, xs, "mdn", max_num_epochs=epochs)
