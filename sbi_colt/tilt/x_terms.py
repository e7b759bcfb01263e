"""Terms of x that an error may depend on: ranks of features, their ends, products."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.stats import rankdata
from torch import Tensor

__all__ = ["XTerms", "make_x_terms"]

# Features of x; longer xs are reduced to principal components of their ranks.
_MAX_FEATURES = 12


@dataclass(frozen=True, eq=False)
class XTerms:
    """Terms of x and where they come from.

    Args:
        values: Terms with shape ``(N, T)``, with mean 0 and variance 1 over the pairs:
            for each feature its rank, then how far its rank is from the middle, then
            the products of two features' ranks.
        places: The columns of the features of x that each term is nearest to.
        num_single: How many terms, the first ones, are about one feature.
    """

    values: Tensor
    places: tuple[tuple[int, ...], ...]
    num_single: int


def make_x_terms(features: Tensor) -> XTerms:
    """Return terms of features of x.

    Ranks, because a few extreme xs would decide a regression on x itself. With the
    ranks go their distances from the middle, for errors at both ends of x, and their
    products, for errors in a corner of x or with a sign that two features decide.

    Args:
        features: Features of x with shape ``(N, F)``.
    """
    ranks = torch.from_numpy(rankdata(features.double().numpy(), axis=0))
    ranks = _standardised(ranks)
    varying = ranks.square().sum(dim=0) > 0
    columns = torch.arange(ranks.shape[1])[varying]
    ranks = ranks[:, varying]
    if ranks.shape[1] > _MAX_FEATURES:
        ranks, columns = _components(ranks, columns)
    ends = _standardised(ranks.abs())
    kept = ends.square().sum(dim=0) > 0  # two values have no middle
    pairs = torch.combinations(torch.arange(len(columns)))  # (pairs, 2)
    products = _standardised(ranks[:, pairs[:, 0]] * ranks[:, pairs[:, 1]])
    values = torch.cat([ranks, ends[:, kept], products], dim=1)
    places = [(place,) for place in (*columns.tolist(), *columns[kept].tolist())]
    both = [tuple(pair) for pair in columns[pairs].tolist()]
    return XTerms(values, (*places, *both), len(places))


def _components(ranks: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Return the leading principal components, and the column nearest to each."""
    left, _, _ = torch.linalg.svd(ranks, full_matrices=False)
    scores = _standardised(left[:, :_MAX_FEATURES])
    nearest = (scores.T @ ranks).abs().argmax(dim=1)
    return scores, columns[nearest]


def _standardised(values: Tensor) -> Tensor:
    values = values - values.mean(dim=0)
    scale = values.square().mean(dim=0).sqrt()
    return torch.where(scale > 1e-9, values / scale.clamp_min(1e-9), 0.0)
