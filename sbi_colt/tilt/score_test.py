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
Features times products of two features of x take part in the second statistic only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
        num_single: How many terms, the first ones, are about one feature of x; the rest
            are products of two.
        truth: Which member is the truth, with shape ``(N,)``.
        log_weights: Logarithms of weights, with shape ``(N, M)``, or `None`.
        gains: What was found about this evidence, so that it is computed once.
    """

    features: Features
    terms: Tensor
    num_single: int
    truth: Tensor
    log_weights: Tensor | None = None
    gains: dict[Any, Any] = field(default_factory=dict)

    def tilted(self, scores: Tensor) -> Evidence:
        """Return the same with weights w exp ŝ, for ŝ with shape ``(N, M)``."""
        known = 0.0 if self.log_weights is None else self.log_weights
        return replace(self, log_weights=known + scores, gains={})

    def at(self, index: Tensor) -> Evidence:
        """Return the same for some of the pairs."""
        known = None if self.log_weights is None else self.log_weights[index]
        return replace(
            self,
            features=self.features.at(index),
            terms=self.terms[index],
            truth=self.truth[index],
            log_weights=known,
            gains={},
        )

    def terms_of(self, family: Family) -> Tensor:
        """Return what the family's features are multiplied by, ``(N, T)`` or ones."""
        if family.with_products:
            return self.terms.float()
        if family.with_x:
            return self.terms[:, : self.num_single].float()
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
    given = [replace(family, with_products=False) for family in given]
    evidence, families, given = _only_needed(evidence, families, given)
    weights = normalised(evidence.log_weights, evidence.features.values.shape[:2])
    wide = sorted({c for f in families if f.with_products for c in f.columns})
    scores = _scores(evidence, weights, wide, num_redraws, generator)
    centred = _recentred(evidence.features.values, weights.float())
    spread = _Spread(centred, weights.float(), evidence)
    known = torch.cat([scores.of(family) for family in given], 1) if given else None
    inverse = _inverse(spread.inner(given)) if given else None
    p_values, excess = [], []
    for family in families:
        own = scores.of(family)
        variance = spread.variance(family)
        if known is not None and inverse is not None:
            cross = spread.cross(family, given)  # (p, k)
            slope = cross @ inverse
            own = own - known @ slope.T
            explained = (cross * slope).sum(dim=1)
            variance = torch.maximum(variance - explained, 0.05 * variance)
        scale = variance.clamp_min(1e-6 * len(weights)).rsqrt()
        own = own * scale
        few = replace(family, with_products=False)
        # Products are too many to be tested together.
        count = len(few.columns) * evidence.terms_of(few).shape[1]
        if count <= _MANY_FEATURES and known is None:
            inner = spread.inner([few]) * scale[:count] * scale[:count].unsqueeze(1)
            inner.diagonal().add_(_RIDGE)
            single = own[:, :count]
            joint = (single * torch.linalg.solve(inner, single.T).T).sum(dim=1)
        else:
            joint = own[:, :count].square().sum(dim=1)
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

    num_single = evidence.num_single
    if not any(family.with_x for family in (*families, *given)):
        num_single = 0
    terms = evidence.terms
    if not any(family.with_products for family in families):
        terms = terms[:, :num_single]
    needed = replace(
        evidence, features=features, terms=terms, num_single=num_single, gains={}
    )
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


@dataclass(frozen=True, eq=False)
class _Scores:
    """Scores of features times terms of x, observed first and then re-drawn."""

    single: Tensor  # (1 + B, P, 1 + T), with a constant and terms of one feature of x
    products: Tensor  # (1 + B, P', T'), of some features with products
    columns: list[int]  # which features these are

    def of(self, family: Family) -> Tensor:
        """Return the scores of a family, ``(1 + B, p)``, those with products last."""
        own = self.single[:, list(family.columns)]
        own = own[..., 1:] if family.with_x else own[..., :1]
        own = own.flatten(start_dim=1)
        if not family.with_products:
            return own
        places = [self.columns.index(column) for column in family.columns]
        return torch.cat([own, self.products[:, places].flatten(start_dim=1)], dim=1)


def _scores(
    evidence: Evidence,
    weights: Tensor,
    wide: list[int],
    num_redraws: int,
    generator: torch.Generator,
) -> _Scores:
    """Return scores of all features, and those of the wide ones with products."""
    features, num_single = evidence.features, evidence.num_single
    mean = torch.einsum("nm,nmp->pn", weights.float(), features.values)  # (P, N)
    terms = evidence.terms.float()
    single = torch.cat([torch.ones(len(weights), 1), terms[:, :num_single]], dim=1)
    products = terms[:, num_single:]

    def score(taken: Tensor) -> Tensor:
        centred = taken - mean
        parts = [centred @ single, centred[..., wide, :] @ products]
        return torch.cat([part.flatten(start_dim=-2) for part in parts], dim=-1)

    redrawn = redraw_statistics(
        features,
        score,
        num_redraws,
        generator,
        None if evidence.log_weights is None else weights,
    )
    observed = score(features.take(evidence.truth.unsqueeze(0)))
    scores = torch.cat([observed, redrawn])
    shape = (len(features), single.shape[1])
    count = shape[0] * shape[1]
    return _Scores(
        scores[:, :count].unflatten(1, shape),
        scores[:, count:].unflatten(1, (len(wide), products.shape[1]))
        if wide
        else scores[:, :0].unsqueeze(2),
        wide,
    )


class _Spread:
    """Variances and covariances of scores under the null hypothesis."""

    def __init__(self, centred: Tensor, weights: Tensor, evidence: Evidence):
        self.centred, self.weights, self.evidence = centred, weights, evidence

    def variance(self, family: Family) -> Tensor:
        """Return the variance of each score of a family, with shape ``(p,)``."""
        own = self.centred[..., list(family.columns)]
        within = torch.einsum("nm,nmp->np", self.weights, own.square())
        return torch.cat(
            [(within.T @ terms.square()).flatten() for terms in self._terms(family)]
        )

    def cross(self, family: Family, given: Sequence[Family]) -> Tensor:
        """Return covariances of a family's scores with those of given ones."""
        rows = [
            torch.cat([self._covariance(family, terms, other) for other in given], 1)
            for terms in self._terms(family)
        ]
        return torch.cat(rows)

    def inner(self, given: Sequence[Family]) -> Tensor:
        """Return the covariances of the scores of given families."""
        return torch.cat([self.cross(family, given) for family in given])

    def _terms(self, family: Family) -> list[Tensor]:
        """Return the terms of a family in the order of `_Scores.of`."""
        terms = self.evidence.terms_of(family)
        if not family.with_products:
            return [terms]
        single = self.evidence.num_single
        return [terms[:, :single], terms[:, single:]]

    def _covariance(self, first: Family, x: Tensor, second: Family) -> Tensor:
        """Return covariances of a family's scores with terms x and another's."""
        a = self.centred[..., list(first.columns)]
        b = self.centred[..., list(second.columns)]
        within = (self.weights.unsqueeze(2) * a).transpose(1, 2) @ b  # (N, p, q)
        y = self.evidence.terms_of(second)
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
