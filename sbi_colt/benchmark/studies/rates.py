"""``rates``: false alarms and misses of sbi's SBC and TARP checks, and of ours.

sbi compares discrete SBC ranks with a continuous uniform distribution, which rejects
correct posteriors at small K. Its TARP check is a two-sample test of two grids with one
point per bin, which hardly ever rejects. All checks see the same draws. sbi gives one
p-value per parameter for SBC; the table uses the smallest, times d.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import torch
from sbi.diagnostics.sbc import check_uniformity_frequentist
from sbi.diagnostics.tarp import _run_tarp, check_tarp, get_tarp_references
from tqdm.auto import tqdm

from sbi_colt.baselines import sbc, tarp
from sbi_colt.benchmark.studies.options import add_quiet, show
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from, isolated_rng

__all__ = ["add_options", "compare_rates", "run"]

DESCRIPTION = (
    "Measure how often sbi's check_sbc and check_tarp, and the same diagnostics here, "
    "reject a correct posterior and one that is too wide, on the same draws (five "
    "minutes)."
)
_LEVEL = 0.05
_CASES = (("correct", 0.0), ("too wide", 0.4))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_quiet(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    return show(compare_rates(show_progress_bar=not options.quiet))


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
            progress = tqdm(
                range(repetitions),
                desc=f"{case}, K = {count}",
                leave=False,
                disable=not show_progress_bar,
            )
            rejected = [_rejected(task, num_pairs, count, i) for i in progress]
            sbi_sbc, our_sbc, sbi_tarp, our_tarp = (
                sum(column) / repetitions for column in zip(*rejected, strict=True)
            )
            yield (
                f"{case:<12}{count:>6}{sbi_sbc:>16.3f}{our_sbc:>8.3f}"
                f"{sbi_tarp:>17.3f}{our_tarp:>8.3f}"
            )


def _rejected(
    task: GaussianTask, num_pairs: int, num_draws: int, seed: int
) -> tuple[bool, ...]:
    """Return whether sbi's SBC, our SBC, sbi's TARP and our TARP reject."""
    generator = generator_from(seed, "rates", num_draws)
    draws = task.draws(num_pairs, num_draws, generator)
    p_values = (
        _sbi_sbc(draws),
        sbc(draws, seed=seed, num_redraws=199).p_value,
        _sbi_tarp(draws, generator),
        tarp(draws, seed=seed).p_value,
    )
    return tuple(p_value <= _LEVEL for p_value in p_values)


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
