"""SBC and TARP on shared draws, through the same exact ranks and tests as CoLT.

Both are fixed probes: SBC ranks each parameter by itself, TARP ranks the distance from
a random reference point. Nothing is trained, so every pair is a test pair.
"""

from __future__ import annotations

import torch

from sbi_colt.draws import Draws
from sbi_colt.randomness import digest, generator_from, resolve_seed
from sbi_colt.ranks import randomized_ranks
from sbi_colt.results import TestResult
from sbi_colt.testing import ks_p_value, ks_statistic

__all__ = ["sbc", "tarp"]


def sbc(draws: Draws, *, seed: int | None = None) -> TestResult:
    """Simulation-based calibration (Talts et al. 2018).

    Null hypothesis: the marginals of q(θ | x) and p(θ | x) agree on average over x, a
    necessary condition of q = p. The p-value is Bonferroni's over the d parameters'
    exact Kolmogorov–Smirnov tests of randomised ranks; sample size N, continuous.

    Args:
        draws: Pairs with posterior draws.
        seed: Seed of the randomised ranks.
    """
    generator = _generator(draws, seed, "sbc")
    columns = [
        randomized_ranks(draws.thetas[:, i], draws.samples[..., i], generator)
        for i in range(draws.dim)
    ]
    ranks = torch.stack(columns, dim=1)  # (N, d)
    statistic = float(ks_statistic(ranks.T).max())
    p_value = min(1.0, draws.dim * ks_p_value(statistic, len(draws)))
    return TestResult("sbc", p_value, statistic, ranks)


def tarp(draws: Draws, *, seed: int | None = None) -> TestResult:
    """Tests of accuracy with random points (Lemos et al. 2023).

    Null hypothesis: balls around random reference points have the same expected
    coverage under q and p. The p-value is that of the exact Kolmogorov–Smirnov test of
    randomised ranks; sample size N, continuous. References are uniform over the box of
    the pooled parameters and draws, parameters scaled to that box.

    Args:
        draws: Pairs with posterior draws.
        seed: Seed of the references and the randomised ranks.
    """
    generator = _generator(draws, seed, "tarp")
    # The box treats θ* and its draws alike: from θ* alone it would not be exact.
    members = torch.cat([draws.thetas.unsqueeze(0), draws.samples])  # (S + 1, N, d)
    low, high = members.amin(dim=(0, 1)), members.amax(dim=(0, 1))
    scaled = (members - low) / (high - low).clamp_min(torch.finfo(low.dtype).tiny)
    references = torch.rand(draws.thetas.shape, generator=generator).to(scaled)
    distances = (scaled - references).norm(dim=-1)  # (S + 1, N)
    ranks = randomized_ranks(distances[0], distances[1:], generator)
    statistic = float(ks_statistic(ranks))
    return TestResult("tarp", ks_p_value(statistic, len(draws)), statistic, ranks)


def _generator(draws: Draws, seed: int | None, name: str) -> torch.Generator:
    key = digest(draws.thetas, draws.xs)
    return generator_from(resolve_seed(seed), name, key)
