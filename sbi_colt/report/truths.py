"""Where the true parameters stand in their bags: computed once for a whole report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sbi_colt.baselines import coverage_ranks, mahalanobis_distances, sbc_ranks
from sbi_colt.draws import Draws
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.results.test_result import TestResult

__all__ = ["Truths"]

# A truth is far away where its distance is this many times that of the farthest draw.
_FAR_AWAY = 1.5


@dataclass(frozen=True, eq=False)
class Truths:
    """Ranks of the true parameters in their bags, which trends and findings share.

    Args:
        marginal: Ranks of each parameter by itself (those of SBC), with shape
            ``(N, d)``.
        central: Ranks of the Mahalanobis distance from the posterior mean (those of
            expected coverage), with shape ``(N,)``. A small rank is a central truth.
        far_away: Whether the truth is much farther out than all of its draws, with
            shape ``(N,)``.
    """

    marginal: Tensor
    central: Tensor
    far_away: Tensor

    @classmethod
    def of(
        cls,
        draws: Draws,
        seed: int,
        results: Mapping[str, TestResult | CoLTResult] | None = None,
    ) -> Truths:
        """Rank the truths of draws; the ranks of an SBC among ``results`` are reused.

        Args:
            draws: All pairs.
            seed: The report's seed.
            results: Results of the methods that have run with this seed, by name.
        """
        sbc = (results or {}).get("sbc")
        known = None if sbc is None else sbc.ranks
        distances = mahalanobis_distances(draws)  # (S + 1, N)
        return cls(
            sbc_ranks(draws, seed=seed) if known is None else known,
            coverage_ranks(draws, distances, seed=seed).cpu(),
            (distances[0] > _FAR_AWAY * distances[1:].amax(dim=0)).cpu(),
        )

    def __len__(self) -> int:
        return len(self.central)

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.marginal.shape[1]

    def answers(self) -> Tensor:
        """Return answers to 1 + 2 d questions about each truth, ``(1 + 2 d, N)``.

        Does it lie in the central half of q, by Mahalanobis distance? In the central
        half of each parameter? Below the median of each parameter? 1 is yes.
        """
        marginal = self.marginal.T
        return torch.cat(
            [
                (self.central <= 0.5).unsqueeze(0),
                (marginal - 0.5).abs() <= 0.25,
                marginal <= 0.5,
            ]
        ).double()
