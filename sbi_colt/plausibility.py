r"""Could the simulator have made x_o? Tensors in, an exact p-value out.

Null hypothesis: :math:`x_o \sim p(x)`, the data that prior and simulator make together.
The n references are simulations from the prior, so under the null hypothesis x_o and
the references are exchangeable, and

.. math:: p = \frac{1 + \#\{i : s(x_i) \ge s(x_o)\}}{n + 1}

is exact for every score s that was fitted on other simulations, or that treats all
n + 1 alike (ties are broken at random). Several scores become one p-value by the same
idea once more: each score is ranked among all n + 1, the ranks of each x are combined
to one number, and that is ranked again.

The scores see x through a `Description` (robustly standardised numbers, principal
components where there are many, summaries that know the shape of x):

``neighbours``
    Mean distance to the nearest of the fitting simulations. It sees x_o off a curved
    or disconnected set of possible data.
``mahalanobis``
    Distance from the mean of all data in units of their covariance, in components and
    summaries; where there are many numbers, what the components leave over is one of
    the features.
``extreme``
    The farthest single number of x, by itself or given the other numbers, or the
    farthest component or summary. It sees one wrong number among many, and noise that
    is too small.
``predictive``
    With a posterior only. Replicates x' are simulated from draws θ' ~ q(θ | x), at x_o
    and at all references alike; the score is the distance of x from its replicates. It
    is exact whatever q is, because x_o and references are treated alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from sbi_colt.probes.summaries import LEAST_SUMMARISED, summaries, summary_names
from sbi_colt.results.plausibility_result import PlausibilityResult, StandingOut

__all__ = [
    "Description",
    "as_rows",
    "nearest",
    "nearness",
    "plausibility",
    "ranked_shares",
]

_MAX_RAW = 20  # numbers in x that are components themselves; more are projected
_NUM_COMPONENTS = 20  # principal components of longer xs
_LINEAR = 3.0  # up to this many standard deviations values are hardly squashed
_NUM_NEIGHBOURS = 3
_LEAST_SHRINKAGE = 0.02  # of the correlations of features
_LARGEST = 1e300
_NUM_STANDING_OUT = 5
_LEVEL = 0.05  # a feature stands out if its adjusted p-value is at most this


class Description:
    """What the scores see of data, fitted to simulations.

    Args:
        xs: Simulations, with shape ``(m, …)``.
    """

    def __init__(self, xs: Tensor):
        self.x_shape = tuple(xs.shape[1:])
        rows = as_rows(xs)
        self.middle, self.scale = _robust(rows)  # (D,)
        squashed = self.squashed(rows)
        size = squashed.shape[1]
        self.precision = None  # of few numbers, (D, D)
        if size > _MAX_RAW:
            number = min(_NUM_COMPONENTS, max(1, len(rows) // 4))
            self.axes = _principal_axes(squashed, number)  # (D, r)
        else:
            self.axes = torch.eye(size, dtype=rows.dtype)
            self.precision = torch.linalg.inv(_shrunk_covariance(squashed))
        self.left_scale = _robust(self._left(squashed))[1]  # (D,)
        features = self._raw_features(squashed)
        self.feature_middle, self.feature_scale = _robust(features)  # (f,)
        factor = torch.linalg.cholesky(_shrunk_covariance(_squash(self.features(rows))))
        self.whiten = torch.linalg.inv(factor).T  # (f, f)

    def numbers(self, rows: Tensor) -> Tensor:
        """Return standardised numbers, ``(N, D)``."""
        return (rows - self.middle) / self.scale

    def squashed(self, rows: Tensor) -> Tensor:
        """Return standardised numbers with short tails, ``(N, D)``."""
        return _squash(self.numbers(rows))

    def given_others(self, rows: Tensor) -> Tensor:
        """Return standardised numbers given the other numbers, ``(N, D)``."""
        return self._left(self.squashed(rows)) / self.left_scale

    def features(self, rows: Tensor) -> Tensor:
        """Return components, summaries and leftover, standardised, ``(N, f)``."""
        features = self._raw_features(self.squashed(rows))
        return (features - self.feature_middle) / self.feature_scale

    def whitened(self, rows: Tensor) -> Tensor:
        """Return uncorrelated features, ``(N, f)``."""
        return _squash(self.features(rows)) @ self.whiten

    @property
    def num_summaries(self) -> int:
        """How many of the last features are summaries."""
        size = math.prod(self.x_shape)
        return len(summary_names(self.x_shape)) if size >= LEAST_SUMMARISED else 0

    def _left(self, squashed: Tensor) -> Tensor:
        if self.precision is not None:  # regression of each number on all others
            centred = squashed @ self.precision
            return centred / self.precision.diagonal()
        return squashed - squashed @ self.axes @ self.axes.T

    def _raw_features(self, squashed: Tensor) -> Tensor:
        parts = [squashed @ self.axes]
        if self.precision is None:  # few numbers may all be near their middle
            left = self._left(squashed) / self.left_scale
            energy = left.square().mean(dim=1, keepdim=True)
            parts.append((energy + 1e-12).log())
        if self.num_summaries:
            parts.append(summaries(squashed, self.x_shape))
        return torch.cat(parts, dim=1)


def as_rows(xs: Tensor) -> Tensor:
    """Return data ``(N, …)`` as rows of doubles ``(N, D)``."""
    return xs.reshape(len(xs), -1).double().clamp(-_LARGEST, _LARGEST).cpu()


def _robust(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return medians and robust standard deviations of columns.

    Where more than half of the values are equal, the ordinary standard deviation
    serves; for a column that never changes, a millionth of its size.
    """
    middle = rows.median(dim=0).values
    gaps = (rows - middle).abs()
    scale = 1.4826 * gaps.median(dim=0).values
    scale = torch.where(scale > 0, scale, gaps.square().mean(dim=0).sqrt())
    return middle, torch.where(scale > 0, scale, 1e-6 * middle.abs().clamp_min(1.0))


