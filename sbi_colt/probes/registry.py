"""Kinds of probes by name, and how each is built.

A kind of your own is a subclass of `sbi_colt.probes.ball.Probe` with ``scores`` (and
``solve``, if it takes something from training pairs; one with parameters that require
gradients is trained to maximise its ``gain`` instead), and an entry here::

    KINDS["mine"] = lambda spec, parts: MyProbe(spec, parts.dim)
    config = CoLTConfig(probes=("density", ProbeSpec("mine", kind="mine")))

Its p-value is exact if it treats the members of a bag alike: ``scores`` must not know
which of them is the truth. A name for it goes into ``sbi_colt.config.PROBES``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sbi_colt.probes.ball import BallProbe, Probe, ProbeSpec
from sbi_colt.probes.blend import BlendProbe
from sbi_colt.probes.classifier import ClassifierProbe
from sbi_colt.probes.coordinates import Scales
from sbi_colt.probes.quadratic import AxesProbe, QuadraticProbe
from sbi_colt.probes.solved import (
    CoordinateProbe,
    DensityProbe,
    DriftProbe,
    ReliefProbe,
)

__all__ = ["KINDS", "Parts"]


@dataclass(frozen=True)
class Parts:
    """What a probe can be built from.

    Args:
        dim: Dimension of θ.
        x_example: A few xs as networks see them, with shape ``(n, …)``.
        scales: Scales of the training pairs.
        generator: CPU generator of initial weights.
        num_hidden: Units per hidden layer.
        num_layers: Linear maps per network.
        embedding_net: The user's network from xs to vectors.
        embedding: The user's own φ.
    """

    dim: int
    x_example: Tensor
    scales: Scales
    generator: torch.Generator
    num_hidden: int
    num_layers: int
    embedding_net: nn.Module | None
    embedding: nn.Module | Callable[[Tensor], Tensor] | None


def _ball(spec: ProbeSpec, parts: Parts) -> Probe:
    return BallProbe(
        spec,
        parts.dim,
        parts.x_example,
        parts.scales,
        parts.generator,
        num_hidden=parts.num_hidden,
        num_layers=parts.num_layers,
        embedding_net=parts.embedding_net,
        embedding=parts.embedding,
    )


def _drift(spec: ProbeSpec, parts: Parts) -> Probe:
    net = copy.deepcopy(parts.embedding_net)
    if net is not None:
        net = net.requires_grad_(False).eval()
    return DriftProbe(spec, parts.dim, parts.x_example, net)


def _classifier(spec: ProbeSpec, parts: Parts) -> Probe:
    return ClassifierProbe(
        spec,
        parts.dim,
        parts.x_example,
        parts.generator,
        parts.num_hidden,
        parts.num_layers,
        parts.embedding_net,
    )


KINDS: dict[str, Callable[[ProbeSpec, Parts], Probe]] = {
    "ball": _ball,
    "density": lambda spec, parts: DensityProbe(spec),
    "relief": lambda spec, parts: ReliefProbe(spec, parts.dim),
    "blend": lambda spec, parts: BlendProbe(spec),
    "drift": _drift,
    "quadratic": lambda spec, parts: QuadraticProbe(spec, parts.dim),
    "axes": lambda spec, parts: AxesProbe(spec, parts.dim),
    "coordinate": lambda spec, parts: CoordinateProbe(spec, parts.dim),
    "classifier": _classifier,
}
