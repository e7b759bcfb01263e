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

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from sbi_colt.tilt.families import Family
from sbi_colt.tilt.score_test import Evidence

__all__ = ["Gain", "Tilt", "fit_logit", "fit_tilt", "held_out_gain"]

PENALTIES = (1000.0, 150.0, 20.0, 2.0)  # from strong to weak, each from the last
_NUM_FOLDS = 3
_MAX_STEPS = 12
# Features of one tilt; of more, those with the largest scores are kept.
_MAX_FEATURES = 40
_MAX_FEATURES_WITH_X = 12


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
    chosen = values[torch.arange(num_pairs), truth].sum(dim=0)  # (Q,)
    beta = values.new_zeros(count) if start is None else start

    def loss(beta: Tensor) -> Tensor:
        total = (log_weights + values @ beta).logsumexp(dim=1).sum()
        return total - chosen @ beta + penalty / 2 * beta.square().sum()

    current = loss(beta)
    for _ in range(_MAX_STEPS):
        shares = (log_weights + values @ beta).softmax(dim=1)
        mean = torch.einsum("nm,nmq->nq", shares, values)
        rooted = (shares.sqrt().unsqueeze(2) * values).reshape(-1, count)
        hessian = rooted.T @ rooted - mean.T @ mean
        hessian.diagonal().add_(penalty)
        gradient = chosen - mean.sum(dim=0) - penalty * beta
        step = torch.linalg.solve(hessian, gradient)
        decrease = float(gradient @ step)
        if decrease < 1e-2:  # nats, of all pairs together
            break
        size = 1.0
        while True:
            trial = loss(beta + size * step)
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

    The penalty is the one with the largest gain.

    Args:
        evidence: Features, truths and weights.
        families: The families whose features the tilt has.
        penalties: Penalties, the strongest first.
    """
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
                others @ beta, evidence.truth[rest], log_weights[rest]
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
    return Tilt(values @ beta)


def family_values(
    evidence: Evidence, families: Sequence[Family], train: Tensor
) -> Tensor:
    """Return the features of families, those with the largest scores if too many.

    Args:
        evidence: Features and terms of x.
        families: The families.
        train: The pairs whose scores count, with shape ``(n,)``.

    Returns:
        Features with shape ``(N, M, Q)``, Q at most 32, in double precision.
    """
    features = evidence.features.values
    chosen = features[train, evidence.truth[train]]  # (n, P), less a mean of zero
    sizes, columns, factors = [], [], []
    for family in families:
        terms = evidence.terms_of(family)  # (N, T)
        own = chosen[:, list(family.columns)].T  # (p, n)
        if family.with_x:
            terms = torch.cat([terms, _products(own @ terms[train], terms)], dim=1)
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
    return (features[..., index] * factor.unsqueeze(1)).double()


def _products(scores: Tensor, terms: Tensor) -> Tensor:
    """Return products of the three terms with the largest scores, ``(N, 3)``.

    An error in a corner of x needs them.
    """
    top = scores.abs().amax(dim=0).argsort(descending=True)[:3].tolist()
    pairs = list(combinations(top, 2))
    if not pairs:
        return terms[:, :0]
    values = torch.stack([terms[:, a] * terms[:, b] for a, b in pairs], dim=1)
    values = values - values.mean(dim=0)
    return values / values.square().mean(dim=0).clamp_min(1e-12).sqrt()


def known_weights(evidence: Evidence) -> Tensor:
    """Return logarithms of weights with sum 1 in each bag, with shape ``(N, M)``."""
    shape = evidence.features.values.shape[:2]
    if evidence.log_weights is None:
        return torch.full(shape, -float(torch.tensor(shape[1]).log())).double()
    return evidence.log_weights.double().log_softmax(dim=1)


def _gains(scores: Tensor, truth: Tensor, log_weights: Tensor) -> Tensor:
    chosen = scores[torch.arange(len(scores)), truth]
    return chosen - (log_weights + scores).logsumexp(dim=1)