def _squash(values: Tensor) -> Tensor:
    """Return sign(z) c log(1 + |z| / c): nearly z up to c, its logarithm beyond."""
    return _LINEAR * values.sign() * (values.abs() / _LINEAR).log1p()


def _shrunk_covariance(rows: Tensor) -> Tensor:
    """Return the covariance, shrunk towards its diagonal."""
    count, num = rows.shape
    covariance = rows.T.cov(correction=0).reshape(num, num)
    shrinkage = min(1.0, max(_LEAST_SHRINKAGE, num / count))
    diagonal = covariance.diagonal().clamp_min(1e-6)
    covariance = (1 - shrinkage) * covariance
    covariance.diagonal().copy_(diagonal)
    return covariance


def _principal_axes(rows: Tensor, number: int) -> Tensor:
    """Return the first principal axes, with shape ``(D, number)``."""
    centred = rows - rows.mean(dim=0)
    return torch.linalg.svd(centred, full_matrices=False).Vh[:number].T


def plausibility(
    x_o: Tensor,
    references: Tensor,
    fitting: Tensor,
    generator: torch.Generator,
    replicates: Tensor | None = None,
) -> PlausibilityResult:
    """Rank an observation among prior simulations.

    Null hypothesis: x_o comes from p(x), as the references do. The p-values are exact
    for every number n of references, any distribution of x, and any posterior.

    Args:
        x_o: The observation, finite, with shape ``(…)``.
        references: Simulations from the prior, with shape ``(n, …)``.
        fitting: Other simulations from the prior, ``(m, …)``, which fit the scores.
        generator: Breaks ties.
        replicates: Data simulated from M posterior draws at x_o, the first, and at each
            reference, with shape ``(M, n + 1, …)``. NaN where an x has none, because
            the posterior could not be sampled there or its draws not be simulated;
            such an x counts as the farthest from its replicates.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> xs = torch.randn(300, 5, generator=generator)
        >>> x_o = torch.tensor([0.0, 0.0, 0.0, 6.0, 0.0])
        >>> result = plausibility(x_o, xs[:99], xs[99:], generator)
        >>> result.p_value <= 0.05, result.standing_out[0].index
        (True, 3)
    """
    description = Description(fitting)
    rows = as_rows(torch.cat([x_o.unsqueeze(0).to(references), references]))
    fitted = as_rows(fitting)
    scores = {
        "neighbours": _distances(
            description.squashed(rows), description.squashed(fitted)
        ),
        "mahalanobis": description.whitened(rows).square().sum(dim=1),
        "extreme": _largest(description, rows),
    }
    missing, shown = 0.0, None
    if replicates is not None:
        simulated = replicates.reshape(*replicates.shape[:2], -1)
        there = simulated.isfinite().all(dim=2).all(dim=0).cpu()
        missing = float((~there[1:]).double().mean())
        shown = replicates[:, 0] if bool(there[0]) else None
        scores["predictive"] = _misfit(description, rows, simulated, there)
    ranked = {name: ranked_shares(own, generator) for name, own in scores.items()}
    p_value = ranked_shares(_combined(ranked), generator)[0]
    own = {name: one for name, one in ranked.items() if name != "predictive"}
    without = p_value
    if replicates is not None:
        without = ranked_shares(_combined(own), generator)[0]
    return PlausibilityResult(
        float(p_value),
        {name: float(own[0]) for name, own in ranked.items()},
        float(ranked["predictive"][0]) if replicates is not None else None,
        _standing_out(description, rows),
        num_references=len(references),
        num_fitting=len(fitting),
        num_replicates=0 if replicates is None else len(replicates),
        missing_share=missing,
        p_value_without_posterior=float(without),
        x_o=x_o,
        references=references,
        replicates=shown,
        score_values=scores,
    )


