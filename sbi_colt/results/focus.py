"""What a run with pairs from a proposal looked at: numbers, no sentences."""

from __future__ import annotations

from dataclasses import dataclass

from sbi_colt.checks import check_number

__all__ = ["Focus"]


@dataclass(frozen=True)
class Focus:
    """A run with weights, near one observation or with pairs of the user's proposal.

    Args:
        num_draws: Posterior draws that were made at each x.
        num_effective: Their effective number given their weights, the mean over xs.
        num_kept: Draws at each x that were tested, after thinning.
        num_pairs: Pairs that were simulated or handed in.
        num_pairs_kept: Pairs that were tested on the parameter side.
        share_outside: Share of posterior draws outside the prior, or where a proposal
            of the user's own has no density; the latter were not tested.
        widening: How much wider than the posterior draws at x_o the proposal is, in
            standard deviations; 0 for a proposal of the user's own, infinity where
            parameters were simulated from the whole prior.
    """

    num_draws: int
    num_effective: float
    num_kept: int
    num_pairs: int
    num_pairs_kept: int
    share_outside: float
    widening: float = 0.0

    def __post_init__(self):
        for name, value in vars(self).items():
            check_number(name, value, "a number >= 0", lambda v: v >= 0)
