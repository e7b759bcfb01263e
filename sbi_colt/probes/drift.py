r"""A probe of the mean error that x predicts.

The errors of the training truths, in bag coordinates, are regressed on x by kernel
ridge regression. The score of a point z at x is minus its projection on the predicted
error, :math:`-z · \hat e(x)`: a ball whose centre is far away in that direction.

Ranks depend only on the direction of the prediction. So the kernel's length and the
penalty are chosen by the mean projection of left-out errors on the predicted
directions, not by squared errors, which prefer to predict almost nothing where x tells
little. At most 500 pairs choose the kernel and at most 1000 are regressed, because the
cost is cubic in their number.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from sbi_colt.checks import check_choice
from sbi_colt.probes.bags import Bags
from sbi_colt.probes.base import Embedding, Probe
from sbi_colt.probes.coordinates import Coordinates, Scales
from sbi_colt.probes.networks import embed_xs

__all__ = ["DriftProbe"]

_MAX_REGRESSED = 1000
_MAX_COMPARED = 500
_LENGTHS = (0.35, 0.5, 0.7, 1.0, 2.0)  # of the kernel, in median distances of xs
_PENALTIES = tuple(10.0 ** (step / 2) for step in range(-4, 9))


class DriftProbe(Probe):
    """Minus the projection on the mean error that x predicts.

    Args:
        name: The name in reports.
        coordinates: The coordinates of the points, centred at the mean of each bag.
    """

    anchors: Tensor
    weights: Tensor
    length: Tensor

    def __init__(self, name: str = "drift", coordinates: Coordinates = "bag"):
        super().__init__(name, coordinates)
        check_choice("coordinates", coordinates, ("bag", "centred"))
        self.embedding_net: nn.Module | None = None
        for own, size in (("anchors", (0, 1)), ("weights", (0, 1)), ("length", ())):
            self.register_buffer(own, torch.ones(size))

    def prepare(
        self,
        scales: Scales,
        x_example: Tensor,
        generator: torch.Generator,
        embedding_net: nn.Module | None,
        embedding: Embedding | None,
    ) -> None:
        """Take a frozen copy of the network whose features errors are regressed on."""
        if embedding_net is not None:
            net = copy.deepcopy(embedding_net)
            self.embedding_net = net.requires_grad_(False).eval()
        with torch.no_grad():
            embed_xs(x_example, self.embedding_net)  # raises if the network is wrong

    def solve(self, bags: Bags, generator: torch.Generator) -> None:
        """Regress the truths' errors on x."""
        chosen = torch.randperm(len(bags), generator=generator)[:_MAX_REGRESSED]
        anchors = self._features(bags.xs[chosen])  # (m, F)
        errors = bags.points[chosen, 0].double()  # (m, d)
        gaps = torch.cdist(anchors, anchors)
        median = gaps[gaps > 0].median() if (gaps > 0).any() else gaps.new_ones(())
        few = gaps[:_MAX_COMPARED, :_MAX_COMPARED]
        self.length = max(
            (share * median for share in _LENGTHS),
            key=lambda length: _regress(_kernel(few, length), errors[: len(few)])[0],
        )
        self.weights = _regress(_kernel(gaps, self.length), errors)[1]
        self.anchors = anchors

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the scores of points with shape ``(n, S, d)``, ``(n, S)``."""
        gaps = torch.cdist(self._features(bags.xs), self.anchors)
        drift = _kernel(gaps, self.length) @ self.weights  # (n, d)
        return -torch.einsum("nsd,nd->ns", points, drift.to(points))

    def _features(self, xs: Tensor) -> Tensor:
        with torch.no_grad():
            features = embed_xs(xs, self.embedding_net).double()
        if not features.isfinite().all():
            raise ValueError(
                f"{'xs' if self.embedding_net is None else 'embedding_net'}: expected "
                "finite features of every x, got NaN or infinity; check that xs have "
                "the same scale as in training, and the embedding net if there is one."
            )
        return features


def _kernel(gaps: Tensor, length: Tensor) -> Tensor:
    """Return a Gaussian kernel plus a constant, which allows errors to have a mean."""
    return (-(gaps / length).square() / 2).exp() + 1


def _regress(kernel: Tensor, errors: Tensor) -> tuple[float, Tensor]:
    """Return the best penalty's gain, and the weights ``(m, d)`` of the kernels.

    The gain is the mean projection of left-out errors on their predicted directions.
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
