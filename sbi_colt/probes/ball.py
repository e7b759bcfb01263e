r"""Balls: distances of a bag's members from a centre, in the geometry of an embedding.

.. math:: d_φ(θ, θ_l(x)) = ‖φ(θ) - φ(θ_l(x))‖_2

is the score of Chen, Bansal and Scott (2025), whose ranks are the ball probabilities
of CoLT. The centre θ_l(x) and the embedding φ can be learned (Algorithm 1), both or
one of them, or fixed: with the posterior mean as the centre and no embedding the score
is the Mahalanobis distance; with a random centre it is that of TARP.
"""

from __future__ import annotations

import copy
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from sbi_colt.checks import check_choice, check_integer
from sbi_colt.probes.bags import Bags
from sbi_colt.probes.base import Embedding, Probe
from sbi_colt.probes.coordinates import Coordinates, Scales
from sbi_colt.probes.networks import MLP, embed_xs, linear_map
from sbi_colt.probes.training import Training

__all__ = ["BallProbe"]

Centre = Literal["learned", "origin", "random"]
Geometry = Literal["identity", "mlp", "residual", "custom"]

# Rows of members that one pass of φ sees at a time outside training.
_CHUNK = 2**17


class BallProbe(Probe):
    """Distances of a bag's members from a centre θ_l(x), in the geometry of φ.

    Args:
        name: The name in reports.
        centre: ``"learned"``: θ_l(x) is a network. ``"origin"``: the zero of the
            coordinates, which is the posterior mean in ``"bag"`` coordinates.
            ``"random"``: a random affine function of x, drawn once.
        geometry: φ: ``"identity"``; ``"mlp"``, a network; ``"residual"``, the identity
            plus a network that starts at zero; ``"custom"``, the ``embedding`` of the
            configuration, a function of θ.
        coordinates: The coordinates of the points; ``"global"`` for a custom φ.
        num_hidden: Units per hidden layer of the networks.
        num_layers: Linear maps per network.
        **training: Fields of `sbi_colt.probes.training.Training`, such as
            ``max_epochs`` and ``learning_rate``.
    """

    def __init__(
        self,
        name: str = "ball",
        centre: Centre = "learned",
        geometry: Geometry = "residual",
        coordinates: Coordinates = "bag",
        num_hidden: int = 64,
        num_layers: int = 3,
        **training: Any,
    ):
        super().__init__(name, coordinates, Training(**training))
        check_choice("centre", centre, get_args(Centre))
        check_choice("geometry", geometry, get_args(Geometry))
        check_choice("coordinates", coordinates, get_args(Coordinates))
        if geometry == "custom" and coordinates != "global":
            raise ValueError(
                'coordinates: expected "global" with a custom embedding, which is a '
                f"function of θ, got {coordinates!r}."
            )
        self.centre, self.geometry = centre, geometry
        self.num_hidden = check_integer("num_hidden", num_hidden, least=1)
        self.num_layers = check_integer("num_layers", num_layers, least=1)
        self.localizer: nn.Module | None = None
        self.embedding: Embedding | None = None

    def prepare(
        self,
        scales: Scales,
        x_example: Tensor,
        generator: torch.Generator,
        embedding_net: nn.Module | None,
        embedding: Embedding | None,
    ) -> None:
        """Make the networks.

        A copy of ``embedding_net`` is trained along with the centre; parameters whose
        ``requires_grad`` is off stay as they are. The network is given what the probe
        sees: standardised xs, or raw ones in ``"raw"`` coordinates.
        """
        dim = len(scales.theta_mean)
        size = (self.num_hidden, self.num_layers, generator)
        if self.centre != "origin":
            net = copy.deepcopy(embedding_net)
            with torch.no_grad():
                num_features = embed_xs(x_example, net).shape[1]
            if self.centre == "learned":
                in_bag = self.coordinates in ("bag", "centred")
                head = MLP(num_features, dim, *size, start_at_zero=in_bag)
            else:
                head = _random_head(num_features, dim, generator)
            self.localizer = _Localizer(net, head)
            if self.centre == "random":
                self.localizer.requires_grad_(False)
        if self.geometry == "mlp":
            self.embedding = MLP(dim, dim, *size)
        elif self.geometry == "residual":
            self.embedding = _Residual(MLP(dim, dim, *size, start_at_zero=True))
        elif self.geometry == "custom":
            self.embedding = _OfTheta(_checked_embedding(embedding, dim), scales)

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the distances of points from the centre at their x, ``(n, S)``."""
        return self._distances(points, self.locate(bags))

    def locate(self, bags: Bags) -> Tensor:
        """Return θ_l(x), with shape ``(n, d)``."""
        if self.localizer is None:
            shape = (len(bags), bags.points.shape[-1])
            return torch.zeros(shape, device=bags.points.device)
        return self.localizer(bags.xs)

    def _distances(self, points: Tensor, centre: Tensor) -> Tensor:
        """Return the distances ``(n, S)``; large inputs are taken in blocks of bags."""
        step = max(1, _CHUNK // points.shape[1])
        if len(points) > step:
            parts = zip(points.split(step), centre.split(step), strict=True)
            return torch.cat([self._distances(*part) for part in parts])
        if self.embedding is not None:
            embedded = self.embedding(points.flatten(0, 1))
            points = embedded.unflatten(0, points.shape[:2])
            centre = self.embedding(centre)
        return torch.linalg.vector_norm(points - centre.unsqueeze(1), dim=-1)


class _Localizer(nn.Module):
    """θ_l(x): embed x and map it to a point."""

    def __init__(self, embedding_net: nn.Module | None, head: nn.Module):
        super().__init__()
        self.embedding_net = embedding_net
        self.head = head

    def forward(self, xs: Tensor) -> Tensor:
        return self.head(embed_xs(xs, self.embedding_net))


def _random_head(num_features: int, dim: int, generator: torch.Generator) -> nn.Linear:
    """Return a random affine map whose values have unit variance at standardised xs."""
    head = linear_map(num_features, dim, generator)
    nn.init.normal_(head.weight, std=(2 * num_features) ** -0.5, generator=generator)
    nn.init.normal_(head.bias, std=0.5**0.5, generator=generator)
    return head


class _Residual(nn.Module):
    """φ(z) = z + r(z), with r a network that starts at zero."""

    def __init__(self, residual: MLP):
        super().__init__()
        self.residual = residual

    def forward(self, points: Tensor) -> Tensor:
        return points + self.residual(points)


class _OfTheta(nn.Module):
    """A user's φ, which expects θ itself, behind standardised coordinates."""

    mean: Tensor
    scale: Tensor

    def __init__(self, embedding: Embedding, scales: Scales):
        super().__init__()
        self.register_buffer("mean", scales.theta_mean.float())
        self.register_buffer("scale", scales.theta_scale.float())
        self.embedding = embedding

    def forward(self, points: Tensor) -> Tensor:
        return self.embedding(self.mean + self.scale * points)


def _checked_embedding(embedding: Any, dim: int) -> Embedding:
    if not callable(embedding):
        raise TypeError(
            "embedding: expected an nn.Module or a callable from (n, d) to (n, e), "
            f"got {type(embedding).__name__}."
        )
    embedding = copy.deepcopy(embedding)
    with torch.no_grad():
        points = embedding(torch.zeros(2, dim))
    if not isinstance(points, Tensor) or points.ndim != 2 or len(points) != 2:
        got = tuple(points.shape) if isinstance(points, Tensor) else type(points)
        raise ValueError(
            f"embedding: expected (2, e) for an input of (2, {dim}), got {got}."
        )
    return embedding