def ranked_shares(scores: Tensor, generator: torch.Generator) -> Tensor:
    """Return each member's p-value: the share with at least its score, ``(n + 1,)``.

    Ties are broken at random, so that each p-value is uniform on 1/(n + 1), …, 1 if the
    members are exchangeable.

    Example:
        >>> ranked_shares(torch.tensor([5.0, 1.0, 3.0, 4.0]), torch.Generator())
        tensor([0.2500, 1.0000, 0.7500, 0.5000], dtype=torch.float64)
    """
    count = len(scores)
    shuffled = torch.randperm(count, generator=generator)
    order = shuffled[scores[shuffled].argsort(descending=True, stable=True)]
    shares = torch.empty(count, dtype=torch.float64)
    shares[order] = torch.arange(1, count + 1, dtype=torch.float64) / count
    return shares


def nearness(x_o: Tensor, xs: Tensor, generator: torch.Generator) -> float:
    """Return the p-value of "x_o lies among these xs as they do among each other".

    The score is the mean distance to the nearest others, where x_o and all xs are
    treated alike. Null hypothesis: x_o and the xs are exchangeable. A small value says
    that the simulations xs (those of a focused run, say) do not come near x_o.

    Args:
        x_o: The observation, with shape ``(…)``.
        xs: Simulations, with shape ``(n, …)``.
        generator: Breaks ties.
    """
    together = torch.cat([x_o.unsqueeze(0).to(xs), xs])
    points = Description(together).squashed(as_rows(together))
    gaps = torch.cdist(points, points)
    gaps.fill_diagonal_(math.inf)
    number = min(_NUM_NEIGHBOURS, len(xs))
    scores = gaps.topk(number, largest=False).values.mean(dim=1)
    return float(ranked_shares(scores, generator)[0])


def nearest(x_o: Tensor, xs: Tensor, number: int, replicates: Tensor) -> Tensor:
    """Return the places of the data that are as near to an observation as replicates.

    Args:
        x_o: The observation, with shape ``(…)``.
        xs: Simulations, with shape ``(n, …)``.
        number: How many places at most.
        replicates: Simulations from posterior draws at x_o, with shape ``(m, …)``. No
            place is farther from x_o than half of these; without them all count.
    """
    description = Description(xs)

    def gaps_of(data: Tensor) -> Tensor:
        """Return distances from the observation."""
        rows = as_rows(torch.cat([x_o.unsqueeze(0), data]).to(xs))
        squashed = description.squashed(rows)
        return torch.cdist(squashed[:1], squashed[1:])[0]

    gaps = gaps_of(xs)
    reach = gaps_of(replicates).median() if len(replicates) else math.inf
    order = gaps.argsort()[:number]
    return order[gaps[order] <= reach]


