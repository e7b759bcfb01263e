r"""A probe that is a classifier's logit, trained on all draws.

Which member of a bag is the truth? A network T(θ, x) answers with the probabilities
softmax(T) over the members, and is trained by their cross-entropy,

.. math:: -\log \frac{\exp T(θ^*, x)}{\sum_{k=0}^{K} \exp T(θ_k, x)} .

At its best T is the log of p(θ | x) / q(θ | x) up to a function of x, the ordering of
draws that a likelihood-ratio test would use; the probe's number is −T. It starts at
T = 0 and is trained like a ball (``training``), a part of the pairs held out
to say when to stop. With a hundred pairs it overfits before it learns, so it is not
among the default's probes.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from sbi_colt.probes.ball import MLP, Probe, ProbeSpec, embed_xs
from sbi_colt.probes.divergences import Divergence

__all__ = ["ClassifierProbe"]

_CHUNK = 2**22  # numbers that one pass sees at a time


class ClassifierProbe(Probe):
    """Minus the logit of "this member is the truth".

    Args:
        spec: The probe's specification.
        dim: Dimension of θ.
        x_example: A few xs as networks see them.
        generator: CPU generator of the initial weights.
        num_hidden: Units per hidden layer.
        num_layers: Linear maps.
        embedding_net: A network from xs to features; it is trained along.
    """

    def __init__(
        self,
        spec: ProbeSpec,
        dim: int,
        x_example: Tensor,
        generator: torch.Generator,
        num_hidden: int,
        num_layers: int,
        embedding_net: nn.Module | None = None,
    ):
        super().__init__(spec)
        self.embedding_net = copy.deepcopy(embedding_net)
        with torch.no_grad():
            num_features = embed_xs(x_example, self.embedding_net).shape[1]
        self.network = MLP(
            dim + num_features, 1, num_hidden, num_layers, generator, start_at_zero=True
        )

    def gain(self, numbers: Tensor, divergence: Divergence) -> Tensor:
        """Return minus the cross-entropy of "the first member is the truth"."""
        return (-numbers).log_softmax(dim=1)[:, 0].mean()

    def scores(self, points: Tensor, bags: Tensor, xs: Tensor) -> Tensor:
        """Return a number for points with shape ``(n, S, d)``, ``(n, S)``."""
        features = embed_xs(xs, self.embedding_net).to(points)  # (n, F)
        size = points.shape[1] * (points.shape[2] + features.shape[1])
        step = max(1, _CHUNK // size)
        parts = zip(points.split(step), features.split(step), strict=True)
        return torch.cat([self._part(*part) for part in parts])

    def _part(self, points: Tensor, features: Tensor) -> Tensor:
        spread = features.unsqueeze(1).expand(-1, points.shape[1], -1)
        return -self.network(torch.cat([points, spread], dim=2)).squeeze(2)
