r"""Features of data: what probes see of x on the data side.

There a bag is an observation x and its replicates x' ~ p(x' | θ'), θ' ~ q(θ | x). x may
be a short vector, a long series, an image, counts or a set of trials, and it may have
heavy tails. `DataFeatures` turns each into at most ten components, in four steps:

1. *Squash.* Each number of x becomes sign(z) log(1 + \|z\| / c), z = x − a. By default
   a is the median and c three standard scales, so that only the tails are changed. A
   number that is never negative may have a = 0 and a smaller c, which is its logarithm
   down to about c, if the spreads of different bags become more alike.
2. *Describe.* The named features are these numbers themselves where there are at most
   20; otherwise the few numbers whose variance between bags is largest beside that
   within bags, and the first principal components of all; from 8 numbers on also
   summaries that know the shape of x (mean, spread, quantiles, autocorrelations, for
   each channel); and the outputs of the user's embedding net, beside all others,
   because an embedding may have discarded just what is missing.
3. *Whiten* with the covariance W within bags, pooled over the training bags and shrunk
   towards its diagonal. A bag of ten members is too small for a covariance of its own.
4. *Discriminate.* Where θ' is wrong, x and its replicates differ as the data of
   different parameters do. So the components kept are those in which bags differ most
   from each other: eigenvectors of the covariance B of the bags' means, with λ_j the
   ratio of variances between and within bags. Component j has the standard deviation
   :math:`\sqrt{λ_j / (1 + λ_j)}` within bags, so distances between components count
   what θ decides and not what is noise.

A last feature is the mean squared distance of x from its bag, number by number, each in
units of the bag's own variance. Components miss numbers that are precise in some bags
only, as at the zeros of a series with multiplicative noise.

All of this is fitted to the training bags and treats all members of a bag alike, so
their exchangeability, and with it every p-value, stays intact.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sbi_colt.probes.networks import embed_xs
from sbi_colt.probes.scaling import (
    principal_axes,
    robust_scales,
    signed,
    squash,
)
from sbi_colt.probes.summaries import LEAST_SUMMARISED, summaries, summary_names

__all__ = ["DataFeatures"]

_MAX_RAW = 20  # numbers in x that are features themselves; more are projected
_NUM_CHOSEN = 4  # numbers of longer xs that are features themselves
_NUM_PROJECTED = 12  # principal components of longer xs
_NUM_EMBEDDED = 8  # principal components of the embedding net's outputs
_NUM_KEPT = 10  # components that probes see
_LINEAR = 3.0  # up to this many scales values are hardly squashed
_LOGARITHMIC = (1.0, 0.1, 0.01)  # c of a logarithm, in medians
_PREFERENCE = 0.8  # a logarithm must make spreads this much more alike
_LEAST_SHRINKAGE = 0.05  # of the correlations within bags
_LEAST_WEIGHT = 0.02  # of a component in which bags do not differ
_DISTANCE_SPREAD = 0.5  # within bags, of the distance from the bag
_LARGEST = 1e300
_NUM_ROWS = 500  # xs that scales and principal components are taken from
_CHUNK = 2**21  # numbers of xs that are described at once: 16 MiB


class DataFeatures(nn.Module):
    """A map from bags of data ``(n, M + 1, D)`` to features ``(n, M + 1, m + 1)``.

    Use `DataFeatures.fit`, then `of_bags`. The state is a few buffers, all in
    ``state_dict``. The module's docstring says what the features are, ``names`` names
    them; `forward` returns the components alone, of data that are in no bag, and
    `describe` the named features behind the components.

    Args:
        x_shape: Shape of one x, of D numbers.
        embedding_net: A network from a batch of standardised xs to vectors; a frozen
            copy is kept.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> levels = torch.randn(30, 1, 1, generator=generator)
        >>> members = levels + torch.randn(30, 10, 400, generator=generator)
        >>> features = DataFeatures.fit(members, (400,))
        >>> features.of_bags(members).shape  # 30 bags of a series and 9 replicates
        torch.Size([30, 10, 11])
        >>> features.feature_names[-1], features.names[-1]
        ('autocorrelation of absolute deviations', 'distance from the bag')
    """

    origin: Tensor
    unit: Tensor
    middle: Tensor
    scale: Tensor
    x_mean: Tensor
    x_scale: Tensor
    chosen: Tensor
    centre: Tensor
    axes: Tensor
    embedded_centre: Tensor
    embedded_axes: Tensor
    feature_middle: Tensor
    feature_scale: Tensor
    projection: Tensor
    loadings: Tensor
    distance_unit: Tensor

    def __init__(self, x_shape: Sequence[int], embedding_net: nn.Module | None = None):
        super().__init__()
        self.x_shape = tuple(x_shape)
        net = copy.deepcopy(embedding_net)
        self.embedding_net = None if net is None else net.requires_grad_(False).eval()
        size = math.prod(self.x_shape)
        vectors = ("origin", "unit", "middle", "scale", "x_mean", "x_scale", "centre")
        for name in vectors:
            self._buffer(name, (size,))
        self.register_buffer("chosen", torch.arange(size))
        self._buffer("axes", (size, 0))
        for name in ("embedded_centre", "feature_middle", "feature_scale"):
            self._buffer(name, (0,))
        for name in ("embedded_axes", "projection", "loadings"):
            self._buffer(name, (0, 0))
        self._buffer("distance_unit", ())

    def _buffer(self, name: str, shape: tuple[int, ...]) -> None:
        self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    @classmethod
    def fit(
        cls,
        members: Tensor,
        x_shape: Sequence[int],
        embedding_net: nn.Module | None = None,
    ) -> DataFeatures:
        """Fit the features to training bags.

        Args:
            members: Flattened data with shape ``(n, M + 1, D)``; the observation may be
                at any place in its bag.
            x_shape: Shape of one x.
            embedding_net: A network from a batch of standardised xs to vectors.
        """
        self = cls(x_shape, embedding_net).to(members.device)
        members = members.double().clamp(-_LARGEST, _LARGEST)
        some = members[: max(2, _NUM_ROWS // members.shape[1])]  # whole bags
        few = some.flatten(0, 1)  # (n (M + 1), D)
        self.origin, self.unit = _choose_squash(some)
        self.middle, self.scale = robust_scales(squash(few, self.origin, self.unit))
        self.x_mean, self.x_scale = _moments(few)
        if few.shape[1] > _MAX_RAW:
            self.chosen = _most_telling(self._squash(some), _NUM_CHOSEN)
            self.centre, self.axes = principal_axes(self._squash(few), _NUM_PROJECTED)
        if self.embedding_net is not None:
            self.embedded_centre, self.embedded_axes = principal_axes(
                self._embed(few), _NUM_EMBEDDED
            )
        features = self._features(members.flatten(0, 1))
        self.feature_middle, self.feature_scale = robust_scales(features)
        described = self.describe(members)  # (n, M + 1, f)
        self.projection = _discriminants(described)
        self.loadings = _correlations(described, described @ self.projection)
        spread = self._distances(members).var(dim=1, correction=0).mean().sqrt()
        self.distance_unit = torch.where(spread > 0, spread / _DISTANCE_SPREAD, 1.0)
        return self

    def of_bags(self, members: Tensor) -> Tensor:
        """Return the components of the members of bags and their distance from the bag.

        The last of the m + 1 columns is the mean over the numbers of x of
        (x_j − mean_j)² / variance_j, with the mean and variance of the whole bag. It
        sees what the components miss: numbers that are precise in some bags only.

        Args:
            members: Flattened data with shape ``(n, M + 1, D)``; the observation may be
                at any place in its bag.

        Returns:
            Features with shape ``(n, M + 1, m + 1)``.
        """
        distances = self._distances(members) / self.distance_unit
        return torch.cat([self(members), distances.unsqueeze(2)], dim=2)

    def _distances(self, members: Tensor) -> Tensor:
        """Return the distances of members from their bags, ``(n, M + 1)``."""
        step = max(1, _CHUNK // members[0].numel())
        parts = members.double().clamp(-_LARGEST, _LARGEST).split(step)
        return torch.cat([_distances_from_bag(self._squash(part)) for part in parts])

    def load_state_dict(self, state_dict, *args, **options):
        """Load a state; the sizes of buffers depend on the data that were fitted."""
        for name, buffer in self.named_buffers(recurse=False):
            if name in state_dict:
                empty = torch.empty_like(state_dict[name])
                setattr(self, name, empty.to(buffer.device))
        return super().load_state_dict(state_dict, *args, **options)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of what `of_bags` returns.

        A component is named with the feature most correlated with it.
        """
        features = self.feature_names
        leading = self.loadings.abs().argmax(dim=0).tolist()
        own = (f"component {i + 1} ({features[j]})" for i, j in enumerate(leading))
        return (*own, "distance from the bag")

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features that `describe` returns."""
        places = torch.cartesian_prod(*(torch.arange(n) for n in self.x_shape))
        places = places.reshape(-1, len(self.x_shape))[self.chosen.cpu()].tolist()
        own = [f"x[{', '.join(map(str, place))}]" for place in places]
        own += [f"principal component {i + 1}" for i in range(self.axes.shape[1])]
        if len(self.origin) >= LEAST_SUMMARISED:
            own += summary_names(self.x_shape)
        number = self.embedded_axes.shape[1]
        return (*own, *(f"embedding {i + 1}" for i in range(number)))

    def describe(self, values: Tensor) -> Tensor:
        """Return the named features of data, standardised, with shape ``(..., f)``.

        Args:
            values: Data with shape ``(..., D)`` or ``(..., *x_shape)``.
        """
        size = len(self.origin)
        if values.shape[-1:] != (size,):
            values = values.reshape(*values.shape[: -len(self.x_shape)], size)
        rows = values.reshape(-1, size).double().clamp(-_LARGEST, _LARGEST)
        features = self._features(rows)
        limit = _LINEAR * self.feature_scale
        features = squash(features, self.feature_middle, limit) * _LINEAR
        return features.reshape(*values.shape[:-1], -1)

    def forward(self, values: Tensor) -> Tensor:
        """Return the components of data, with shape ``(..., m)``, in double precision.

        Args:
            values: Data with shape ``(..., D)`` or ``(..., *x_shape)``.
        """
        return self.describe(values) @ self.projection

    def _features(self, rows: Tensor) -> Tensor:
        parts = rows.split(max(1, _CHUNK // rows.shape[1]))
        return torch.cat([self._features_of_part(part) for part in parts])

    def _features_of_part(self, rows: Tensor) -> Tensor:
        squashed = self._squash(rows)
        parts = [squashed[:, self.chosen], (squashed - self.centre) @ self.axes]
        if len(self.origin) >= LEAST_SUMMARISED:
            parts.append(summaries(squashed, self.x_shape))
        if self.embedding_net is not None:
            embedded = self._embed(rows) - self.embedded_centre
            parts.append(embedded @ self.embedded_axes)
        return torch.cat(parts, dim=1)

    def _squash(self, rows: Tensor) -> Tensor:
        return (squash(rows, self.origin, self.unit) - self.middle) / self.scale

    def _embed(self, rows: Tensor) -> Tensor:
        xs = ((rows - self.x_mean) / self.x_scale).clamp(-1e30, 1e30).float()
        with torch.no_grad():
            outputs = embed_xs(xs.reshape(-1, *self.x_shape), self.embedding_net)
        if not outputs.isfinite().all():
            raise ValueError(
                "embedding_net: expected finite features of every x and replicate, got "
                "NaN or infinity."
            )
        return outputs.double()


def _distances_from_bag(members: Tensor) -> Tensor:
    """Return the mean of squared standardised numbers of ``(n, M, D)``, ``(n, M)``."""
    squares = (members - members.mean(dim=1, keepdim=True)).square()
    variances = squares.mean(dim=1, keepdim=True)
    floor = torch.where(variances > 0, variances, 1.0)
    return (squares / floor).mean(dim=2)


def _moments(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and standard deviations of columns; constant ones have scale 1."""
    unit = rows.abs().amax(dim=0).clamp_min(1e-300)  # squares would overflow
    scaled = rows / unit
    spread = scaled.std(dim=0)
    spread = torch.where(spread > 1e-12, spread * unit, 1.0)
    return scaled.mean(dim=0) * unit, spread


