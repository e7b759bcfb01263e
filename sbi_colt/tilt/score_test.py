r"""Is a family of features wrong? The score test with re-drawn truths.

For the features φ of a family and weights ω of the members, the score and its variance
under the null hypothesis are

.. math:: S = \sum_i \Bigl[φ(θ^*_i) - \sum_m ω_{im} φ(θ_{im})\Bigr], \qquad
          I = \sum_i \mathrm{Cov}_{ω_i}(φ).

Null hypothesis: in each bag, member m is the truth with probability ω_m. With ω = w
(all alike where there are no weights) this is q = p, and the test is exact. With
ω ∝ w exp ŝ it is "nothing but ŝ is wrong", and holds for many pairs, as ŝ is fitted:
the score is then the efficient one, less what the fitted features explain of it.

A family has two statistics, S'(I + λ)⁻¹S for errors in many features and the largest
S²/I for errors in one; the smaller of their two p-values counts. Both, and the smallest
over families (Westfall and Young 1993), are compared with those of the re-drawn truths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sbi_colt.stats.redraw import redraw_statistics
from sbi_colt.tilt.bags import normalised
from sbi_colt.tilt.families import Family, Features

__all__ = ["Evidence", "adjusted_p_values", "family_p_values", "feature_z_scores"]

_RIDGE = 0.1  # λ, in units of the features' information
# With more features the statistic is the sum of S²/I, as for large λ.
_MANY_FEATURES = 120


@dataclass(frozen=True, eq=False)
class Evidence:
    """Features, terms of x, and which member is the truth.

    Args:
        features: Features of all members.
        terms: Terms of x with shape ``(N, T)``, standardised.
        truth: Which member is the truth, with shape ``(N,)``.
        log_weights: Logarithms of weights, with shape ``(N, M)``, or `None`.
    """

    features: Features
    terms: Tensor
    truth: Tensor
    log_weights: Tensor | None = None

    def tilted(self, scores: Tensor) -> Evidence:
        """Return the same with weights w exp ŝ, for ŝ with shape ``(N, M)``."""
        known = 0.0 if self.log_weights is None else self.log_weights
        return Evidence(self.features, self.terms, self.truth, known + scores)

    def at(self, index: Tensor) -> Evidence:
        """Return the same for some of the pairs."""
        known = None if self.log_weights is None else self.log_weights[index]
        return Evidence(
            self.features.at(index), self.terms[index], self.truth[index], known
        )

    def terms_of(self, family: Family) -> Tensor:
        """Return what the family's features are multiplied by, ``(N, T)`` or ones."""
        if family.with_x:
            return self.terms.float()
        return torch.ones(len(self.terms), 1)


def family_p_values(
    evidence: Evidence,
    families: Sequence[Family],
    num_redraws: int,
    generator: torch.Generator,
    given: Sequence[Family] = (),
) -> tuple[Tensor, Tensor]:
    """Return p-values of families, observed and re-drawn, ``(families, 1 + B)``.

    The first column is observed. Each p-value is the share of all 1 + B statistics that
    are at least as large. The second tensor, ``(families,)``, has the
    observed statistics in standard deviations of the re-drawn ones.

    Args:
        evidence: What is tested, with the weights of the null hypothesis.
        families: The families.
        num_redraws: How many times the truths are re-drawn, B.
        generator: CPU generator.
        given: Families of which the weights' exponent was fitted.
    """
    evidence, families, given = _only_needed(evidence, families, given)
    weights = normalised(evidence.log_weights, evidence.features.values.shape[:2])
    scores = _scores(evidence, weights, num_redraws, generator)
    centred = _recentred(evidence.features.values, weights.float())
    spread = _Spread(centred, weights.float(), evidence)
    known = torch.cat([_of(scores, family) for family in given], 1) if given else None
    inverse = _inverse(spread.inner(given)) if given else None
    p_values, excess = [], []
    for family in families:
        own = _of(scores, family)
        variance = spread.variance(family)
        if known is not None and inverse is not None:
            cross = spread.cross(family, given)  # (p, k)
            slope = cross @ inverse
            own = own - known @ slope.T
            explained = (cross * slope).sum(dim=1)
            variance = torch.maximum(variance - explained, 0.05 * variance)
        scale = variance.clamp_min(1e-6 * len(weights)).rsqrt()
        own = own * scale
        if own.shape[1] <= _MANY_FEATURES and known is None:
            inner = spread.inner([family]) * scale * scale.unsqueeze(1)
            inner.diagonal().add_(_RIDGE)
            joint = (own * torch.linalg.solve(inner, own.T).T).sum(dim=1)
        else:
            joint = own.square().sum(dim=1)
        largest = own.square().amax(dim=1)
        both = torch.stack([_upper(joint), _upper(largest)]).amin(dim=0)
        p_values.append(_upper(-both))
        excess.append(torch.stack([_excess(joint), _excess(largest)]).amax())
    return torch.stack(p_values), torch.stack(excess)


def _only_needed(
    evidence: Evidence, families: Sequence[Family], given: Sequence[Family]
) -> tuple[Evidence, list[Family], list[Family]]:
    """Return the same with the features and terms of these families alone."""
    columns = sorted({c for family in (*families, *given) for c in family.columns})
    place = {column: index for index, column in enumerate(columns)}
    features = evidence.features
    if len(columns) < len(features):
        features = replace(features, values=features.values[..., columns].contiguous())

    def moved(family: Family) -> Family:
        return replace(family, columns=tuple(place[c] for c in family.columns))

    has_x = any(family.with_x for family in (*families, *given))
    terms = evidence.terms if has_x else evidence.terms[:, :0]
    needed = replace(evidence, features=features, terms=terms)
    return needed, [moved(f) for f in families], [moved(f) for f in given]


