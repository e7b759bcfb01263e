r"""Probes: where to look, and with which ruler.

A probe gives each member of a bag (the true θ* and its K draws at one x) a number:
its distance from a centre θ_l(x) in the geometry of an embedding φ,

.. math:: d_φ(θ, θ_l(x)) = ‖φ(θ) - φ(θ_l(x))‖_2 .

`BallProbe` learns θ_l, φ, both or neither; ``probes``, ``quadratics``, ``blend`` and
``classifier`` have other kinds. All work in ``coordinates``.

This room knows tensors only.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from sbi_colt.probes.coordinates import Coordinates, Scales
from sbi_colt.probes.divergences import Divergence
from sbi_colt.stats.ranks import ball_ranks, straight_through_ranks

__all__ = [
    "MLP",
    "BallProbe",
    "Probe",
    "ProbeSpec",
]

Centre = Literal["learned", "origin", "random"]
Embedding = Literal["identity", "mlp", "residual", "custom"]
# In more dimensions draws are too few to show a relief, and neighbours cost more.
_MAX_RELIEF_DIM = 2

# Rows of members that one pass of φ sees at a time outside training.
_CHUNK = 2**17


@dataclass(frozen=True)
class ProbeSpec:
    """What a probe is made of.

    Args:
        name: The name in reports.
        centre: ``"learned"``, θ_l(x) is a network; ``"origin"``, the zero of the
            coordinates (the posterior mean in ``"bag"`` coordinates); ``"random"``, a
            random affine function of x, drawn once.
        embedding: φ: ``"identity"``; ``"mlp"``, a network; ``"residual"``, the identity
            plus a network that starts at zero; ``"custom"``, the user's own, a function
            of θ (so it goes with ``"global"`` coordinates, undone before φ is called).
        coordinates: ``"raw"``, ``"global"`` or ``"bag"``.
        kind: ``"ball"``, or another name in `KINDS`, which have neither
            centre nor embedding: ``"density"``, ``"drift"``, ``"relief"``,
            ``"quadratic"``, ``"axes"``, ``"blend"``, ``"classifier"``,
            ``"coordinate"``, or a kind of your own.
        bandwidth: Of a density: squared, as a share of the mean squared distance in a
            bag; `None` for the mean distance itself.
        index: Which parameter a ``"coordinate"`` looks at.
    """

    name: str
    centre: Centre = "learned"
    embedding: Embedding = "identity"
    coordinates: Coordinates = "bag"
    kind: str = "ball"
    bandwidth: float | None = None
    index: int = 0

    def __post_init__(self):
        for field, choices in (
            ("centre", get_args(Centre)),
            ("embedding", get_args(Embedding)),
            ("coordinates", get_args(Coordinates)),
        ):
            if getattr(self, field) not in choices:
                raise ValueError(
                    f"ProbeSpec.{field}: expected one of {choices}, "
                    f"got {getattr(self, field)!r}."
                )
        if self.embedding == "custom" and self.coordinates != "global":
            raise ValueError(
                "ProbeSpec.coordinates: a custom embedding is a function of θ and "
                f'needs "global", got {self.coordinates!r}.'
            )
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise ValueError(
                "ProbeSpec.bandwidth: expected a number > 0 or None, got "
                f"{self.bandwidth!r}."
            )

    def fits(self, dim: int) -> bool:
        """Return whether such a probe makes sense for θ of a dimension."""
        return self.kind != "relief" or dim <= _MAX_RELIEF_DIM


def _linear(num_inputs: int, num_outputs: int, generator: torch.Generator) -> nn.Linear:
    """Return a linear map with torch's default initialisation from a generator."""
    # Without skip_init the global random state would move.
    linear = nn.utils.skip_init(nn.Linear, num_inputs, num_outputs)
    assert isinstance(linear, nn.Linear)
    bound = max(num_inputs, 1) ** -0.5
    nn.init.uniform_(linear.weight, -bound, bound, generator=generator)
    nn.init.uniform_(linear.bias, -bound, bound, generator=generator)
    return linear


# Rows that a network is given at once when nothing is trained.
_ROWS = 1024