def _choose_squash(members: Tensor) -> tuple[Tensor, Tensor]:
    """Return a and c of `squash` for each column of bags ``(n, M, D)``.

    The choice makes the spreads of the bags most alike: the standard deviation of their
    logarithms, over bags, is least.
    """
    rows = members.flatten(0, 1)
    middle, scale = robust_scales(rows)
    size = torch.where(middle > 0, middle, scale)
    zero = torch.zeros_like(middle)
    choices = [(middle, _LINEAR * scale), *((zero, c * size) for c in _LOGARITHMIC)]
    negative = (rows < 0).any(dim=0)
    if negative.all():
        return choices[0]
    unlike = torch.stack([_unlikeness(squash(members, *c)) for c in choices])
    unlike[0] *= _PREFERENCE
    unlike[1:, negative] = torch.inf
    best = unlike.argmin(dim=0, keepdim=True)
    origins, units = (torch.stack(part) for part in zip(*choices, strict=True))
    return origins.gather(0, best)[0], units.gather(0, best)[0]


def _unlikeness(members: Tensor) -> Tensor:
    """Return how much the log variances of bags ``(n, M, D)`` differ, ``(D,)``."""
    variances = members.var(dim=1)  # (n, D)
    floor = 1e-3 * variances.mean(dim=0) + 1e-300
    return (variances + floor).log().std(dim=0, correction=0)


