r"""Probes that are solved for rather than trained, and those that need neither.

Like a `BallProbe`, each gives every member of a bag a number, small where it is "near";
the members with small numbers form the region that a report calls the ball. (With the
number itself as the embedding φ it is a ball: Chen, Bansal and Scott 2025 allow any φ.)

`DensityProbe`
    How densely the bag's own members lie around a point: the ranks of highest-density
    regions, in any shape of posterior and with nothing to train. Bandwidths are shares
    of the bag's mean squared distance; without one, the mean distance itself counts.
`DriftProbe`
    Which way the mean error points at this x. The errors of the training truths, in
    bag coordinates, are regressed on x by kernel ridge regression; the number is minus
    the projection on the prediction, a ball whose centre is far off in its direction.
    Ranks see the direction alone, so the kernel and the penalty are chosen by what the
    left-out errors have along it, not by squared errors, which prefer to predict nearly
    nothing where x tells little. Of many pairs, 500 choose the kernel and 1000 are
    regressed: time must not grow faster than their number.
`CoordinateProbe`
    One parameter by itself, as in simulation-based calibration.
`ReliefProbe`
    Whether a point lies on a crest of q or beside it: the distance of its eighth
    nearest draw by that of the 64th, among draws of all training pairs. It sees fine
    structure that the draws of one x are too few to show; for one or two parameters.

``quadratics``, ``blend`` and ``classifier`` have more of the kind. All treat the
members of a bag alike. Coordinates are those of `sbi_colt.probes.coordinates`.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from sbi_colt.probes.ball import Probe, ProbeSpec, embed_xs
from sbi_colt.probes.coordinates import bounded

__all__ = ["CoordinateProbe", "DensityProbe", "DriftProbe", "ReliefProbe"]

# Members of a bag that serve as kernel centres, and for a mean distance a quarter of
# them: the cost stays linear in the bag's size.
_NUM_CENTRES = 256
_NUM_ORIGIN = 32  # members whose median is the origin of distances
# Distances held at once: 2**21 floats are 8 MiB.
_CHUNK = 2**21
# Training pairs that the regression sees, and those that its kernels are compared on;
# the cost is cubic in them.
_MAX_REGRESSED = 1000
_MAX_COMPARED = 500
# Densities of members by members, bandwidth and version of the tensor.
_KNOWN: MutableMapping[Tensor, dict[Any, Tensor]] = WeakTensorKeyDictionary()
_LENGTHS = (0.35, 0.5, 0.7, 1.0, 2.0)  # of the kernel, in median distances of xs
_PENALTIES = tuple(10.0 ** (step / 2) for step in range(-4, 9))
# Draws of the training pairs that make up the relief, and the neighbours compared.
_NUM_RELIEF = 20_000
_NEIGHBOURS = (8, 64)


class CoordinateProbe(Probe):
    """One parameter.

    Args:
        spec: The probe's specification; ``index`` is the parameter's place.
        dim: Dimension of θ.
    """

    def __init__(self, spec: ProbeSpec, dim: int):
        super().__init__(spec)
        if spec.coordinates == "bag":
            raise ValueError(
                'ProbeSpec.coordinates: expected "global" or "raw" for one parameter '
                'by itself, got "bag", which mixes parameters.'
            )
        if not 0 <= spec.index < dim:
            raise ValueError(
                f"ProbeSpec.index: expected the place of one of {dim} parameters, got "
                f"{spec.index}."
            )

    def scores(self, points: Tensor, bags: Tensor, xs: Tensor) -> Tensor:
        """Return the parameter of points with shape ``(n, S, d)``, ``(n, S)``."""
        return points[..., self.spec.index]


class DensityProbe(Probe):
    """Minus the log density of a bag at a point, or the mean distance of its members.

    Args:
        spec: The probe's specification; ``bandwidth`` is h² as a share of the mean
            squared distance, `None` for the mean distance.
    """

    def scores(self, points: Tensor, bags: Tensor, xs: Tensor) -> Tensor:
        """Return a number for points with shape ``(n, S, d)``, ``(n, S)``.

        A point that is a member of the bag is not its own neighbour.
        """
        return self._scores(points, bags, own=False)

    def forward(self, members: Tensor, xs: Tensor) -> Tensor:
        """Return the numbers of all members, each by the other ones.

        They are remembered as long as the members live, unchanged: other probes blend
        them.
        """
        if members.is_inference():  # such tensors do not say when they change
            return self._scores(members, members, own=True)
        known = _KNOWN.get(members)
        if known is None:
            known = _KNOWN[members] = {}
        key = (self.spec.bandwidth, members._version)
        if key not in known:
            known[key] = self._scores(members, members, own=True)
        return known[key]

    def _scores(self, points: Tensor, bags: Tensor, own: bool) -> Tensor:
        points, bags = bounded(points), bounded(bags)
        # From among the members: far from zero, squares of small distances drown.
        origin = bags[:, :_NUM_ORIGIN].median(dim=1, keepdim=True).values
        points, bags = points - origin, bags - origin
        # `Draws` come in no order, so its first members are any members.
        centres = bags[:, : _NUM_CENTRES if self.spec.bandwidth else _NUM_CENTRES // 4]
        step = max(1, _CHUNK // (points.shape[1] * centres.shape[1]))
        parts = zip(points.split(step), centres.split(step), strict=True)
        return torch.cat([self._part(*part, own) for part in parts])

    def _part(self, points: Tensor, centres: Tensor, own: bool) -> Tensor:
        if own:
            squares = torch.cdist(points, centres).square_()  # (n, S, C)
            itself = squares.diagonal(dim1=1, dim2=2)
            is_centre = torch.arange(points.shape[1]) < centres.shape[1]
            others = centres.shape[1] - is_centre.to(points)  # (S,)
        else:  # by differences, so that a point is at distance 0 from itself
            mode = "donot_use_mm_for_euclid_dist"
            squares = torch.cdist(points, centres, compute_mode=mode).square_()
            itself = squares == 0
            itself &= itself.cumsum(dim=2) == 1  # one of equal members
            others = (~itself).sum(dim=2)  # (n, S)
        others = others.clamp_min(1)
        if self.spec.bandwidth is None:
            _fill(squares, itself, 0.0)
            return squares.sqrt_().sum(dim=2) / others
        between = torch.cdist(centres, centres).square_().mean(dim=(1, 2))
        width = 2 * self.spec.bandwidth * between.clamp_min(1e-30)
        exponents = squares.div_(-width.reshape(-1, 1, 1))
        _fill(exponents, itself, -torch.inf)
        # As in logsumexp, but in place; finite where all centres are too far.
        limits = torch.finfo(exponents.dtype)
        largest = exponents.amax(dim=2).clamp_min_(limits.min)
        total = exponents.sub_(largest.unsqueeze(2)).exp_().sum(dim=2)
        return others.log() - total.clamp_min_(limits.tiny).log() - largest


def _fill(values: Tensor, where: Tensor, value: float) -> None:
    """Fill in place where a mask is true, or all of a view."""
    if where.dtype == torch.bool:
        values.masked_fill_(where, value)
    else:
        where.fill_(value)


class DriftProbe(Probe):
    """Minus the projection on the mean error that x predicts.

    Args:
        spec: The probe's specification.
        dim: Dimension of θ.
        x_example: A few xs as networks see them.
        embedding_net: A network from xs to the features that errors are regressed on.
    """

    anchors: Tensor
    weights: Tensor
    length: Tensor

    def __init__(
        self,
        spec: ProbeSpec,
        dim: int,
        x_example: Tensor,
        embedding_net: nn.Module | None = None,
    ):
        super().__init__(spec)
        self.embedding_net = embedding_net
        with torch.no_grad():
            num_features = embed_xs(x_example, embedding_net).shape[1]
        self.register_buffer("anchors", torch.zeros(0, num_features))
        self.register_buffer("weights", torch.zeros(0, dim))
        self.register_buffer("length", torch.ones(()))

    def solve(self, members: Tensor, xs: Tensor, generator: torch.Generator) -> None:
        """Regress the truths' errors on x; length and penalty by leave-one-out.

        Chosen are those whose predictions point where the errors left out go.
        """
        chosen = torch.randperm(len(xs), generator=generator)[:_MAX_REGRESSED]
        anchors = self._features(xs[chosen])  # (m, F)
        errors = members[chosen, 0].double()  # (m, d)
        gaps = torch.cdist(anchors, anchors)
        median = gaps[gaps > 0].median() if (gaps > 0).any() else gaps.new_ones(())
        few = gaps[:_MAX_COMPARED, :_MAX_COMPARED]
        self.length = max(
            (share * median for share in _LENGTHS),
            key=lambda length: _regress(_kernel(few, length), errors[: len(few)])[0],
        )
        self.weights = _regress(_kernel(gaps, self.length), errors)[1]
        self.anchors = anchors

    def scores(self, points: Tensor, bags: Tensor, xs: Tensor) -> Tensor:
        """Return a number for points with shape ``(n, S, d)``, ``(n, S)``."""
        gaps = torch.cdist(self._features(xs), self.anchors)
        drift = _kernel(gaps, self.length) @ self.weights  # (n, d)
        return -torch.einsum("nsd,nd->ns", points, drift.to(points))

    def _features(self, xs: Tensor) -> Tensor:
        with torch.no_grad():
            features = embed_xs(xs, self.embedding_net).double()
        if not features.isfinite().all():
            raise ValueError(
                f"{'xs' if self.embedding_net is None else 'embedding_net'}: expected "
                "finite features of every x, got NaN or infinity; check the sizes of "
                "xs against those of training, and the embedding net if there is one."
            )
        return features


def _kernel(gaps: Tensor, length: Tensor) -> Tensor:
    """Return a Gaussian kernel plus a constant, which lets errors have a mean."""
    return (-(gaps / length).square() / 2).exp() + 1


def _regress(kernel: Tensor, errors: Tensor) -> tuple[float, Tensor]:
    """Return what the best penalty gains, and the weights ``(m, d)`` of the kernels.

    The gain is the mean projection of errors on the directions that the others predict.
    """
    values, vectors = torch.linalg.eigh(kernel)
    rotated, squares = vectors.T @ errors, vectors.square()

    def gain(penalty: float) -> float:
        # The smoother's eigenvalues; its diagonal is the leverage.
        shares = (values / (values + penalty)).clamp_min(0).unsqueeze(1)
        fitted, leverage = vectors @ (shares * rotated), squares @ shares
        left_out = (errors - fitted) / (1 - leverage).clamp_min(1e-9)
        predicted = nn.functional.normalize(errors - left_out, eps=1e-30)
        return float((predicted * errors).sum(dim=1).mean())

    gains = {penalty: gain(penalty) for penalty in _PENALTIES}
    penalty = max(gains, key=gains.__getitem__)
    return gains[penalty], vectors @ (rotated / (values + penalty).unsqueeze(1))


class ReliefProbe(Probe):
    """Distance of a near neighbour by that of a farther one, among training draws.

    Args:
        spec: The probe's specification.
        dim: Dimension of θ.
    """

    draws: Tensor

    def __init__(self, spec: ProbeSpec, dim: int):
        super().__init__(spec)
        self.register_buffer("draws", torch.zeros(0, dim))
        self._tree: KDTree | None = None

    def solve(self, members: Tensor, xs: Tensor, generator: torch.Generator) -> None:
        """Keep a random part of the training pairs' draws."""
        draws = members[:, 1:].flatten(0, 1)
        chosen = torch.randperm(len(draws), generator=generator)[:_NUM_RELIEF]
        self.draws, self._tree = draws[chosen], None

    def load_state_dict(self, state_dict, *args, **options):
        """Load the draws of another relief."""
        self._tree = None
        return super().load_state_dict(state_dict, *args, **options)

    def scores(self, points: Tensor, bags: Tensor, xs: Tensor) -> Tensor:
        """Return a number for points with shape ``(n, S, d)``, ``(n, S)``."""
        tree = self._tree = self._tree or KDTree(self.draws.cpu().numpy())
        places: Any = [min(k, len(self.draws)) for k in _NEIGHBOURS]
        flat = bounded(points).reshape(-1, points.shape[-1]).cpu().numpy()
        distances = np.concatenate(
            [tree.query(part, k=places)[0] for part in _parts(flat)]
        )
        near, far = np.maximum(distances, 1e-30).T
        ratios = torch.from_numpy(np.log(near / far)).to(points)
        return ratios.reshape(points.shape[:2])


def _parts(rows: np.ndarray) -> Iterator[np.ndarray]:
    step = _CHUNK // _NEIGHBOURS[-1]
    for start in range(0, len(rows), step):
        yield rows[start : start + step]