class MLP(nn.Module):
    """A multilayer perceptron with torch's default initialisation from a generator.

    Args:
        num_inputs: Size of the input.
        num_outputs: Size of the output.
        num_hidden: Units in each hidden layer.
        num_layers: Linear maps in all; 3 means two hidden layers.
        generator: Source of the initial weights.
        start_at_zero: Whether the last map starts at zero.
    """

    def __init__(
        self,
        num_inputs: int,
        num_outputs: int,
        num_hidden: int,
        num_layers: int,
        generator: torch.Generator,
        start_at_zero: bool = False,
    ):
        super().__init__()
        sizes = [num_inputs] + [num_hidden] * (num_layers - 1) + [num_outputs]
        maps = [_linear(a, b, generator) for a, b in pairwise(sizes)]
        if start_at_zero:
            nn.init.zeros_(maps[-1].weight)
            nn.init.zeros_(maps[-1].bias)
        layers: list[nn.Module] = [maps[0]]
        for linear in maps[1:]:
            layers += [nn.ReLU(), linear]
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        if torch.is_grad_enabled() or inputs.numel() <= inputs.shape[-1] * _ROWS:
            return self.layers(inputs)
        # Hidden layers that fit the cache make it twice as fast.
        rows = inputs.reshape(-1, inputs.shape[-1]).split(_ROWS)
        outputs = torch.cat([self.layers(part) for part in rows])
        return outputs.reshape(*inputs.shape[:-1], -1)


class _Localizer(nn.Module):
    """θ_l(x): embed x and map it to a point."""

    def __init__(self, embedding_net: nn.Module | None, head: nn.Module):
        super().__init__()
        self.embedding_net = embedding_net
        self.head = head

    def forward(self, xs: Tensor) -> Tensor:
        return self.head(embed_xs(xs, self.embedding_net))


def embed_xs(xs: Tensor, embedding_net: nn.Module | None) -> Tensor:
    """Return features with shape ``(N, F)`` of xs with shape ``(N, …)``."""
    features = xs if embedding_net is None else embedding_net(xs)
    if not isinstance(features, Tensor) or len(features) != len(xs):
        raise ValueError(
            "embedding_net: expected a tensor with one row per x, "
            f"({len(xs)}, …), got {_describe(features)}."
        )
    return features.reshape(len(features), -1)


def x_features(xs: Tensor, scales: Scales, embedding_net: nn.Module | None) -> Tensor:
    """Return the features in which xs are near or far, with shape ``(n, F)``."""
    with torch.no_grad():
        return embed_xs(scales.network_xs(xs), embedding_net)


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

    def __init__(self, embedding: Callable[[Tensor], Tensor], scales: Scales):
        super().__init__()
        self.register_buffer("mean", scales.theta_mean.float())
        self.register_buffer("scale", scales.theta_scale.float())
        self.embedding = embedding

    def forward(self, points: Tensor) -> Tensor:
        return self.embedding(self.mean + self.scale * points)