def _combined(ranked: Mapping[str, Tensor]) -> Tensor:
    """Return one number for each member, large where a score is extreme, ``(n + 1,)``.

    Minus the smallest p-value. On ten simulators and seven kinds of misspecification it
    had a little more power than the sum of 1/p, and more than Fisher's product.
    """
    return -torch.stack(list(ranked.values())).amin(dim=0)


def _largest(description: Description, rows: Tensor) -> Tensor:
    """Return how far out the farthest number or feature of each x is, ``(n + 1,)``."""
    parts = (
        description.numbers(rows),
        description.given_others(rows),
        description.features(rows),
    )
    return torch.stack([part.abs().amax(dim=1) for part in parts]).amax(dim=0)


def _distances(points: Tensor, others: Tensor) -> Tensor:
    """Return the mean distance of points ``(N, f)`` to their nearest others."""
    number = min(_NUM_NEIGHBOURS, len(others))
    return torch.cdist(points, others).topk(number, largest=False).values.mean(dim=1)


def _misfit(
    description: Description, rows: Tensor, simulated: Tensor, there: Tensor
) -> Tensor:
    """Return how far each x is from its replicates, with shape ``(n + 1,)``.

    The difference of x and the mean of its replicates, in units of the covariance of
    these differences over all n + 1.

    Args:
        description: The description.
        rows: x_o and references, ``(n + 1, D)``.
        simulated: Replicates, with shape ``(M, n + 1, D)``.
        there: Which xs have replicates, ``(n + 1,)``.
    """
    misfit = rows.new_full((len(rows),), math.inf)
    if int(there.sum()) < 2:
        return misfit
    own = simulated[:, there.to(simulated.device)]
    points = description.whitened(as_rows(own.flatten(0, 1)))
    means = points.reshape(*own.shape[:2], -1).mean(dim=0)
    gaps = description.whitened(rows[there]) - means  # (k, f)
    factor = torch.linalg.cholesky(_shrunk_covariance(gaps))
    solved = torch.linalg.solve_triangular(factor, gaps.T, upper=False)
    misfit[there] = solved.square().sum(dim=0)
    return misfit


def _standing_out(description: Description, rows: Tensor) -> tuple[StandingOut, ...]:
    """Return the features in which the first row stands out, the farthest first."""
    numbers = description.numbers(rows)
    found = _farthest("number", numbers)
    known = {one.index for one in found}
    given = _farthest("given the others", description.given_others(rows))
    found += [one for one in given if one.index not in known]
    found = [
        replace(
            one,
            value=float(rows[0, one.index]),
            typical=float(description.middle[one.index]),
        )
        for one in found
        if one.index is not None
    ]
    if description.num_summaries:
        names = summary_names(description.x_shape)
        last = description.features(rows)[:, -description.num_summaries :]
        found += [
            replace(one, index=None, name=names[one.index or 0])
            for one in _farthest("summary", last)
        ]
    found.sort(key=lambda one: (one.p_value, -abs(one.deviation)))
    return tuple(found[:_NUM_STANDING_OUT])


def _farthest(kind: str, deviations: Tensor) -> list[StandingOut]:
    """Return the features of one kind in which the first row stands out.

    Args:
        kind: The kind of feature.
        deviations: Standardised features, with shape ``(n + 1, D)``.
    """
    sizes = deviations.abs()
    largest = sizes[1:].amax(dim=1)  # (n,), of each reference
    count = len(sizes)
    found = []
    for index in sizes[0].topk(min(_NUM_STANDING_OUT, sizes.shape[1])).indices.tolist():
        size = sizes[0, index]
        p_value = (1 + int((largest >= size).sum())) / count
        if p_value > _LEVEL:
            break
        beyond = float((sizes[1:, index] >= size).double().mean())
        own = float(deviations[0, index])
        found.append(StandingOut(kind, index, own, beyond, p_value))
    return found
