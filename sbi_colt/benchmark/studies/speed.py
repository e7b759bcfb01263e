"""How long a whole report takes beside sbi's SBC and TARP, in one run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator

import torch
from sbi.diagnostics import check_sbc, check_tarp, run_sbc, run_tarp
from sbi.inference import NPE
from torch.distributions import MultivariateNormal

from sbi_colt.diagnose import diagnose
from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.sampling.quiet import train_quietly

__all__ = ["compare_speed"]


def compare_speed(
    dim: int = 5,
    num_pairs: int = 500,
    num_posterior_samples: int = 1000,
    repetitions: int = 3,
) -> Iterator[str]:
    """Yield lines on `diagnose` with four methods against sbi's SBC and TARP.

    Both are given the same NPE posterior and the same pairs, in turns.

    Args:
        dim: Parameters, as many as observations.
        num_pairs: Pairs.
        num_posterior_samples: Draws per pair.
        repetitions: How often to time both; the ratio is that of the totals.
    """
    prior = MultivariateNormal(torch.zeros(dim), torch.eye(dim))
    with isolated_rng(generator_from(0, "speed")), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        thetas = prior.sample((2000 + num_pairs,))
        xs = thetas + 0.5 * torch.randn_like(thetas)
        posterior = train_quietly(
            NPE, prior, thetas[num_pairs:], xs[num_pairs:], max_num_epochs=50
        )
        thetas, xs = thetas[:num_pairs], xs[:num_pairs]

        def here() -> None:
            diagnose(
                posterior,
                thetas=thetas,
                xs=xs,
                num_posterior_samples=num_posterior_samples,
                seed=0,
                show_progress_bar=False,
            )

        def theirs() -> None:
            count = num_posterior_samples
            ranks, dap_samples = run_sbc(
                thetas, xs, posterior, count, show_progress_bar=False
            )
            check_sbc(ranks, thetas, dap_samples, count)
            check_tarp(
                *run_tarp(
                    thetas,
                    xs,
                    posterior,
                    num_posterior_samples=count,
                    show_progress_bar=False,
                )
            )

        yield (
            f"NPE, {dim} parameters, {num_pairs} pairs, {num_posterior_samples} draws\n"
            f"{'run':<6}{'diagnose, four methods':>24}{'sbi: SBC and TARP':>20}"
            f"{'ratio':>8}"
        )
        totals = [0.0, 0.0]
        for repetition in range(1, repetitions + 1):
            spent = [_seconds(here), _seconds(theirs)]
            totals = [a + b for a, b in zip(totals, spent, strict=True)]
            yield _row(str(repetition), *spent)
        yield _row("all", *totals)


def _row(name: str, here: float, theirs: float) -> str:
    return f"{name:<6}{here:>22.1f} s{theirs:>18.1f} s{here / theirs:>8.2f}"


def _seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