class Probe(nn.Module):
    """A number for every member of a bag, small where it is near.

    Args:
        spec: What the probe is made of.
    """

    def __init__(self, spec: ProbeSpec):
        super().__init__()
        self.spec = spec

    @property
    def is_trainable(self) -> bool:
        """Whether training by gradients has anything to change."""
        return any(p.requires_grad for p in self.parameters())

    @property
    def is_fixed(self) -> bool:
        """Whether it is the same whatever the training truths are."""
        return not self.is_trainable and type(self).solve is Probe.solve

    def solve(self, members: Tensor, xs: Tensor, generator: torch.Generator) -> None:
        """Take what is needed from training bags, the truth first, in closed form.

        Args:
            members: Training bags in the probe's coordinates, ``(N, K + 1, d)``.
            xs: Observations as networks see them, ``(N, …)``.
            generator: CPU generator.
        """

    def gain(self, numbers: Tensor, divergence: Divergence) -> Tensor:
        """Return what training maximises: how far the truths' ranks are from uniform.

        Args:
            numbers: Numbers of all members, the truth first, ``(N, M)``. With gradients
                the ranks pass them on.
            divergence: The configuration's divergence.
        """
        ranks = straight_through_ranks if numbers.requires_grad else ball_ranks
        return divergence(ranks(numbers[:, 0], numbers[:, 1:].T))

    def scores(self, points: Tensor, bags: Tensor, xs: Tensor) -> Tensor:
        """Return the numbers of any points.

        Args:
            points: Points in the probe's coordinates, with shape ``(n, S, d)``.
            bags: The bags at these xs, with shape ``(n, M, d)``.
            xs: Observations, with shape ``(n, …)``.

        Returns:
            Numbers with shape ``(n, S)``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no scores.")

    def forward(self, members: Tensor, xs: Tensor) -> Tensor:
        """Return the numbers of all members of all bags, with shape ``(N, M)``."""
        return self.scores(members, members, xs)

    def load_state_dict(self, state_dict, *args, **options):
        """Load a state; what `solve` took from training pairs may have any size."""
        for name, buffer in self.named_buffers(recurse=False):
            if name in state_dict:
                setattr(
                    self, name, torch.empty_like(state_dict[name]).to(buffer.device)
                )
        return super().load_state_dict(state_dict, *args, **options)

    def locate(self, bags: Tensor, xs: Tensor) -> Tensor:
        """Return the point with the smallest number, with shape ``(n, d)``.

        For probes without a centre of their own it is the nearest member of the bag.
        """
        nearest = self(bags, xs).argmin(dim=1)
        return bags[torch.arange(len(bags), device=bags.device), nearest]


class BallProbe(Probe):
    """Distances of a bag's members from a centre θ_l(x), in the geometry of φ.

    Args:
        spec: What the probe is made of.
        dim: Dimension of θ.
        x_example: A few xs as the networks see them, with shape ``(n, …)``.
        scales: Scales of the training pairs.
        generator: Source of the initial weights.
        num_hidden: Hidden units of the networks.
        num_layers: Linear maps of the networks.
        embedding_net: A network that turns xs into vectors; a copy of it is trained
            along. Parameters whose ``requires_grad`` is off stay as they are. It sees
            what the probe sees: standardised xs, raw ones in ``"raw"`` coordinates.
        embedding: The user's own φ, for ``spec.embedding == "custom"``: it maps points
            with shape ``(n, d)`` to ``(n, e)``. A module is copied and trained along.
    """

    def __init__(
        self,
        spec: ProbeSpec,
        dim: int,
        x_example: Tensor,
        scales: Scales,
        generator: torch.Generator,
        num_hidden: int = 256,
        num_layers: int = 3,
        embedding_net: nn.Module | None = None,
        embedding: nn.Module | Callable[[Tensor], Tensor] | None = None,
    ):
        super().__init__(spec)
        size = (num_hidden, num_layers, generator)
        self.localizer = None
        if spec.centre != "origin":
            net = copy.deepcopy(embedding_net)
            with torch.no_grad():
                num_features = embed_xs(x_example, net).shape[1]
            if spec.centre == "learned":
                in_bag = spec.coordinates == "bag"
                head = MLP(num_features, dim, *size, start_at_zero=in_bag)
            else:
                head = _linear(num_features, dim, generator)
                # Entries of variance 1/2 over all inputs: centres of unit variance.
                nn.init.normal_(
                    head.weight, std=(2 * num_features) ** -0.5, generator=generator
                )
                nn.init.normal_(head.bias, std=0.5**0.5, generator=generator)
            self.localizer = _Localizer(net, head)
            if spec.centre == "random":
                self.localizer.requires_grad_(False)
        self.embedding: nn.Module | Callable[[Tensor], Tensor] | None = None
        if spec.embedding == "mlp":
            self.embedding = MLP(dim, dim, *size)
        elif spec.embedding == "residual":
            self.embedding = _Residual(MLP(dim, dim, *size, start_at_zero=True))
        elif spec.embedding == "custom":
            self.embedding = _OfTheta(_checked_embedding(embedding, dim), scales)

    def centre(self, xs: Tensor, dim: int) -> Tensor:
        """Return θ_l(x) in the probe's coordinates, with shape ``(N, d)``."""
        if self.localizer is None:
            return torch.zeros((len(xs), dim), device=xs.device)
        return self.localizer(xs)

    def distances(self, members: Tensor, centre: Tensor) -> Tensor:
        """Return distances ``(N, M)`` of members ``(N, M, d)`` from centres ``(N, d)``.

        Large inputs are taken in chunks of bags.
        """
        step = max(1, _CHUNK // members.shape[1])
        if len(members) > step:
            parts = zip(members.split(step), centre.split(step), strict=True)
            return torch.cat([self.distances(*part) for part in parts])
        if self.embedding is not None:
            points = self.embedding(members.flatten(0, 1))
            members = points.unflatten(0, members.shape[:2])
            centre = self.embedding(centre)
        return torch.linalg.vector_norm(members - centre.unsqueeze(1), dim=-1)

    def scores(self, points: Tensor, bags: Tensor, xs: Tensor) -> Tensor:
        """Return the distances of points from the centre at their x, ``(n, S)``."""
        return self.distances(points, self.locate(bags, xs))

    def locate(self, bags: Tensor, xs: Tensor) -> Tensor:
        """Return θ_l(x), with shape ``(n, d)``."""
        return self.centre(xs, bags.shape[-1])


def _checked_embedding(embedding: Any, dim: int) -> Callable[[Tensor], Tensor]:
    if not callable(embedding):
        raise TypeError(
            "embedding: expected an nn.Module or a callable from (n, d) to (n, e), "
            f"got {type(embedding).__name__}."
        )
    embedding = copy.deepcopy(embedding)
    with torch.no_grad():
        points = embedding(torch.zeros(2, dim))
    if not isinstance(points, Tensor) or points.ndim != 2 or len(points) != 2:
        raise ValueError(
            f"embedding: expected (2, e) for an input of (2, {dim}), "
            f"got {_describe(points)}."
        )
    return embedding


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return str(tuple(value.shape))
    return type(value).__name__
