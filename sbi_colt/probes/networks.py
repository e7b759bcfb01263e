"""Networks: perceptrons with reproducible weights, and features of observations."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from sbi_colt.probes.coordinates import Scales

__all__ = ["MLP", "embed_xs", "linear_map", "x_features"]

# Rows that a network is given at once when nothing is trained: hidden layers that fit
# the processor's cache make it twice as fast.
_ROWS = 1024


def linear_map(
    num_inputs: int, num_outputs: int, generator: torch.Generator
) -> nn.Linear:
    """Return a linear map with torch's default initialisation from a generator."""
    # Without skip_init the global random state would move.
    linear = nn.utils.skip_init(nn.Linear, num_inputs, num_outputs)
    assert isinstance(linear, nn.Linear)
    bound = max(num_inputs, 1) ** -0.5
    nn.init.uniform_(linear.weight, -bound, bound, generator=generator)
    nn.init.uniform_(linear.bias, -bound, bound, generator=generator)
    return linear


class MLP(nn.Module):
    """A multilayer perceptron with torch's default initialisation from a generator.

    Args:
        num_inputs: Size of the input.
        num_outputs: Size of the output.
        num_hidden: Units in each hidden layer.
        num_layers: Number of linear maps; 3 means two hidden layers.
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
        maps = [linear_map(a, b, generator) for a, b in pairwise(sizes)]
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
        rows = inputs.reshape(-1, inputs.shape[-1]).split(_ROWS)
        outputs = torch.cat([self.layers(part) for part in rows])
        return outputs.reshape(*inputs.shape[:-1], -1)


def embed_xs(xs: Tensor, embedding_net: nn.Module | None) -> Tensor:
    """Return features with shape ``(N, F)`` of xs with shape ``(N, …)``."""
    try:
        features = xs if embedding_net is None else embedding_net(xs)
    except RuntimeError as error:
        raise ValueError(
            f"embedding_net: it failed on xs of shape {tuple(xs.shape)}: {error}."
        ) from error
    if not isinstance(features, Tensor) or len(features) != len(xs):
        got = (
            tuple(features.shape)
            if isinstance(features, Tensor)
            else type(features).__name__
        )
        raise ValueError(
            "embedding_net: expected a tensor with one row per x, "
            f"({len(xs)}, …), got {got}."
        )
    return features.reshape(len(features), -1)


def x_features(xs: Tensor, scales: Scales, embedding_net: nn.Module | None) -> Tensor:
    """Return features of xs with shape ``(n, F)``, in which near xs are alike."""
    with torch.no_grad():
        return embed_xs(scales.network_xs(xs), embedding_net)
