"""False alarms and misses of sbi's `check_sbc` and `check_tarp`, and of ours.

sbi compares discrete SBC ranks with a continuous uniform distribution, which rejects
correct posteriors at small K; its TARP check is a two-sample test of two grids, one
point per bin, which hardly ever rejects at all. Both see the very draws that the tests
here see. sbi gives a p-value per parameter for SBC; the smallest is taken, times d.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from sbi.diagnostics.sbc import check_uniformity_frequentist
from sbi.diagnostics.tarp import _run_tarp, check_tarp, get_tarp_references
from tqdm.auto import tqdm

from sbi_colt.baselines import sbc, tarp
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from, isolated_rng

__all__ = ["compare_rates"]

_LEVEL = 0.05
_CASES = (("correct", 0.0), ("too wide", 0.4))


def compare_rates(
    num_pairs: int = 1000,
    num_draws: Sequence[int] = (10, 30, 100, 1000),
    repetitions: int = 200,
    show_progress_bar: bool = True,
) -> Iterator[str]:
    """Yield the lines of a table of rejection rates at the 5% level.

    The posterior is the Gaussian family's in dimension 3, once correct and once with
    its covariance times 1.4.

    Args:
        num_pairs: Pairs, N.
        num_draws: Draws per pair, K; a line for each.
        repetitions: Repetitions behind each rate.
        show_progress_bar: Whether to show progress.
    """
    yield f"Share rejected at level {_LEVEL}; N = {num_pairs}, {repetitions} times"
    yield (
        f"{'posterior':<12}{'K':>6}{'sbi check_sbc':>16}{'sbc':>8}"
        f"{'sbi check_tarp':>17}{'tarp':>8}"
    )
    for case, alpha in _CASES:
        task = GaussianTask("covariance", alpha)
        for count in num_draws:
            progress = partial(
                tqdm, desc=f"{case}, K = {count}", disable=not show_progress_bar
            )
            rates = torch.zeros(4)
            for repetition in progress(range(repetitions), leave=False):
                generator = generator_from(repetition, "rates", count)
                draws = task.draws(num_pairs, count, generator)
                p_values = (
                    _sbi_sbc(draws),
                    sbc(draws, seed=repetition, num_redraws=199).p_value,
                    _sbi_tarp(draws, generator),
                    tarp(draws, seed=repetition).p_value,
                )
                rates += (torch.tensor(p_values) <= _LEVEL) / repetitions
            theirs_sbc, ours_sbc, theirs_tarp, ours_tarp = rates.tolist()
            yield (
                f"{case:<12}{count:>6}{theirs_sbc:>16.3f}{ours_sbc:>8.3f}"
                f"{theirs_tarp:>17.3f}{ours_tarp:>8.3f}"
            )


def _sbi_sbc(draws: Draws) -> float:
    ranks = (draws.samples < draws.thetas).sum(dim=0).float()  # (N, d)
    p_values = check_uniformity_frequentist(ranks, draws.num_posterior_samples)
    return min(1.0, draws.dim * float(p_values.min()))


def _sbi_tarp(draws: Draws, generator: torch.Generator) -> float:
    with isolated_rng(generator):
        references = get_tarp_references(draws.thetas)
    return check_tarp(
        *_run_tarp(draws.samples, draws.thetas, references, z_score_theta=True)
    )[1]
