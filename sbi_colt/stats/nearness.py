"""Weights of pairs that are near an observation."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["nearness_weights"]


def nearness_weights(features: Tensor, points: Tensor, num_neighbours: int) -> Tensor:
    """Return Epanechnikov weights of the pairs nearest to points in x.

    The weights depend on the xs alone: they leave the exchangeability of each bag, and
    so every p-value, intact. They are zero beyond the nearest ``num_neighbours``.

    Args:
        features: Features of the pairs' xs, with shape ``(N, F)``.
        points: Features of n observations, with shape ``(n, F)``.
        num_neighbours: Pairs with a weight; equally far ones count as one.

    Returns:
        Weights with shape ``(n, N)``.
    """
    features, points = features.double(), points.double()
    # Scaled by the farthest coordinate: squares of huge values would overflow.
    both = torch.cat([features, points])
    centre = both.mean(dim=0)
    size = (both - centre).abs().max().clamp_min(torch.finfo(both.dtype).tiny)
    distances = torch.cdist(
        (points - centre) / size,
        (features - centre) / size,
        compute_mode="donot_use_mm_for_euclid_dist",
    )  # (n, N)
    nearest = min(num_neighbours, len(features))
    reach = distances.kthvalue(nearest, dim=1, keepdim=True).values * (1 + 1e-6)
    near = 1 - (distances / reach.clamp_min(1e-300)).clamp_max(1).square()
    return torch.where(reach > 0, near, (distances == 0).double())
