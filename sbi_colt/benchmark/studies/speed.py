"""Time diagnose with its default methods, beside sbi's checks.

Those are run_sbc, check_sbc, run_tarp and check_tarp. Both sides get one NPE posterior
of 5 parameters, 500 pairs and 1000 draws, in turns (two or three minutes). The ratio is
our time divided by sbi's.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from sbi.diagnostics import check_sbc, check_tarp, run_sbc, run_tarp
from sbi.inference import NPE
from torch import Tensor
from torch.distributions import MultivariateNormal

from sbi_colt.benchmark.studies.shared import seconds_of
from sbi_colt.benchmark.tables import aligned
from sbi_colt.diagnose import diagnose
from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.sampling.sbi_internals import train_quietly

OPTIONS = {}
_WIDTHS = (6, 24, 20, 8)


def run(
    options: argparse.Namespace,
    dim: int = 5,
    num_pairs: int = 500,
    num_draws: int = 1000,
    repetitions: int = 3,
) -> Iterator[str]:
    """Yield the times of `diagnose` and of sbi's SBC and TARP, and their totals."""
    with isolated_rng(generator_from(0, "speed")), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = _problem(dim, num_pairs)
        yield f"NPE, {dim} parameters, {num_pairs} pairs, {num_draws} draws"
        yield aligned(("run", "diagnose", "sbi: SBC and TARP", "ratio"), *_WIDTHS)
        ours, theirs = 0.0, 0.0
        for repetition in range(1, repetitions + 1):
            here = seconds_of(partial(_diagnose, *problem, num_draws))
            there = seconds_of(partial(_sbi_checks, *problem, num_draws))
            ours, theirs = ours + here, theirs + there
            yield _line(str(repetition), here, there)
        yield _line("all", ours, theirs)


def _problem(dim: int, num_pairs: int) -> tuple[Any, Tensor, Tensor]:
    """Return a trained posterior, and pairs that it was not trained on."""
    prior = MultivariateNormal(torch.zeros(dim), torch.eye(dim))
    thetas = prior.sample((2000 + num_pairs,))
    xs = thetas + 0.5 * torch.randn_like(thetas)
    posterior = train_quietly(
        NPE, prior, thetas[num_pairs:], xs[num_pairs:], max_num_epochs=50
    )
    return posterior, thetas[:num_pairs], xs[:num_pairs]


def _diagnose(posterior: Any, thetas: Tensor, xs: Tensor, num_draws: int) -> None:
    budget = {"num_posterior_samples": num_draws, "show_progress_bar": False}
    diagnose(posterior, thetas=thetas, xs=xs, seed=0, **budget)


def _sbi_checks(posterior: Any, thetas: Tensor, xs: Tensor, num_draws: int) -> None:
    budget = {"num_posterior_samples": num_draws, "show_progress_bar": False}
    ranks, dap_samples = run_sbc(thetas, xs, posterior, **budget)
    check_sbc(ranks, thetas, dap_samples, num_draws)
    check_tarp(*run_tarp(thetas, xs, posterior, **budget))


def _line(name: str, here: float, theirs: float) -> str:
    numbers = (f"{here:.1f} s", f"{theirs:.1f} s", f"{here / theirs:.2f}")
    return aligned((name, *numbers), *_WIDTHS)
