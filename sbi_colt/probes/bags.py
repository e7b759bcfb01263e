"""Bags in the coordinates of the probes, made once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sbi_colt.probes.coordinates import Coordinates, Scales, make_frame

__all__ = ["Bags", "join_bags", "make_bags"]


@dataclass(frozen=True, eq=False)
class Bags:
    """Bags at n observations, in the coordinates that a probe asks for.

    Args:
        points: The members of each bag, with shape ``(n, M, d)``.
        xs: The observations as networks see them, with shape ``(n, …)``.
        shared: Scores of the members that several probes need, by a name that says
            how they were computed; filled as they are computed.
    """

    points: Tensor
    xs: Tensor
    shared: dict[Any, Tensor] = field(default_factory=dict)

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


def join_bags(parts: list[dict[Coordinates, Bags]]) -> dict[Coordinates, Bags]:
    """Put bags at different xs together; the parts are used up to save memory."""
    joined: dict[Coordinates, Bags] = {}
    shared: dict[Any, Tensor] = {}
    for kind in list(parts[0]):
        own = [part.pop(kind) for part in parts]  # freed kind by kind
        for name in own[0].shared:
            if name not in shared:
                shared[name] = torch.cat([bags.shared[name] for bags in own])
        points = torch.cat([bags.points for bags in own])
        joined[kind] = Bags(points, torch.cat([bags.xs for bags in own]), shared)
    return joined
