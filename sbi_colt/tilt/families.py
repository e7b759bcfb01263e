r"""Families of features: each is one way in which a posterior can be wrong.

A feature is a function of a member in its bag. A family's features have another mean
under p than under q if the posterior has the family's error, and (to first order) the
same mean if it has another family's error. With t the standardised coordinates, ρ their
correlations, u ranks and r the distance from the mean (all of the pooled bag):

``shift``
    :math:`t_j`.
``width``
    :math:`t_j^2`.
``correlation``
    :math:`t_i t_j - ρ_{ij} (t_i^2 + t_j^2) / 2`, which no wrong width changes.
``shape``
    Legendre polynomials :math:`L_k(2 u_j - 1)`, k = 3 to 6, less what t_j and t_j²
    explain of them: modes, skew and tails of one parameter.
``radial``
    Legendre polynomials of the rank of r, less what r² explains of them: tails of all
    parameters together. Only where there are several parameters.
``missing``
    Whether a member is much farther from all others than any other member is, in all
    parameters or in one: truths where q has no draws, such as in a mode that it misses.

Each (except the last) also comes "with x": its features times terms of x.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor

from sbi_colt.tilt.bags import Bags, weighted_ranks

__all__ = [
    "MISSING",
    "SHAPE",
    "SUPPORT",
    "WITH_X",
    "Family",
    "Features",
    "make_features",
]

WITH_X = " with x"
MISSING, SHAPE = "missing", "shape"
SUPPORT = "scaling"  # features that tilts use and that nobody tests
# Beyond, the families with pairs of parameters and with fine shapes are left out.
_MOST_PARAMETERS = 20
_MOST_PARAMETERS_OF_PAIRS_WITH_X = 5
_DEGREES = (3, 4, 5, 6)
_FEW_MEMBERS = 30  # with fewer members of a bag there are no fine shapes
_FAR_OUT = 5.0  # standard deviations at which the powers of t end
_RADIAL_DEGREES = (1, 2, 3)
# Families with few features, for which products of two features of x are not too many.
_WITH_PRODUCTS = ("shift",)


@dataclass(frozen=True)
class Family:
    """A set of features that describe one kind of error.

    Args:
        name: Such as ``"width"`` or ``"width with x"``.
        columns: Which features of a member.
        with_x: Whether they are multiplied by the terms of x.
        with_products: Whether these terms include products of two features of x.
    """

    name: str
    columns: tuple[int, ...]
    with_x: bool = False
    with_products: bool = False

    @property
    def base(self) -> str:
        """The name without "with x"."""
        return self.name.removesuffix(WITH_X)


@dataclass(frozen=True, eq=False)
class Features:
    """Features of all members of all bags; a table to re-draw truths from.

    Args:
        values: Features with shape ``(N, M, P)``, centred in each bag and with pooled
            variance 1.
        families: The families by their names.
        parameters: The parameters that each feature is about, none for all.
        degrees: Degree of each feature's polynomial.
    """

    values: Tensor
    families: Mapping[str, Family]
    parameters: tuple[tuple[int, ...], ...]
    degrees: tuple[int, ...]

    def __len__(self) -> int:
        return self.values.shape[2]

    @property
    def num_pairs(self) -> int:
        """The number of bags, N."""
        return self.values.shape[0]

    @property
    def bag_size(self) -> int:
        """The number of members of each bag, M."""
        return self.values.shape[1]

    def at(self, index: Tensor) -> Features:
        """Return the features of some of the bags."""
        return replace(self, values=self.values[index])

    def take(self, members: Tensor) -> Tensor:
        """Return features ``(..., P, N)`` of chosen members ``(..., N)``."""
        rows = torch.arange(self.num_pairs)
        return self.values[rows, members].transpose(-1, -2)


def make_features(
    bags: Bags, probe_ranks: Mapping[str, Tensor] | None = None
) -> Features:
    """Return the features of the members of bags.

    Args:
        bags: The bags.
        probe_ranks: Ranks of the members under given probes, with shape ``(N, M)``, by
            the probe's name; each is a family of its own, ``"probe name"``.
    """
    groups = [_shift(bags), _width(bags), _missing(bags)]
    if 1 < bags.dim <= _MOST_PARAMETERS:
        groups += [_correlation(bags), _scaling(bags)]
    groups.append(_shape(bags))
    if bags.dim > 1:
        groups.append(_radial(bags))
    for name, ranks in (probe_ranks or {}).items():
        values = _legendre(ranks, (1, 2, 3))
        groups.append(_Group(f"probe {name}", values, [()] * 3, [1, 2, 3], False))
    families, start = {}, 0
    for group in groups:
        columns = tuple(range(start, start + group.values.shape[2]))
        families[group.name] = Family(group.name, columns)
        if group.with_x:
            # Fine shapes that change with x would be too many.
            kept = tuple(c for c in columns if group.degrees[c - start] <= 4)
            name = group.name + WITH_X
            families[name] = Family(name, kept, True, group.name in _WITH_PRODUCTS)
        start += len(columns)
    values = torch.cat([group.values.float() for group in groups], dim=2)
    return Features(
        _standardised(values, bags.weights.float()),
        families,
        tuple(who for group in groups for who in group.parameters),
        tuple(degree for group in groups for degree in group.degrees),
    )


@dataclass(frozen=True, eq=False)
class _Group:
    name: str
    values: Tensor  # (N, M, p)
    parameters: list[tuple[int, ...]]
    degrees: list[int]
    with_x: bool = True


def _shift(bags: Bags) -> _Group:
    each = [(j,) for j in range(bags.dim)]
    return _Group("shift", bags.standardised, each, [1] * bags.dim)


def _width(bags: Bags) -> _Group:
    each = [(j,) for j in range(bags.dim)]
    return _Group("width", bags.standardised.square(), each, [2] * bags.dim)


def _correlation(bags: Bags) -> _Group:
    t, pairs = bags.standardised, list(combinations(range(bags.dim), 2))
    first, second = (list(side) for side in zip(*pairs, strict=True))
    a, b = t[..., first], t[..., second]
    rho = bags.correlations[:, first, second].unsqueeze(1)
    values = a * b - rho * (a.square() + b.square()) / 2
    few = bags.dim <= _MOST_PARAMETERS_OF_PAIRS_WITH_X
    return _Group("correlation", values, pairs, [2] * len(pairs), few)


def _scaling(bags: Bags) -> _Group:
    """t_j (R⁻¹t)_j: the derivative of a Gaussian's log density by its j-th width.

    A tilt needs it to change the widths of correlated parameters; t_j² alone would
    change their correlations too.
    """
    solved = torch.linalg.solve(bags.shrunk, bags.standardised.transpose(1, 2))
    values = bags.standardised * solved.transpose(1, 2)
    each = [(j,) for j in range(bags.dim)]
    return _Group(SUPPORT, values, each, [2] * bags.dim)


def _shape(bags: Bags) -> _Group:
    fine = bags.dim <= _MOST_PARAMETERS and bags.size >= _FEW_MEMBERS
    degrees = _DEGREES if fine else _DEGREES[:2]
    t = bags.standardised
    known = torch.stack([t, t.square()], dim=3)  # (N, M, d, 2)
    bounded = t.clamp(-_FAR_OUT, _FAR_OUT)
    values = []
    for j in range(bags.dim):
        powers = torch.stack([bounded[..., j] ** 3, bounded[..., j] ** 4], dim=2)
        own = torch.cat([_legendre(bags.ranks[..., j], degrees), powers], dim=2)
        values.append(_residual(own, known[:, :, j], bags.weights))
    each = [*degrees, 3, 4]
    parameters = [(j,) for j in range(bags.dim) for _ in each]
    return _Group("shape", torch.cat(values, 2), parameters, each * bags.dim)


def _radial(bags: Bags) -> _Group:
    square = bags.whitened.square().sum(dim=2)  # (N, M)
    values = _legendre(weighted_ranks(square, bags.weights), _RADIAL_DEGREES)
    values = _residual(values, square.unsqueeze(2), bags.weights)
    count = len(_RADIAL_DEGREES)
    return _Group("radial", values, [()] * count, [*_RADIAL_DEGREES])


def _missing(bags: Bags) -> _Group:
    away = bags.loneliness
    values = torch.stack([(away > 0).double(), away, away.square()], dim=2)
    return _Group(MISSING, values, [()] * 3, [0] * 3, False)


def _legendre(ranks: Tensor, degrees: tuple[int, ...]) -> Tensor:
    """Return Legendre polynomials of ranks in [0, 1], with shape ``(..., degrees)``."""
    y = 2 * ranks - 1
    values = [torch.ones_like(y), y]
    for k in range(1, max(degrees)):
        values.append(((2 * k + 1) * y * values[k] - k * values[k - 1]) / (k + 1))
    return torch.stack([values[degree] for degree in degrees], dim=-1)


def _residual(values: Tensor, known: Tensor, weights: Tensor) -> Tensor:
    """Return what known features do not explain, by least squares over all bags.

    Args:
        values: Features with shape ``(N, M, p)``.
        known: Features with shape ``(N, M, k)``.
        weights: Weights of the members, with shape ``(N, M)``.
    """
    values, known = _centred(values, weights), _centred(known, weights)
    weighted = weights.unsqueeze(2) * known
    gram = torch.einsum("nmk,nml->kl", weighted, known)
    gram.diagonal().add_(1e-9 * gram.diagonal().mean() + 1e-300)
    cross = torch.einsum("nmk,nmp->kp", weighted, values)
    return values - known @ torch.linalg.solve(gram, cross)


def _centred(values: Tensor, weights: Tensor) -> Tensor:
    return values - torch.einsum("nm,nmp->np", weights, values).unsqueeze(1)


def _standardised(values: Tensor, weights: Tensor) -> Tensor:
    """Return features centred in each bag, with a pooled variance of 1 or 0."""
    values = _centred(values, weights)
    variance = torch.einsum("nm,nmp,nmp->p", weights, values, values) / len(values)
    return values / variance.clamp_min(1e-12).sqrt()