def _inverse(inner: Tensor) -> Tensor:
    """Return the inverse of a covariance, with a little ridge."""
    ridge = 1e-3 * inner.diagonal() + 1e-6 * inner.diagonal().max().clamp_min(1e-12)
    return torch.linalg.inv((inner + ridge.diag()).double()).to(inner.dtype)


def feature_z_scores(evidence: Evidence, family: Family) -> Tensor:
    """Return S / √I of each feature with each term under q = p, ``(p, T)``."""
    values = evidence.features.values
    weights = normalised(evidence.log_weights, values.shape[:2]).float()
    own = _recentred(values[..., list(family.columns)], weights)
    terms = evidence.terms_of(family)  # (N, T)
    scores = own[torch.arange(len(own)), evidence.truth].T @ terms
    within = torch.einsum("nm,nmp->pn", weights, own.square())
    return scores / (within @ terms.square()).clamp_min(1e-6 * len(own)).sqrt()


def adjusted_p_values(p_values: Tensor) -> Tensor:
    """Return Westfall and Young's (1993) step-down adjusted p-values.

    They control the family-wise error: under q = p, the smallest is at most α with a
    probability of at most α.

    Args:
        p_values: From `family_p_values`, with shape ``(families, 1 + B)``.
    """
    order = p_values[:, 0].argsort()
    # Smallest re-drawn p-value among the families that are not yet rejected.
    smallest = p_values[order].flip(0).cummin(dim=0).values.flip(0)
    share = (smallest <= p_values[order, :1]).double().mean(dim=1)
    adjusted = torch.empty(len(p_values), dtype=torch.float64)
    adjusted[order] = share.cummax(dim=0).values
    return adjusted


def _scores(
    evidence: Evidence, weights: Tensor, num_redraws: int, generator: torch.Generator
) -> Tensor:
    """Return scores of all features with all terms, ``(1 + B, P, 1 + T)``."""
    features = evidence.features
    mean = torch.einsum("nm,nmp->pn", weights.float(), features.values)  # (P, N)
    terms = torch.cat([torch.ones(len(weights), 1), evidence.terms.float()], dim=1)

    def score(taken: Tensor) -> Tensor:
        return (taken - mean) @ terms

    redrawn = redraw_statistics(
        features,
        score,
        num_redraws,
        generator,
        None if evidence.log_weights is None else weights,
    )
    observed = score(features.take(evidence.truth.unsqueeze(0)))
    return torch.cat([observed, redrawn])


def _of(scores: Tensor, family: Family) -> Tensor:
    """Return the scores of a family, with shape ``(1 + B, p)``."""
    own = scores[:, list(family.columns)]
    own = own[..., 1:] if family.with_x else own[..., :1]
    return own.flatten(start_dim=1)


class _Spread:
    """Variances and covariances of scores under the null hypothesis."""

    def __init__(self, centred: Tensor, weights: Tensor, evidence: Evidence):
        self.centred, self.weights, self.evidence = centred, weights, evidence

    def variance(self, family: Family) -> Tensor:
        """Return the variance of each score of a family, with shape ``(p,)``."""
        own = self.centred[..., list(family.columns)]
        within = torch.einsum("nm,nmp->np", self.weights, own.square())
        return (within.T @ self.evidence.terms_of(family).square()).flatten()

    def cross(self, family: Family, given: Sequence[Family]) -> Tensor:
        """Return covariances of a family's scores with those of given ones."""
        return torch.cat([self._covariance(family, other) for other in given], dim=1)

    def inner(self, given: Sequence[Family]) -> Tensor:
        """Return the covariances of the scores of given families."""
        return torch.cat([self.cross(family, given) for family in given])

    def _covariance(self, first: Family, second: Family) -> Tensor:
        a = self.centred[..., list(first.columns)]
        b = self.centred[..., list(second.columns)]
        within = (self.weights.unsqueeze(2) * a).transpose(1, 2) @ b  # (N, p, q)
        x, y = self.evidence.terms_of(first), self.evidence.terms_of(second)
        products = (x.unsqueeze(2) * y.unsqueeze(1)).flatten(1)  # (N, s t)
        whole = within.flatten(1).T @ products  # (p q, s t)
        shape = (a.shape[2], b.shape[2], x.shape[1], y.shape[1])
        whole = whole.reshape(shape).transpose(1, 2)
        return whole.reshape(shape[0] * shape[2], shape[1] * shape[3])


def _recentred(values: Tensor, weights: Tensor) -> Tensor:
    return values - torch.einsum("nm,nmp->np", weights, values).unsqueeze(1)


def _excess(statistics: Tensor) -> Tensor:
    """Return the first statistic in standard deviations of the others."""
    roots = statistics.clamp_min(0).sqrt()
    null = roots[1:]
    return (roots[0] - null.mean()) / null.std().clamp_min(1e-9)


def _upper(statistics: Tensor) -> Tensor:
    """Return the share of statistics that are at least as large as each."""
    ordered = statistics.contiguous().sort().values
    # Sums in another order may round: what is equal but for rounding is a tie.
    slack = 1e-6 * statistics.abs()
    below = torch.searchsorted(ordered, (statistics - slack).contiguous())
    return (len(ordered) - below) / len(ordered)
