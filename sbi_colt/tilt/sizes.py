r"""How large an error is: moments of the truths' errors, with intervals.

The error of a truth is :math:`t_j = (θ^*_j - m_j) / s_j`, with the mean and standard
deviation of the draws at its x (the truth left out, or a truth far out would hide
itself). Sizes are means over pairs, so their 95% intervals follow from the central
limit theorem; shares have Wilson's (1927) intervals. They do not use the tilt, whose
penalty draws its coefficients towards zero. A size describes the posterior whether or
not something is named. A size that is chosen among several because it is large, as that
"where x is high" is, has an interval that holds for all of them together (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.stats import norm
from torch import Tensor

from sbi_colt.tilt.bags import Bags

__all__ = ["Errors", "Size", "measure"]

_MISSED = 0.05  # share of intervals without the true size
_CENTRE = (1 / 3, 2 / 3)
_MANY = 1e3  # standard deviations beyond which errors are not squared
# Share of truths in the central third below which one law is called several modes.
_MODES = 0.2


@dataclass(frozen=True)
class Size:
    """The size of an error.

    Args:
        value: The size.
        low: Lower end of its 95% interval.
        high: Upper end.
        unit: ``"standard deviations"`` (q's mean minus the truth), ``"ratio"`` (q's
            width over the right one), ``"correlation"`` (q's minus the right one) or
            ``"share"`` (of true parameters in a region).
        sign: +1 where q is too high, too wide, too correlated, or has tails too heavy.
        pattern: What a wrong shape is: ``"skew"``, ``"modes"`` or ``"tails"``.
        own_units: A shift in the parameter's own units.
        expected: The size of a correct posterior.
    """

    value: float
    low: float
    high: float
    unit: str
    sign: int
    pattern: str = ""
    own_units: float = math.nan
    expected: float = 0.0

    @property
    def z_score(self) -> float:
        """Standard errors between a size and that of a correct posterior.

        Of a size that was not chosen among several.
        """
        error, spread = self.value - self.expected, self.high - self.low
        if self.unit == "ratio":
            error, spread = math.log(self.value), math.log(self.high / self.low)
        return 2 * float(norm.isf(_MISSED / 2)) * error / max(spread, 1e-300)


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of the truths among their draws, and what they would be if q were right.

    Args:
        errors: t of the truths, with shape ``(N, d)``.
        own_units: Mean of the draws minus the truth, with shape ``(N, d)``.
        reference: Mean of t² of a draw among the others, with shape ``(N, d)``.
        correlations: Correlations of the draws, with shape ``(N, d, d)``.
        ranks: Ranks of the truths among the draws, with shape ``(N, d)``.
        radii: Ranks of the truths' distances from the mean, with shape ``(N,)``.
        is_alone: Whether the truth is far from all draws, with shape ``(N,)``.
        num_draws: The effective number of draws, with shape ``(N,)``.
    """

    errors: Tensor
    own_units: Tensor
    reference: Tensor
    correlations: Tensor
    ranks: Tensor
    radii: Tensor
    is_alone: Tensor
    num_draws: Tensor

    @classmethod
    def of(cls, bags: Bags) -> Errors:
        """Return the errors of the truths of bags."""
        rows = torch.arange(len(bags))
        weights = bags.weights.clone()
        weights[rows, bags.truth] = 0
        weights /= weights.sum(dim=1, keepdim=True)
        size = (1 / weights.square().sum(dim=1)).reshape(-1, 1, 1)
        truth = bags.members[rows, bags.truth].unsqueeze(1)
        column = weights.unsqueeze(2)
        mean = (column * bags.members).sum(dim=1, keepdim=True)
        variance = (column * (bags.members - mean).square()).sum(dim=1, keepdim=True)
        # Unbiased; a constant column has no errors.
        deviation = (variance * size / (size - 1)).sqrt()
        deviation = torch.where(deviation > 0, deviation, torch.inf)
        inner = (
            ((bags.members - mean).square() / deviation.square()) * size / (size - 1)
        )
        inner = torch.minimum(inner, 0.99 * (size - 1))
        outer = (
            inner * size * (size - 2) / (size - 1).square() / (1 - inner / (size - 1))
        )  # of a draw among the others, by leaving it out
        scaled = (bags.members - mean) / deviation
        errors = ((truth - mean) / deviation).clamp(-_MANY, _MANY)
        radius = bags.whitened.square().sum(dim=2)  # (N, M)
        return cls(
            errors.squeeze(1),
            (mean - truth).squeeze(1),
            (column * outer).sum(dim=1) * _fewer(size.squeeze(2)),
            scaled.transpose(1, 2) @ (column * scaled),
            _ranks(truth, bags.members, column),
            _ranks(
                radius[rows, bags.truth].reshape(-1, 1, 1), radius.unsqueeze(2), column
            ).squeeze(1),
            bags.loneliness[rows, bags.truth] > 0,
            size.flatten(),
        )

    def at(self, index: Tensor) -> Errors:
        """Return the errors of some of the pairs."""
        return Errors(*(getattr(self, name)[index] for name in self.__annotations__))


def measure(
    errors: Errors, base: str, parameters: Sequence[int], num_choices: int = 1
) -> Size:
    """Return the size of an error of a family.

    Args:
        errors: Errors of the truths of all pairs, or of those with some xs.
        base: Name of the family, without x.
        parameters: The parameters it is about; all of them for an empty sequence.
        num_choices: The number of sizes that this one was chosen from; the intervals of
            all of them hold together with 95% confidence.
    """
    chosen = list(parameters) or list(range(errors.errors.shape[1]))
    z = float(norm.isf(_MISSED / 2 / num_choices))
    if base == "shift":
        return _shift(errors, chosen, z)
    if base == "width":
        return _width(errors, chosen, z)
    if base == "correlation":
        return _correlation(errors, chosen[0], chosen[1], z)
    if base == "shape":
        return _shape(errors.ranks[:, chosen[0]], z)
    if base == "missing":
        share = float(errors.is_alone.double().mean())
        return _share(share, len(errors.is_alone), 0.0, -1, z)
    return _radial(errors.radii, z)


def _shift(errors: Errors, chosen: list[int], z: float) -> Size:
    # Hedges' (1981) correction: standard deviations of few draws are too small.
    correction = (1 - 0.75 / errors.num_draws).unsqueeze(1)
    values = -(correction * errors.errors[:, chosen]).mean(dim=1)
    mean, error = float(values.mean()), _standard_error(values)
    own = float(errors.own_units[:, chosen].mean())
    unit = "standard deviations"
    low, high = mean - z * error, mean + z * error
    return Size(mean, low, high, unit, _sign(mean), own_units=own)


def _width(errors: Errors, chosen: list[int], z: float) -> Size:
    own = errors.errors[:, chosen]
    squares = (own - own.mean(dim=0)).square()
    size = squares.mean(dim=0) * len(own) / max(1, len(own) - 1)
    reference = errors.reference[:, chosen].mean(dim=0).clamp_min(1e-300)
    # The mean of finitely many draws is noise of its own, on both sides.
    noise = reference * float((1 / (errors.num_draws + 1)).mean())
    reference, size = reference - noise, (size - noise).clamp_min(1e-300)
    logs = (reference / size).log() / 2  # (p,)
    value = float(logs.mean())
    error = _standard_error((squares / size).mean(dim=1) / 2)
    low, high = math.exp(value - z * error), math.exp(value + z * error)
    return Size(math.exp(value), low, high, "ratio", _sign(value), expected=1.0)


def _correlation(errors: Errors, first: int, second: int, z: float) -> Size:
    pair = errors.errors[:, [first, second]]
    pair = pair - pair.mean(dim=0)
    known = float(errors.correlations[:, first, second].mean())
    # The means of finitely many draws are noise of their own, as correlated as q.
    noise = float((1 / errors.num_draws).mean())
    scale = (pair.square().mean(dim=0) - noise).clamp_min(1e-300).sqrt()
    a, b = (pair / scale).T
    right = float((a * b).mean() - noise * known / scale.prod())
    error = _standard_error(a * b - right * (a.square() + b.square()) / 2)
    value = known - right
    low, high = value - z * error, value + z * error
    return Size(value, low, high, "correlation", _sign(value))


def _shape(ranks: Tensor, z: float) -> Size:
    """Return the share of truths in the central third, or below the median.

    Which one it is depends on whether the ranks' even or odd polynomials are larger.
    """
    y = 2 * ranks - 1
    odd = [5 * y**3 - 3 * y, y]
    even = [35 * y**4 - 30 * y**2 + 3, 3 * y**2 - 1]
    if max(_z(v) for v in odd) > max(_z(v) for v in even):
        below = float((ranks < 0.5).double().mean())
        return _share(below, len(ranks), 0.5, _sign(below - 0.5), z, "skew")
    low, high = _CENTRE
    centre = float(((ranks > low) & (ranks < high)).double().mean())
    sign = _sign(high - low - centre)  # few truths in the centre: q's tails are heavy
    pattern = "modes" if centre <= _MODES else "tails"
    return _share(centre, len(ranks), high - low, sign, z, pattern)


def _radial(radii: Tensor, z: float) -> Size:
    """Return the share of truths in the central half of q."""
    centre = float((radii < 0.5).double().mean())
    return _share(centre, len(radii), 0.5, _sign(0.5 - centre), z, "tails")


def _share(
    share: float, count: int, expected: float, sign: int, z: float, pattern: str = ""
) -> Size:
    """Return a share with Wilson's (1927) interval."""
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = (share * (1 - share) / count + z**2 / (4 * count**2)) ** 0.5
    half *= z / (1 + z**2 / count)
    low, high = middle - half, middle + half
    return Size(share, low, high, "share", sign, pattern, expected=expected)


def _ranks(truth: Tensor, members: Tensor, weights: Tensor) -> Tensor:
    """Return (r + 1/2) / (K + 1), r the draws below the truth and half its ties."""
    size = 1 / weights.square().sum(dim=1)  # K, or the effective number
    below = (weights * (members < truth)).sum(dim=1)
    below = below + (weights * (members == truth)).sum(dim=1) / 2
    return (size * below + 0.5) / (size + 1)


def _fewer(size: Tensor) -> Tensor:
    """Return E t² of a truth among K draws over that of a draw among K − 1 others.

    E t² = (1 + 1/K) (K − 1) / (K − 3) for Gaussian draws.
    """
    size = size.clamp_min(5)

    def mean_square(count: Tensor) -> Tensor:
        return (1 + 1 / count) * (count - 1) / (count - 3)

    return mean_square(size) / mean_square(size - 1)


def _standard_error(values: Tensor) -> float:
    if len(values) < 2:
        return math.inf
    return float(values.std()) / len(values) ** 0.5


def _z(values: Tensor) -> float:
    return abs(float(values.mean())) / max(_standard_error(values), 1e-300)


def _sign(value: float) -> int:
    return 1 if value >= 0 else -1
