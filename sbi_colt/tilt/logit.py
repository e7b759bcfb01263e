r"""The tilt: a conditional logit that makes the truth stand out in its bag.

The score s(θ, x) = β · φ maximises

.. math:: \sum_i \Bigl[ s(θ^*_i) - \log \sum_m w_{im} e^{s(θ_{im})} \Bigr]
          - \frac λ2 |β|^2,

which is concave and is solved by Newton's method (McFadden 1974). The *gain* is the
mean of s(θ*) − log Σ w exp s over pairs that did not fit s, in nats, with Σ w = 1: how
much better true parameters would be predicted if the error were corrected. Its
expectation is at most the Kullback-Leibler divergence KL(p ‖ q), and at most
log(K + 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor

from sbi_colt.tilt.families import SUPPORT, Family
from sbi_colt.tilt.score_test import Evidence

__all__ = ["Gain", "Tilt", "fit_logit", "fit_tilt", "held_out_gain"]

PENALTIES = (1000.0, 150.0, 20.0, 2.0)  # from strong to weak, each from the last
_NUM_FOLDS = 3
_MAX_STEPS = 12
# Features of one tilt; of more, those with the largest scores are kept.
_MAX_FEATURES = 40
_MAX_FEATURES_WITH_X = 12
# See `_corner`.
_NUM_CORNER_TERMS, _CORNER_EDGES, _LEAST_IN_CORNER = 4, (1 / 3, 1 / 2, 2 / 3), 10


@dataclass(frozen=True, eq=False)
class Gain:
    """A gain in nats on pairs that did not fit the tilt, with its standard error."""

    mean: float
    error: float
    penalty: float
    each: Tensor  # (N,), the gain of each pair

    @classmethod
    def of(cls, each: Tensor, penalty: float) -> Gain:
        """Return the mean gain of pairs, ``(N,)``."""
        error = float(each.std()) / len(each) ** 0.5
        return cls(float(each.mean()), error, penalty, each)


@dataclass(frozen=True, eq=False)
class Tilt:
    """A fitted tilt: scores ŝ of all members, with shape ``(N, M)``."""

    scores: Tensor


def fit_logit(
    values: Tensor,
    truth: Tensor,
    log_weights: Tensor,
    penalty: float,
    start: Tensor | None = None,
) -> Tensor:
    """Return the coefficients β of a conditional logit, with shape ``(Q,)``.

    Args:
        values: Features of the members, with shape ``(N, M, Q)``.
        truth: Which member is the truth, with shape ``(N,)``.
        log_weights: Logarithms of the members' weights, with shape ``(N, M)``.
        penalty: The ridge penalty λ.
        start: Where Newton's method starts.
    """
    num_pairs, _, count = values.shape
    chosen = values[torch.arange(num_pairs), truth].double().sum(dim=0)  # (Q,)
    beta = chosen.new_zeros(count) if start is None else start

    def at(beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, the logits, and the logarithms of their sums."""
        logits = log_weights + _scores_of(values, beta)
        sums = logits.logsumexp(dim=1, keepdim=True)
        ridge = penalty / 2 * beta.square().sum()
        return sums.sum() - chosen @ beta + ridge, logits, sums

    current, logits, sums = at(beta)
    for _ in range(_MAX_STEPS):
        shares = (logits - sums).exp().to(values)
        mean = torch.einsum("nm,nmq->nq", shares, values)
        rooted = (shares.sqrt().unsqueeze(2) * values).reshape(-1, count)
        hessian = (rooted.T @ rooted - mean.T @ mean).double()
        hessian.diagonal().add_(penalty)
        gradient = chosen - mean.double().sum(dim=0) - penalty * beta
        step = torch.linalg.solve(hessian, gradient)
        decrease = float(gradient @ step)
        if decrease < 1e-2:  # nats, of all pairs together
            break
        size = 1.0
        while True:
            trial, logits, sums = at(beta + size * step)
            if trial <= current - 0.1 * size * decrease or size < 1e-3:
                break
            size /= 2
        beta, current = beta + size * step, trial
    return beta


def held_out_gain(
    evidence: Evidence,
    families: Sequence[Family],
    penalties: Sequence[float] = PENALTIES,
) -> Gain:
    """Return the gain by cross-fitting: each pair's from a fit to other pairs.

    The penalty is the one with the largest gain. For wrong widths of several
    parameters, the better of two tilts counts, one with t_j² and one with t_j (R⁻¹t)_j.
    The first changes the correlations with the widths, and the second does not as long
    as the widths are nearly right.

    Args:
        evidence: Features, truths and weights.
        families: The families whose features the tilt has.
        penalties: Penalties, the strongest first.
    """
    key = (*families, *penalties)
    if key not in evidence.gains:
        scaled = _with_scaling(evidence.features.families, families)
        tilts = [families] if scaled == [*families] else [families, scaled]
        gains = [_cross_fitted(evidence, tilt, penalties) for tilt in tilts]
        evidence.gains[key] = max(gains, key=lambda gain: gain.mean)
    return evidence.gains[key]


def _with_scaling(
    known: Mapping[str, Family], families: Sequence[Family]
) -> list[Family]:
    """Return families with t_j (R⁻¹t)_j in the place of t_j², where there are any."""
    changed = []
    for family in families:
        other = known.get(family.name.replace("width", SUPPORT))
        if family.base == "width" and other is not None:
            place = known[family.name].columns.index
            columns = tuple(other.columns[place(c)] for c in family.columns)
            family = replace(other, columns=columns)
        changed.append(family)
    return changed


