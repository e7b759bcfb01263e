"""Draws at pairs that come from a proposal: made into draws of equal weight."""

from __future__ import annotations

from dataclasses import replace

import torch

from sbi_colt.draws import Draws
from sbi_colt.randomness import digest, generator_from, resolve_seed
from sbi_colt.stats.thinning import thin

__all__ = ["thinned"]

_LEFT_OUT = 0.1  # share of the xs, those with the fewest draws, that is left out
_LEAST_DRAWS, _LEAST_PAIRS = 10, 20


def thinned(draws: Draws, seed: int | None = None) -> Draws:
    """Return draws of equal weight: some pairs and some draws are left out.

    It is exact for any weights (`sbi_colt.stats.thinning`). Each x keeps the same
    number of draws; the tenth of the xs with the fewest draws is left out. The data
    side, which has no weights, is kept as it is. Draws without weights are returned as
    they are.

    Args:
        draws: Draws with ``log_weights``.
        seed: Seed of the choice.

    Raises:
        ValueError: Fewer than 10 draws of most xs, or fewer than 20 xs, are left.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> thetas = torch.rand(40, 1, generator=generator)
        >>> samples = torch.rand(50, 40, 1, generator=generator)
        >>> weights = torch.zeros(51, 40)
        >>> weights[:26] = 1.0
        >>> draws = Draws(thetas, torch.zeros(40, 1), samples, log_weights=weights)
        >>> thinned(draws, seed=0).log_weights is None
        True
    """
    if draws.log_weights is None:
        return draws
    generator = generator_from(resolve_seed(seed), "thinning", digest(draws.thetas))
    truths, kept = thin(draws.log_weights, generator)
    counts = kept.sum(dim=0)  # (N,)
    number = 0
    if truths.any():
        number = int(counts[truths].double().quantile(_LEFT_OUT))
    rows = (truths & (counts >= number)).nonzero().flatten()
    if number < _LEAST_DRAWS or len(rows) < _LEAST_PAIRS:
        raise ValueError(
            f"log_weights: of {draws.num_posterior_samples} draws per x only {number} "
            f"are left after weighting, at {len(rows)} of {len(draws)} xs; at least "
            f"{_LEAST_DRAWS} draws at {_LEAST_PAIRS} xs are needed. Take more "
            "posterior draws, more pairs, or a proposal wider than the posterior."
        )
    places = torch.rand(kept.shape, generator=generator) + (~kept).float()
    order = places[:, rows].argsort(dim=0)[:number]  # (S', n), kept ones first
    few = draws.select(rows)
    index = order.unsqueeze(2).expand(-1, -1, draws.dim).to(few.samples.device)
    return replace(
        few,
        samples=few.samples.gather(0, index),
        log_weights=None,
        predictive=draws.predictive,
    )
