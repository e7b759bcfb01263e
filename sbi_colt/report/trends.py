"""Where in x: how the error changes with the observation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sbi_colt.draws import Draws
from sbi_colt.probes.coordinates import Scales, make_frame
from sbi_colt.randomness import digest, generator_from
from sbi_colt.stats.ranks import bag_ranks
from sbi_colt.stats.redraw import redrawn_p_value, take_members

__all__ = [
    "TREND_KINDS",
    "Trend",
    "correlate",
    "feature_index",
    "features",
    "find_trend",
    "folded",
]

TREND_KINDS = ("central", "below")

# Features of x that are looked at; more are thinned out evenly.
_MAX_FEATURES = 50
_NUM_REDRAWS = 999
# Numbers of re-drawn answers held at once.
_CHUNK = 2**22


@dataclass(frozen=True)
class Trend:
    """How the error changes with x.

    Args:
        feature: Index of the feature of x (flattened) that goes with it most.
        kind: ``"central"`` (whether truths lie in the central half of q) or ``"below"``
            (whether they lie below its median).
        parameter: The parameter that it is about; `None` for all of them together.
        p_value: Exact p-value of the largest correlation, by re-drawing the bags.
            Null: q(θ | x) = p(θ | x); resolution 1/1000.
        shares: Share of such truths where the feature is low, middling and high (thirds
            of the pairs); 1/2 where q is right.
    """

    feature: int
    kind: str
    parameter: int | None
    p_value: float
    shares: tuple[float, ...]

    def __post_init__(self):
        object.__setattr__(self, "shares", tuple(self.shares))  # a list from JSON


def find_trend(draws: Draws, seed: int) -> Trend:
    """Return the feature of x on which the error depends most.

    For each pair it is asked whether the truth lies in the central half of its bag, by
    Mahalanobis distance and for each parameter, and whether it lies below the median of
    each parameter. The answers are correlated with each feature of x and with the
    feature's distance from its median; the largest correlation counts, and the same is
    done when another member of each bag plays the truth.
    """
    generator = generator_from(seed, "trend", digest(draws.thetas, draws.xs))
    members, truth = draws.bags(generator)
    scales = Scales.of(draws.thetas, draws.xs, draws.samples)
    distances = make_frame(members, "bag", scales).to_points(members).norm(dim=-1)
    below = torch.stack([bag_ranks(column, generator) for column in members.unbind(-1)])
    answers = torch.cat(
        [
            (bag_ranks(distances, generator) <= 0.5).unsqueeze(0),
            (below - 0.5).abs() <= 0.25,
            below <= 0.5,
        ]
    ).float()  # (1 + 2 d, N, K + 1)
    columns = features(draws.xs)
    both = folded(columns)

    def correlations(chosen: Tensor) -> Tensor:
        return correlate(take_members(answers, chosen), both)  # (..., 1 + 2 d, F)

    observed = correlations(truth)
    question, best = divmod(int(observed.abs().argmax()), observed.shape[1])
    shape = (_NUM_REDRAWS, len(draws))
    chosen = torch.randint(members.shape[1], shape, generator=generator)
    step = max(1, _CHUNK // (len(answers) * len(draws)))
    null = torch.cat(
        [
            correlations(part.to(truth.device)).abs().amax(dim=(-1, -2))
            for part in chosen.split(step)
        ]
    )
    feature = best % columns.shape[1]
    own = take_members(answers, truth)[question]
    thirds = columns[:, feature].argsort().tensor_split(3)
    return Trend(
        feature_index(draws.xs, feature),
        "central" if question <= draws.dim else "below",
        (question - 1) % draws.dim if question else None,
        redrawn_p_value(float(observed.abs().max()), null, generator),
        tuple(float(own[third].mean()) for third in thirds),
    )


def features(xs: Tensor) -> Tensor:
    """Return at most 50 columns of the flattened xs, ``(N, F)``."""
    flat = xs.double().reshape(len(xs), -1)
    return flat[:, :: math.ceil(flat.shape[1] / _MAX_FEATURES)]


def folded(columns: Tensor) -> Tensor:
    """Return columns ``(N, F)`` and their distances from their medians."""
    return torch.cat([columns, (columns - columns.median(dim=0).values).abs()], dim=1)


def feature_index(xs: Tensor, column: int) -> int:
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
