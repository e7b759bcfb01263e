"""Measure false alarms and misses of sbi's check_sbc and check_tarp, and of ours.

All checks see the same draws (five minutes). sbi compares discrete SBC ranks with a
continuous uniform distribution, which rejects correct posteriors at small K. Its TARP
check is a two-sample test of two grids with one point per bin, which hardly ever
rejects. sbi gives one p-value per parameter for SBC; the table uses the smallest,
times d.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from statistics import fmean

import torch
from sbi.diagnostics.sbc import check_uniformity_frequentist
from sbi.diagnostics.tarp import _run_tarp, check_tarp, get_tarp_references
from tqdm.auto import trange

from sbi_colt.baselines import sbc, tarp
from sbi_colt.benchmark.studies.shared import QUIET
from sbi_colt.benchmark.tables import aligned
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from, isolated_rng

OPTIONS = QUIET
_LEVEL = 0.05
_NUM_PAIRS = 1000


def run(
    options: argparse.Namespace,
    num_draws: Sequence[int] = (10, 30, 100, 1000),
    repetitions: int = 200,
) -> Iterator[str]:
    """Yield rejection rates of the Gaussian family in 3 dimensions, by K."""
    yield f"Share rejected at level {_LEVEL}; N = {_NUM_PAIRS}, {repetitions} times"
    widths = (12, 6, 16, 8, 17, 8)
    heads = ("posterior", "K", "sbi check_sbc", "sbc", "sbi check_tarp", "tarp")
    yield aligned(heads, *widths)
    for case, alpha in (("correct", 0.0), ("too wide", 0.4)):
        task = GaussianTask("covariance", alpha)
        for count in num_draws:
            title = f"{case}, K = {count}"
            seeds = trange(repetitions, desc=title, leave=False, disable=options.quiet)
            rejected = [_rejected(task, count, seed) for seed in seeds]
            rates = (f"{fmean(own):.3f}" for own in zip(*rejected, strict=True))
            yield aligned((case, count, *rates), *widths)


def _rejected(task: GaussianTask, num_draws: int, seed: int) -> tuple[bool, ...]:
    """Return whether sbi's SBC, our SBC, sbi's TARP and our TARP reject."""
    generator = generator_from(seed, "rates", num_draws)
    draws = task.draws(_NUM_PAIRS, num_draws, generator)
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
    curve = _run_tarp(draws.samples, draws.thetas, references, z_score_theta=True)
    return check_tarp(*curve)[1]
