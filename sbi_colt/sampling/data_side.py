"""The data side of draws: which θ' are replicated, and whether they are enough."""

from __future__ import annotations

import warnings
from typing import Any, cast

import torch
from torch import Tensor

from sbi_colt.arrays import clean_pairs
from sbi_colt.draws import Draws
from sbi_colt.sampling.at_xs import check_dimension, sample_posterior
from sbi_colt.sampling.pairs import PairSource
from sbi_colt.sampling.replicates import (
    FEWEST,
    ReplicateOptions,
    TooFewBags,
    choose_pairs,
    draws_of_posterior,
    replicate,
)
from sbi_colt.sampling.simulator import Simulator

__all__ = ["add_data_side", "draw_for_data_side"]


def _check_drawn(num_drawn: int, total: int, failed_share: float | None = None) -> None:
    """Raise if too few bags of the data side would test the posterior.

    The test is exact with any number, but fewer say nothing.
    """
    if num_drawn < FEWEST:
        raise TooFewBags(
            f"posterior: only {num_drawn} of {total} bags on the data side have a draw "
            f"of the posterior and its replicates; at least {FEWEST} are needed. Use "
            "more pairs (num_simulations, num_replicated_pairs), more posterior draws "
            "per x, or more time.",
            failed_share,
        )


def _replicated(
    simulator: Simulator,
    xs: Tensor,
    thetas: Tensor,
    how: ReplicateOptions,
    drawn: Tensor,
) -> Draws:
    """Return the data side, if enough of its bags test the posterior."""
    total = len(drawn)
    _check_drawn(int(drawn.sum()), total)  # before the simulations
    data = replicate(simulator, xs, thetas, how, drawn)
    _check_drawn(data.num_drawn, total, float((~data.mask).double().mean()))
    return data


def add_data_side(draws: Draws, source: PairSource, how: ReplicateOptions) -> Draws:
    """Return draws with a data side: replicates at members of their bags.

    Args:
        draws: The parameter side.
        source: All pairs that were handed in or simulated, and the simulator.
        how: How many replicates, and how.

    Raises:
        TooFewBags: Too few bags would test the posterior.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # xs with a NaN were reported before
        thetas, xs, mask = clean_pairs(source.thetas, source.xs)
    chosen = choose_pairs(len(thetas), how)
    places = mask.cpu().nonzero().flatten()[chosen]  # among the pairs handed in
    here = chosen.to(thetas.device)
    primes, drawn = draws_of_posterior(draws, places, thetas[here], how.seed)
    primes = primes.to(thetas.dtype)  # the simulator gets θ' in the precision of θ*
    xs = xs[here].to(primes.device)
    return draws.with_predictive(_replicated(source.simulator, xs, primes, how, drawn))


def draw_for_data_side(
    posterior: Any,
    source: PairSource,
    how: ReplicateOptions,
    device: torch.device,
    **options: Any,
) -> Draws:
    """Return draws without a parameter side: one θ' at each x that gets replicates.

    An x at which the posterior cannot be sampled keeps its true parameter as θ'.
    """
    pairs = Draws(source.thetas, source.xs, cast(Tensor, None)).to(device)
    chosen = choose_pairs(len(pairs), how).to(device)
    _check_drawn(len(chosen), len(chosen))
    result = sample_posterior(
        posterior,
        pairs.xs[chosen],
        1,
        seed=how.seed,
        num_workers=how.num_workers,
        show_progress_bar=how.show_progress_bar,
        device=device,
        **options,
    )
    check_dimension(result.samples, pairs.dim)
    complete = result.mask.to(device).unsqueeze(1)
    of_posterior = torch.where(
        complete, result.samples[0].to(pairs.thetas), pairs.thetas[chosen]
    )
    bags = (pairs.xs[chosen], of_posterior, how, result.mask)
    return pairs.with_predictive(_replicated(source.simulator, *bags))
