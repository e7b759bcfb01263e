"""A probe of fine structure that the draws of one x are too few to show.

It asks whether a point lies on a crest of q or beside it: the score is the logarithm
of the ratio of two distances, to the 8th and to the 64th nearest draw, among draws of
all training pairs. It is meant for one or two parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from sbi_colt.probes.bags import Bags
from sbi_colt.probes.base import Probe
from sbi_colt.probes.coordinates import bounded

__all__ = ["ReliefProbe"]

# In more dimensions draws are too few to show a relief, and neighbours cost more.
_MAX_DIM = 2
# Draws of the training pairs that make up the relief, and the neighbours compared.
_NUM_DRAWS = 20_000
_NEIGHBOURS = (8, 64)
# Distances held at once.
_CHUNK = 2**21


class ReliefProbe(Probe):
    """Log ratio of the distances to a near and to a farther neighbour.

    Args:
        name: The name in reports.
    """

    neighbours: Tensor

    def __init__(self, name: str = "relief"):
        super().__init__(name, "global")
        self.register_buffer("neighbours", torch.zeros(0, 1))
        self._tree: KDTree | None = None

    def fits(self, dim: int) -> bool:
        """Return whether there are at most two parameters."""
        return dim <= _MAX_DIM

    def solve(self, bags: Bags, generator: torch.Generator) -> None:
        """Keep a random part of the training pairs' draws."""
        draws = bags.points[:, 1:].flatten(0, 1)
        chosen = torch.randperm(len(draws), generator=generator)[:_NUM_DRAWS]
        self.neighbours, self._tree = draws[chosen], None

    def load_state_dict(self, state_dict, *args, **options):
        """Load the draws of another relief."""
        self._tree = None
        return super().load_state_dict(state_dict, *args, **options)

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the scores of points with shape ``(n, S, d)``, ``(n, S)``."""
        tree = self._tree = self._tree or KDTree(self.neighbours.cpu().numpy())
        places: Any = [min(k, len(self.neighbours)) for k in _NEIGHBOURS]
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