def _most_telling(members: Tensor, number: int) -> Tensor:
    """Return the places of the numbers of bags ``(n, M, D)`` in which bags differ most.

    They have the largest ratios of variances between bags and within bags.
    """
    within = members.var(dim=1, correction=0).mean(dim=0)  # (D,)
    between = members.mean(dim=1).var(dim=0, correction=0)
    ratios = torch.where(within > 0, between / within.clamp_min(1e-300), 0.0)
    return ratios.topk(number).indices.sort().values


def _discriminants(features: Tensor) -> Tensor:
    """Return the projection on discriminant components, with shape ``(f, m)``.

    Args:
        features: Named features of the training bags, with shape ``(n, M + 1, f)``.
    """
    num_bags, size, count = features.shape
    means = features.mean(dim=1)  # (n, f)
    centred = features - means.unsqueeze(1)
    degrees = num_bags * max(size - 1, 1)
    within = torch.einsum("nma,nmb->ab", centred, centred) / degrees
    total = features.flatten(0, 1).var(dim=0, correction=0)
    # A floor, for features that are constant within bags; constant ones have scale 1.
    scale = (within.diagonal() + 1e-12 * total).sqrt()
    scale = torch.where(total > 0, scale, 1.0)
    correlation = within / scale.outer(scale)
    shrinkage = min(1.0, max(_LEAST_SHRINKAGE, count / degrees))
    correlation = (1 - shrinkage) * correlation
    correlation.diagonal().fill_(1.0)
    whiten = torch.linalg.inv(torch.linalg.cholesky(correlation)).T / scale.unsqueeze(1)
    apart = (means - means.mean(dim=0)) @ whiten
    between = apart.T @ apart / max(num_bags - 1, 1)
    between.diagonal().sub_(1 / size)  # the noise of a mean of M + 1 members
    ratios, directions = torch.linalg.eigh(between)
    ratios, directions = ratios.flip(0)[:_NUM_KEPT], directions.flip(1)[:, :_NUM_KEPT]
    weights = (ratios.clamp_min(0) / (1 + ratios.clamp_min(0))).clamp_min(_LEAST_WEIGHT)
    return whiten @ signed(directions) * weights.sqrt()


def _correlations(features: Tensor, components: Tensor) -> Tensor:
    """Return the correlations of features and components over all members."""
    both = torch.cat([features, components], dim=2).flatten(0, 1)
    both = both - both.mean(dim=0)
    both = both / both.square().sum(dim=0).sqrt().clamp_min(1e-300)
    count = features.shape[2]
    return both[:, :count].T @ both[:, count:]  # (f, m)