def _cross_fitted(
    evidence: Evidence, families: Sequence[Family], penalties: Sequence[float]
) -> Gain:
    """Return the gain of one tilt, for the best of the penalties."""
    num_pairs = evidence.features.num_pairs
    log_weights = known_weights(evidence)
    gains = torch.zeros(len(penalties), num_pairs, dtype=torch.float64)
    fold = torch.arange(num_pairs) % _NUM_FOLDS
    for number in range(_NUM_FOLDS):
        train, rest = (fold != number).nonzero()[:, 0], (fold == number).nonzero()[:, 0]
        values = family_values(evidence, families, train)
        own, others = values[train], values[rest]
        beta = None
        for index, penalty in enumerate(penalties):
            beta = fit_logit(
                own, evidence.truth[train], log_weights[train], penalty, beta
            )
            gains[index, rest] = _gains(
                _scores_of(others, beta), evidence.truth[rest], log_weights[rest]
            )
    best = int(gains.mean(dim=1).argmax())
    return Gain.of(gains[best], penalties[best])


def fit_tilt(evidence: Evidence, families: Sequence[Family], penalty: float) -> Tilt:
    """Return the tilt of families, fitted to all pairs.

    Args:
        evidence: Features, truths and weights.
        families: The families whose features it has.
        penalty: The ridge penalty that is best for prediction.
    """
    everything = torch.arange(evidence.features.num_pairs)
    values = family_values(evidence, families, everything)
    log_weights = known_weights(evidence)
    # Weaker than is best for prediction: what the penalty leaves looks like an error.
    beta = fit_logit(values, evidence.truth, log_weights, penalty / 10)
    return Tilt(_scores_of(values, beta))


def _scores_of(values: Tensor, beta: Tensor) -> Tensor:
    """Return β · φ of the members, with shape ``(N, M)``, in double precision."""
    return (values @ beta.to(values)).double()


def family_values(
    evidence: Evidence, families: Sequence[Family], train: Tensor
) -> Tensor:
    """Return the features of families, those with the largest scores if too many.

    Args:
        evidence: Features and terms of x.
        families: The families.
        train: The pairs whose scores count, with shape ``(n,)``.

    Returns:
        Features with shape ``(N, M, Q)``, Q at most 40, in single precision.
    """
    features = evidence.features.values
    chosen = features[train, evidence.truth[train]]  # (n, P), less a mean of zero
    sizes, columns, factors = [], [], []
    for family in families:
        terms = evidence.terms_of(family)  # (N, T)
        own = chosen[:, list(family.columns)].T  # (p, n)
        if family.with_x:
            single = terms[:, : evidence.num_single]
            terms = torch.cat([terms, _corner(own, single, train)], dim=1)
        sizes.append((own @ terms[train]).abs().flatten())
        count = terms.shape[1]
        columns += [column for column in family.columns for _ in range(count)]
        factors.append(terms.repeat(1, len(family.columns)))
    size = torch.cat(sizes)
    with_x = torch.tensor(
        [f.with_x for f, own in zip(families, sizes, strict=True) for _ in own]
    )
    order = size.argsort(descending=True)
    few = order[with_x[order]][:_MAX_FEATURES_WITH_X]
    kept = torch.cat([order[~with_x[order]][: _MAX_FEATURES - len(few)], few])
    index = torch.tensor(columns)[kept]
    factor = torch.cat(factors, dim=1)[:, kept]  # (N, Q)
    return features[..., index] * factor.unsqueeze(1).float()


def _corner(own: Tensor, terms: Tensor, train: Tensor) -> Tensor:
    """Return whether x is in the part of x where a family is most wrong, ``(N, 1)``.

    A part is where one or two terms are above or below a quantile. Of the terms, those
    with the largest scores come into question. It is chosen by the training pairs, so
    that the gain on the other pairs does not know of the choice.

    Args:
        own: The family's features of the truths of the training pairs, ``(p, n)``.
        terms: Terms of one feature of x each, with shape ``(N, T)``.
        train: The training pairs, with shape ``(n,)``.
    """
    scores = (own @ terms[train]).abs().amax(dim=0)
    top = terms[:, scores.argsort(descending=True)[:_NUM_CORNER_TERMS]]
    edges = top.quantile(torch.tensor(_CORNER_EDGES), dim=0)  # (edges, t)
    above = (top.unsqueeze(2) > edges.T).float()  # (N, t, edges)
    sides = torch.cat([above, 1 - above], dim=2)  # (N, t, sides)
    both = [
        (sides[:, a].unsqueeze(2) * sides[:, b].unsqueeze(1)).flatten(1)
        for a, b in combinations(range(top.shape[1]), 2)
    ]
    parts = torch.cat([sides.flatten(1), *both], dim=1)  # (N, parts)
    inside = parts[train].sum(dim=0)
    scores = (own @ parts[train]).abs().amax(dim=0) / inside.clamp_min(1).sqrt()
    scores = torch.where(inside < _LEAST_IN_CORNER, 0, scores)
    best = parts[:, int(scores.argmax())].unsqueeze(1)
    best = best - best.mean()
    return best / best.square().mean().clamp_min(1e-12).sqrt()


def known_weights(evidence: Evidence) -> Tensor:
    """Return logarithms of weights with sum 1 in each bag, with shape ``(N, M)``."""
    shape = evidence.features.values.shape[:2]
    if evidence.log_weights is None:
        return torch.full(shape, -float(torch.tensor(shape[1]).log())).double()
    return evidence.log_weights.double().log_softmax(dim=1)


def _gains(scores: Tensor, truth: Tensor, log_weights: Tensor) -> Tensor:
    chosen = scores[torch.arange(len(scores)), truth]
    return chosen - (log_weights + scores).logsumexp(dim=1)
