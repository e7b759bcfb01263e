"""Where in x: how the error changes with the observation."""

from __future__ import annotations

import math

import torch
from scipy.stats import rankdata
from torch import Tensor

from sbi_colt.randomness import digest, generator_from
from sbi_colt.report.truths import Truths
from sbi_colt.results.finding import Trend
from sbi_colt.stats.redraw import redrawn_p_value

__all__ = [
    "correlate",
    "feature_index",
    "features",
    "find_trend",
]

# Features of x that are looked at; more are thinned out evenly.
_MAX_FEATURES = 50
_NUM_PERMUTATIONS = 999
# Numbers of permuted answers held at once.
_CHUNK = 2**22


def find_trend(truths: Truths, xs: Tensor, seed: int) -> Trend:
    """Return the feature of x on which the error depends most.

    Each truth answers 1 + 2 d questions (`Truths.answers`): does it lie in the central
    half of q, or below the median of a parameter? The answers are correlated with the
    ranks of each feature of x over the pairs, and with the distances of these ranks
    from their middle; ranks, because a few extreme xs would decide a correlation
    with x itself. The largest correlation counts. Its null distribution comes from
    permuting the truths against the xs.

    Args:
        truths: Where the true parameters stand in their bags.
        xs: Observations, with shape ``(N, …)``.
        seed: The report's seed.
    """
    generator = generator_from(seed, "trend", digest(truths.marginal, xs))
    answers, columns = truths.answers(), features(xs)  # (1 + 2 d, N), (N, 2 F)
    observed = correlate(answers, columns).abs()
    question, best = divmod(int(observed.argmax()), observed.shape[1])
    step = max(1, _CHUNK // answers.numel())
    null = []
    for start in range(0, _NUM_PERMUTATIONS, step):
        shape = (min(step, _NUM_PERMUTATIONS - start), len(truths))
        order = torch.rand(shape, generator=generator).argsort(dim=1)
        permuted = answers[:, order].transpose(0, 1)  # (b, 1 + 2 d, N)
        null.append(correlate(permuted, columns).abs().amax(dim=(-1, -2)))
    feature = best % (columns.shape[1] // 2)
    thirds = columns[:, feature].argsort().tensor_split(3)
    return Trend(
        feature_index(xs, feature),
        "central" if question <= truths.dim else "below",
        (question - 1) % truths.dim if question else None,
        redrawn_p_value(float(observed.max()), torch.cat(null), generator),
        tuple(float(answers[question, third].mean()) for third in thirds),
    )


def features(xs: Tensor) -> Tensor:
    """Return ranks of at most 50 columns of xs, then their distances from the middle.

    Ranks are those among the N pairs, between −1/2 and 1/2; equal values share their
    mean rank. With shape ``(N, 2 F)``.
    """
    flat = xs.detach().cpu().double().reshape(len(xs), -1)
    columns = flat[:, :: math.ceil(flat.shape[1] / _MAX_FEATURES)]
    ranks = torch.from_numpy(rankdata(columns.numpy(), axis=0))
    centred = (ranks - (len(xs) + 1) / 2) / len(xs)
    return torch.cat([centred, centred.abs()], dim=1)


def feature_index(xs: Tensor, column: int) -> int:
    """Return the place in the flattened x of one of the F columns of `features`."""
    size = xs[0].numel()
    return column * math.ceil(size / _MAX_FEATURES)


def correlate(values: Tensor, features: Tensor) -> Tensor:
    """Return correlations ``(..., F)`` of values ``(..., N)`` with features ``(N, F)``.

    Constant values or features correlate with nothing.
    """
    values = values.double()
    values = values - values.mean(dim=-1, keepdim=True)
    features = features - features.mean(dim=0)
    values = values / values.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    features = features / features.norm(dim=0).clamp_min(1e-300)
    return values @ features
