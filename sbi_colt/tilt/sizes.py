r"""How large an error is: moments of the truths' errors, with intervals.

The error of a truth is :math:`t_j = (θ^*_j - m_j) / s_j`, with the mean and standard
deviation of the draws at its x (the truth left out, or a truth far out would hide
itself). Sizes are means over pairs, so their 95% intervals follow from the central
limit theorem; shares have exact ones (Clopper and Pearson 1934). They do not use the
tilt, whose penalty draws its coefficients towards zero. A size describes the posterior
whether or not something is named. A size that is chosen among several because it is
large has an interval that holds for all of them together (Bonferroni): among the
parameters, and among the parts of x, such as those where x is high.

The size "where x is high" is that of the upper third of all xs, and the pairs only tell
about where this third begins. With y the pairs' contributions to a size, μ their mean
in the third and m their mean at its edge, the variance of the size of n pairs is not
σ² / n but (σ² + 2 (μ − m)² / 3) / n, and (σ² + 2 (μ − m)²) / n for the middle third.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from scipy.stats import beta, norm, rankdata
from torch import Tensor

from sbi_colt.tilt.bags import GAP, Bags

__all__ = ["UNIFORM_CENTRE", "Errors", "Size", "measure"]

_MISSED = 0.05  # share of intervals without the true size
_CENTRE = (1 / 3, 2 / 3)
_MOST_CORRELATED = 0.999  # a correlation of errors is between this and its negative
# Standard deviations at which errors end, and times too wide at which ratios do.
_MANY = 1e3
_TIED = 1e-12  # of a bag's deviation: draws with less are all the same
# Share of a uniform law within half a standard deviation of its mean. A law with one
# mode has more there, so that one with less has several modes.
UNIFORM_CENTRE = 12**-0.5
# Share of the truths of a missing region that may lie near draws; the upper end of the
# interval allows for them.
_UNSEEN = 0.05


@dataclass(frozen=True)
class Size:
    """The size of an error.

    Args:
        value: The size.
        low: Lower end of its 95% interval.
        high: Upper end.
        unit: ``"standard deviations"`` (q's mean minus the truth), ``"ratio"`` (q's
            width over the right one), ``"correlation"`` (q's minus the right one) or
            ``"share"`` (of true parameters in a region). A ratio is between 0.001 and
            1000; an interval that ends there has no end.
        sign: +1 where q is too high, too wide, too correlated, or has tails too heavy.
        pattern: What a wrong shape is: ``"skew"``, ``"modes"`` or ``"tails"``.
        own_units: A shift in the parameter's own units.
        expected: The size of a correct posterior.
        quantile: Standard errors in half of the interval.
    """

    value: float
    low: float
    high: float
    unit: str
    sign: int
    pattern: str = ""
    own_units: float = math.nan
    expected: float = 0.0
    quantile: float = float(norm.isf(_MISSED / 2))

    @property
    def z_score(self) -> float:
        """Standard errors between a size and that of a correct posterior."""
        error, spread = self.value - self.expected, self.high - self.low
        if self.unit == "ratio":
            error, spread = math.log(self.value), math.log(self.high / self.low)
        return 2 * self.quantile * error / max(spread, 1e-300)


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of the truths among their draws, and what they would be if q were right.

    Args:
        errors: t of the truths, with shape ``(N, d)``.
        own_units: Mean of the draws minus the truth, with shape ``(N, d)``.
        reference: Mean of t² of a draw among the others, with shape ``(N, d)``.
        correlations: Correlations of the draws, with shape ``(N, d, d)``.
        ranks: Ranks of the truths among the draws, with shape ``(N, d, 2)``: the ends
            of the interval in which a rank with random ties is uniform.
        radii: Ranks of the truths' distances from the mean, with shape ``(N, 2)``.
        is_alone: Whether the truth is far from all draws, with shape ``(N,)``.
        num_draws: The effective number of draws, with shape ``(N,)``.
        num_edges: How many ends of a third of x these pairs have within x: 0 for all
            pairs, 1 for an outer third, 2 for the middle one. The pairs of a third are
            in the order of that feature of x.
    """

    errors: Tensor
    own_units: Tensor
    reference: Tensor
    correlations: Tensor
    ranks: Tensor
    radii: Tensor
    is_alone: Tensor
    num_draws: Tensor
    num_edges: int = 0

    @classmethod
    def of(cls, bags: Bags) -> Errors:
        """Return the errors of the truths of bags."""
        rows = torch.arange(len(bags))
        weights = bags.weights.clone()
        weights[rows, bags.truth] = 0
        weights /= weights.sum(dim=1, keepdim=True).clamp_min(1e-300)
        size = 1 / weights.square().sum(dim=1).clamp_min(1e-300)
        size = size.clamp(2, bags.size).reshape(-1, 1, 1)
        members = bags.standardised  # squares of members themselves may overflow
        truth = members[rows, bags.truth].unsqueeze(1)
        column = weights.unsqueeze(2)
        mean = (column * members).sum(dim=1, keepdim=True)
        variance = (column * (members - mean).square()).sum(dim=1, keepdim=True)
        # Unbiased; where all draws are the same, that of the bag with the truth.
        deviation = (variance * size / (size - 1)).sqrt()
        deviation = torch.where(deviation > _TIED, deviation, 1.0)
        inner = ((members - mean).square() / deviation.square()) * size / (size - 1)
        inner = torch.minimum(inner, 0.99 * (size - 1))
        outer = (
            inner * size * (size - 2) / (size - 1).square() / (1 - inner / (size - 1))
        )  # of a draw among the others, by leaving it out
        scaled = (members - mean) / deviation
        errors = ((truth - mean) / deviation).clamp(-_MANY, _MANY)
        radius = bags.whitened.square().sum(dim=2)  # (N, M)
        return cls(
            errors.squeeze(1),
            (column * bags.members).sum(dim=1) - bags.members[rows, bags.truth],
            (column * outer).sum(dim=1) * _fewer(size.squeeze(2)),
            _unbiased(scaled.transpose(1, 2) @ (column * scaled), size),
            _ranks(truth, members, column),
            _ranks(
                radius[rows, bags.truth].reshape(-1, 1, 1), radius.unsqueeze(2), column
            ).squeeze(1),
            _is_alone(bags, deviation.squeeze(1)),
            size.flatten(),
        )

    def thirds(self, feature: Tensor) -> list[Errors]:
        """Return the errors where a feature of x is low, medium and high.

        Pairs with the same value are in the same third. A third may have no pairs: with
        two values of x there is no medium one, and with one there are none at all.

        Args:
            feature: A feature of x of all pairs, with shape ``(N,)``.
        """
        ranks = torch.from_numpy(rankdata(feature.numpy())) / (len(feature) + 1)
        third = (3 * ranks).floor().long()  # (N,)
        known = third.unique()
        if len(known) == 1:
            third = torch.full_like(third, -1)
        else:  # the smallest values are low, and the largest high
            third[third == known[0]] = 0
            third[third == known[-1]] = 2
        made, order = [], feature.argsort()
        for number, num_edges in enumerate((1, 2, 1)):
            rows = order[third[order] == number]
            own = {
                name: value[rows]
                for name, value in vars(self).items()
                if isinstance(value, Tensor)
            }
            made.append(Errors(**own, num_edges=num_edges))
        return made


def measure(
    errors: Errors, base: str, parameters: Sequence[int], num_choices: int = 1
) -> Size:
    """Return the size of an error of a family.

    Args:
        errors: Errors of the truths of all pairs, or of those with some xs.
        base: Name of the family, without x.
        parameters: The parameters it is about; all of them for an empty sequence.
        num_choices: The number of parts of x that this one was chosen from. The
            intervals of all of them and of all parameters hold together with 95%
            confidence.
    """
    dim = errors.errors.shape[1]
    chosen = list(parameters) or list(range(dim))
    z = float(norm.isf(_MISSED / 2 / (num_choices * _num_statements(base, dim))))
    if base == "shift":
        return _shift(errors, chosen, z)
    if base == "width":
        return _width(errors, chosen, z)
    if base == "correlation":
        return _correlation(errors, chosen[0], chosen[1], z)
    if base == "shape":
        return _shape(errors, chosen[0], z)
    if base == "missing":
        share = _share(errors, errors.is_alone, 0.0, -1, z)
        return replace(share, high=min(1.0, share.high / (1 - _UNSEEN)))
    return _radial(errors, z)


def _num_statements(base: str, dim: int) -> int:
    """Return how many statements about parameters there are to choose from."""
    if base in ("shift", "width"):  # of one of them, or of all
        return dim + (dim > 1)
    if base == "correlation":
        return dim * (dim - 1) // 2
    if base == "shape":  # skew, or the share in the centre
        return 2 * dim
    return 1


def _shift(errors: Errors, chosen: list[int], z: float) -> Size:
    # Hedges' (1981) correction: standard deviations of few draws are too small.
    correction = (1 - 0.75 / errors.num_draws).unsqueeze(1)
    values = -(correction * errors.errors[:, chosen]).mean(dim=1)
    mean, error = float(values.mean()), _standard_error(values, errors.num_edges)
    own = float(errors.own_units[:, chosen].mean())
    unit = "standard deviations"
    low, high = mean - z * error, mean + z * error
    return Size(mean, low, high, unit, _sign(mean), own_units=own, quantile=z)


def _width(errors: Errors, chosen: list[int], z: float) -> Size:
    own = errors.errors[:, chosen]
    squares = (own - own.mean(dim=0)).square()
    size = squares.mean(dim=0) * len(own) / max(1, len(own) - 1)
    reference = errors.reference[:, chosen].mean(dim=0).clamp_min(1e-300)
    # The mean of finitely many draws is noise of its own, on both sides.
    noise = reference * float((1 / (errors.num_draws + 1)).mean())
    # What is left of a size that is little more than noise is not known.
    unsure = torch.tensor([_standard_error(each) for each in squares.T]).to(size)
    is_known = bool((size - noise > z * unsure).all())
    reference, size = reference - noise, (size - noise).clamp_min(1e-300)
    size = torch.maximum(size, unsure)
    logs = (reference / size).log() / 2  # (p,)
    most = math.log(_MANY)
    value = float(logs.clamp(-most, most).mean())
    error = _standard_error((squares / size).mean(dim=1) / 2, errors.num_edges)
    low, high = max(value - z * error, -most), min(value + z * error, most)
    if not is_known:
        high = most
    if bool((own.abs() >= _MANY).any()):  # and may be much larger
        low = -most
    low, high, sign = math.exp(low), math.exp(high), _sign(value)
    return Size(math.exp(value), low, high, "ratio", sign, expected=1.0, quantile=z)


def _correlation(errors: Errors, first: int, second: int, z: float) -> Size:
    pair = errors.errors[:, [first, second]]
    pair = pair - pair.mean(dim=0)
    each = errors.correlations[:, first, second]
    known = float(each.mean())
    # Standard deviations of few draws are noise, alike in both parameters only as far
    # as these are correlated. It makes products of errors smaller than squares.
    few = float((0.5 / (errors.num_draws - 3).clamp_min(2)).mean())
    smaller = 1 - few * (1 - known**2)
    # The means of finitely many draws are noise of their own, as correlated as q.
    reference = errors.reference[:, [first, second]].mean(dim=0)
    noise = reference * float((1 / (errors.num_draws + 1)).mean())
    squares = pair.square()
    unsure = torch.tensor([_standard_error(own) for own in squares.T]).to(pair)
    scale = torch.maximum(squares.mean(dim=0) - noise, unsure)
    scale = scale.clamp_min(1e-300).sqrt()
    a, b = (pair / scale).T
    together = smaller * known * float((noise.sqrt() / scale).prod())
    right = (float((a * b).mean()) - together) / smaller
    right = min(max(right, -_MOST_CORRELATED), _MOST_CORRELATED)
    changes = a * b / smaller - right * (a.square() + b.square()) / 2
    error = _standard_error(changes - each, errors.num_edges)
    # Fisher's (1921) transformation keeps the ends between -1 and 1.
    half = z * error / (1 - right**2)
    ends = (known - math.tanh(math.atanh(right) + side * half) for side in (1, -1))
    value, (low, high) = known - right, ends
    return Size(value, low, high, "correlation", _sign(value), quantile=z)


def _shape(errors: Errors, parameter: int, z: float) -> Size:
    """Return the share of truths in the central third, or below the median.

    Which one it is depends on whether the ranks' even or odd polynomials are larger.
    """
    ranks = errors.ranks[:, parameter]  # (N, 2)
    y = ranks.sum(dim=1) - 1
    odd = [5 * y**3 - 3 * y, y]
    even = [35 * y**4 - 30 * y**2 + 3, 3 * y**2 - 1]
    if max(_z(v) for v in odd) > max(_z(v) for v in even):
        is_below = _within(ranks, 0.0, 0.5)
        sign = _sign(float(is_below.mean()) - 0.5)
        return _share(errors, is_below, 0.5, sign, z, "skew")
    low, high = _CENTRE
    is_central = _within(ranks, low, high)
    share = float(is_central.mean())
    sign = _sign(high - low - share)  # few truths in the centre: q's tails are heavy
    pattern = "modes" if sign > 0 and _has_gap(errors.errors[:, parameter]) else "tails"
    return _share(errors, is_central, high - low, sign, z, pattern)


def _has_gap(errors: Tensor) -> bool:
    """Return whether errors ``(N,)`` avoid their mean, so that they have two modes."""
    centred = errors - errors.mean()
    share = float((centred.abs() < centred.std() / 2).double().mean())
    error = (UNIFORM_CENTRE * (1 - UNIFORM_CENTRE) / len(errors)) ** 0.5
    return share < UNIFORM_CENTRE - error


def _radial(errors: Errors, z: float) -> Size:
    """Return the share of truths in the central half of q."""
    is_central = _within(errors.radii, 0.0, 0.5)
    sign = _sign(0.5 - float(is_central.mean()))
    return _share(errors, is_central, 0.5, sign, z, "tails")


def _share(
    errors: Errors,
    inside: Tensor,
    expected: float,
    sign: int,
    z: float,
    pattern: str = "",
) -> Size:
    """Return the share of truths in a region with its exact interval."""
    values = inside.double()
    share, count = float(values.mean()), float(len(values))
    if values.var() > 0:  # as many pairs as would be as uncertain, without edges
        ratio = _standard_error(values) / _standard_error(values, errors.num_edges)
        count *= ratio**2
    missed, hits = float(norm.sf(z)), share * count
    low = float(beta.ppf(missed, hits, count - hits + 1)) if hits > 0 else 0.0
    rest = count - hits
    high = float(beta.isf(missed, hits + 1, rest)) if rest > 0 else 1.0
    return Size(share, low, high, "share", sign, pattern, expected=expected, quantile=z)


def _ranks(truth: Tensor, members: Tensor, weights: Tensor) -> Tensor:
    """Return r / (K + 1) and (r + 1 + ties) / (K + 1), r the draws below the truth.

    A rank drawn between the two is exactly uniform if q is right, for any K.
    """
    size = 1 / weights.square().sum(dim=1)  # K, or the effective number
    below = (weights * (members < truth)).sum(dim=1)
    ties = (weights * (members == truth)).sum(dim=1)
    ends = torch.stack([size * below, size * (below + ties) + 1], dim=-1)
    return ends / (size + 1).unsqueeze(-1)


def _within(ranks: Tensor, low: float, high: float) -> Tensor:
    """Return the share of each interval of ranks ``(N, 2)`` that is in a region."""
    start, end = ranks.T
    inside = end.clamp_max(high) - start.clamp_min(low)
    return inside.clamp_min(0) / (end - start)


def _unbiased(correlations: Tensor, size: Tensor) -> Tensor:
    """Return correlations ``(N, d, d)`` of few draws without most of their bias.

    For Gaussians, by Olkin and Pratt's (1958) approximation. They are products of draws
    in units of unbiased standard deviations.
    """
    r = correlations * size / (size - 1)
    return (r + r * (1 - r.square()) / (2 * (size - 4).clamp_min(2))).clamp(-1, 1)


def _is_alone(bags: Bags, deviation: Tensor) -> Tensor:
    """Return whether each truth is far from all draws, as `Bags.loneliness` says.

    Gaps count in standard deviations of the draws, ``(N, d)`` in those of the bag: a
    truth far out makes those of the whole bag larger, and would hide itself.
    """
    rows = torch.arange(len(bags))
    gaps = bags.gaps[rows, bags.truth] / deviation
    return (bags.loneliness[rows, bags.truth] > 0) | (gaps.amax(dim=1) > GAP)


def _fewer(size: Tensor) -> Tensor:
    """Return E t² of a truth among K draws over that of a draw among K − 1 others.

    E t² = (1 + 1/K) (K − 1) / (K − 3) for Gaussian draws.
    """
    size = size.clamp_min(5)

    def mean_square(count: Tensor) -> Tensor:
        return (1 + 1 / count) * (count - 1) / (count - 3)

    return mean_square(size) / mean_square(size - 1)


def _standard_error(values: Tensor, num_edges: int = 0) -> float:
    """Return the standard error of a mean, of a third of x if it has edges."""
    count = len(values)
    if count < 2:
        return math.inf
    place = torch.linspace(-1, 1, count, dtype=values.dtype)
    # The mean at the edges less that of all, by a straight line.
    slope = float((place * values).sum() / place.square().sum())
    variance = float(values.var()) + (0, 2 / 3, 2)[num_edges] * slope * slope
    return (variance / count) ** 0.5


def _z(values: Tensor) -> float:
    return abs(float(values.mean())) / max(_standard_error(values), 1e-300)


def _sign(value: float) -> int:
    return 1 if value >= 0 else -1
