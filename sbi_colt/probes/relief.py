r"""A probe of fine structure that the draws of one x are too few to show.

It asks whether a point lies on a crest of q or beside it, and on which scale. The draws
of all training pairs are the relief. With :math:`r_k(θ)` the distance of θ to its k-th
nearest draw there, the score is

.. math:: s(θ) = -\sum_k w_k \log r_k(θ), \quad k = 8, 16, 32, 64, 128,

with weights that make the training truths stand out (`sbi_colt.probes.weights`). The
score is computed once for each draw of the relief; a point has the mean of its four
nearest draws, which is ten times as fast.

The probe is meant for one or two parameters, and for posteriors that are much alike at
all xs. Elsewhere draws of other xs show nothing, and all scores are equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from sbi_colt.probes.bags import Bags
from sbi_colt.probes.base import Probe
from sbi_colt.probes.coordinates import bounded
from sbi_colt.probes.weights import solve_weights

__all__ = ["ReliefProbe"]

# In more dimensions draws are too few to show a relief, and neighbours cost more.
_MAX_DIM = 2
_NUM_DRAWS = 50_000  # of the training pairs, that make up the relief
_NEIGHBOURS = [8, 16, 32, 64, 128]
_NUM_NEAREST = 4
# Least share of the variance of all draws that the draws at one x have.
_LEAST_SHARE = 0.1
# Training pairs, and members of each, that the weights are fitted to.
_MAX_PAIRS, _MAX_MEMBERS = 1000, 51
_NEAREST, _CHUNK = 1e-9, 2**15  # smallest distance; points that are asked at once


class ReliefProbe(Probe):
    """A weighted sum of log distances to near and farther neighbours.

    Args:
        name: The name in reports.
    """

    draws: Tensor
    heights: Tensor

    def __init__(self, name: str = "relief"):
        super().__init__(name, "global")
        self.register_buffer("draws", torch.zeros(0, 1))
        self.register_buffer("heights", torch.zeros(0))
        self._tree: KDTree | None = None

    def fits(self, dim: int) -> bool:
        """Return whether there are at most two parameters."""
        return dim <= _MAX_DIM

    def solve(self, bags: Bags, generator: torch.Generator) -> None:
        """Keep a random part of the training pairs' draws, and find the weights."""
        self._tree = None
        points = bounded(bags.points)
        own = points[:, 1:].double().var(dim=1, correction=0).mean(dim=0)
        draws = points[:, 1:].flatten(0, 1)
        share = own / draws.double().var(dim=0, correction=0).clamp_min(1e-300)
        if len(draws) <= _NEIGHBOURS[-1] or share.mean() < _LEAST_SHARE:
            self.draws, self.heights = draws[:0], draws.new_zeros(0)
            return
        chosen = torch.randperm(len(draws), generator=generator)[:_NUM_DRAWS]
        self.draws = draws[chosen]
        logs = self._logs(points[:_MAX_PAIRS, :_MAX_MEMBERS])  # (n, M, F)
        logs = logs - logs.mean(dim=1, keepdim=True)
        moments = torch.einsum("nmf,nmg->fg", logs, logs) / logs.shape[:2].numel()
        ridge = moments.diagonal().clamp_min(1e-12)
        weights = solve_weights(logs[:, 0], moments, ridge)
        self.heights = -(self._logs(self.draws) @ weights).to(self.draws)

    def load_state_dict(self, state_dict, *args, **options):
        """Load the draws of another relief."""
        self._tree = None
        return super().load_state_dict(state_dict, *args, **options)

    def scores(self, points: Tensor, bags: Bags) -> Tensor:
        """Return the scores of points with shape ``(n, S, d)``, ``(n, S)``."""
        if not len(self.heights):
            return points.new_zeros(points.shape[:2])
        _, places = self._nearest(bounded(points), list(range(1, _NUM_NEAREST + 1)))
        return self.heights[places.to(points.device)].mean(dim=-1)

    def _logs(self, points: Tensor) -> Tensor:
        """Return log distances to neighbours; a draw is not its own neighbour."""
        number = len(_NEIGHBOURS)
        ranks = [1, *_NEIGHBOURS, *(k + 1 for k in _NEIGHBOURS)]
        distances, _ = self._nearest(points, ranks)
        itself = distances[..., :1] == 0
        others = distances[..., 1 + number :]
        found = torch.where(itself, others, distances[..., 1 : 1 + number])
        return found.clamp_min(_NEAREST).log()

    def _nearest(self, points: Tensor, ranks: list[int]) -> tuple[Tensor, Tensor]:
        """Return distances and places of neighbours, with shape ``(..., ranks)``."""
        tree: Any = self._tree or KDTree(self.draws.cpu().numpy())
        self._tree = tree  # SciPy's type stub of a tree knows one neighbour only
        flat = points.reshape(-1, points.shape[-1]).cpu().numpy()
        starts = range(0, max(len(flat), 1), _CHUNK)
        parts = [tree.query(flat[i : i + _CHUNK], k=ranks) for i in starts]
        shape = (*points.shape[:-1], len(ranks))
        distances, places = (
            torch.from_numpy(np.concatenate(part)).reshape(shape)
            for part in zip(*parts, strict=True)
        )
        return distances, places
