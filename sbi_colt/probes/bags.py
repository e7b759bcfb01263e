"""Bags in the coordinates of the probes, made once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sbi_colt.probes.coordinates import Coordinates, Scales, make_frame

__all__ = ["BagStore", "Bags", "make_bags"]


@dataclass(frozen=True, eq=False)
class Bags:
    """Bags at n observations, in the coordinates that a probe asks for.

    Args:
        points: The members of each bag, with shape ``(n, M, d)``.
        xs: The observations as networks see them, with shape ``(n, …)``.
        shared: Scores of the members that several probes need, by a name that says
            how they were computed; filled as they are computed.
        simulated: In training, further parameters ``(m, d)`` and the data ``(m, …)``
            that the simulator made of them, both standardised, or `None`.
    """

    points: Tensor
    xs: Tensor
    shared: dict[Any, Tensor] = field(default_factory=dict)
    simulated: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.points)

    def remember(self, name: Any, compute: Callable[[], Tensor]) -> Tensor:
        """Return shared scores, computed where they are asked for the first time."""
        if name not in self.shared:
            self.shared[name] = compute()
        return self.shared[name]

    def blocks(self, num_members: int) -> list[Bags]:
        """Split the bags into blocks of about ``num_members`` members each."""
        step = max(1, num_members // self.points.shape[1])
        parts = zip(self.points.split(step), self.xs.split(step), strict=True)
        return [Bags(points, xs) for points, xs in parts]


def make_bags(
    members: Tensor, xs: Tensor, scales: Scales, kinds: Iterable[Coordinates]
) -> dict[Coordinates, Bags]:
    """Return bags in each of the coordinates asked for.

    Args:
        members: Members of the bags, with shape ``(n, M, d)``.
        xs: Observations, with shape ``(n, …)``.
        scales: Scales of the training pairs.
        kinds: The coordinates.
    """
    shared: dict[Any, Tensor] = {}
    bags: dict[Coordinates, Bags] = {}
    for kind in sorted(set(kinds)):
        points = make_frame(members, kind, scales).to_points(members)
        bags[kind] = Bags(points, scales.network_xs(xs, kind), shared)
        if kind == "bag":
            shared["mahalanobis"] = points.norm(dim=-1)
    return bags


class BagStore:
    """Room for the bags of all training pairs, filled block by block.

    Large tensors that are made once are given back to the system when they are no
    longer needed; many small ones that are put together later are not.

    Args:
        num_bags: The number of pairs.
    """

    def __init__(self, num_bags: int):
        self.num_bags = num_bags
        self.bags: dict[Coordinates, Bags] = {}

    def fill(self, rows: slice, bags: dict[Coordinates, Bags]) -> None:
        """Keep the bags of some pairs, with the scores that their probes share."""
        for kind, part in bags.items():
            if kind not in self.bags:
                shared = next(iter(self.bags.values())).shared if self.bags else {}
                points, xs = self._room_for(part.points), self._room_for(part.xs)
                self.bags[kind] = Bags(points, xs, shared)
            whole = self.bags[kind]
            whole.points[rows], whole.xs[rows] = part.points, part.xs
            for name, scores in part.shared.items():
                if name not in whole.shared:
                    whole.shared[name] = self._room_for(scores)
                whole.shared[name][rows] = scores

    def _room_for(self, part: Tensor) -> Tensor:
        shape = (self.num_bags, *part.shape[1:])
        return torch.empty(shape, dtype=part.dtype, device=part.device)
