r"""Weights of features that make the truth stand out, in closed form.

For features φ about the mean of each bag and the score w·φ, the mean log likelihood of
the truths among the members of their bags is, to second order in w,

.. math:: w \cdot t - w \cdot C w / 2 ,

where t is the mean of the truths' features and C the second moment of all members'.
So w = (C + λ D)⁻¹ t, with penalties D. λ is chosen by leaving out one pair at a time.
There are few weights, so that thirty training pairs are enough.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["solve_weights"]

_PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


def solve_weights(truths: Tensor, moments: Tensor, ridge: Tensor) -> Tensor:
    """Return the weights with the penalty that pairs left out prefer.

    Args:
        truths: Features of the truths, with shape ``(N, F)``.
        moments: Second moments of all members' features, with shape ``(F, F)``.
        ridge: Penalties of the features, with shape ``(F,)``.
    """
    num_pairs = len(truths)
    total, best, weights = truths.sum(dim=0), -torch.inf, torch.zeros_like(ridge)
    for penalty in _PENALTIES:
        inverse = torch.linalg.inv(moments + penalty * torch.diag(ridge))
        others = (total - truths) / max(num_pairs - 1, 1) @ inverse  # (N, F)
        gains = (others * truths).sum(dim=1)
        gains -= ((others @ moments) * others).sum(dim=1) / 2
        if (gain := float(gains.mean())) > best:
            best, weights = gain, inverse @ total / num_pairs
    return weights
