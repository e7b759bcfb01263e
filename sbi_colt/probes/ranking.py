"""All probes together: each is fitted, and ranks the members of all bags."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sbi_colt.draws import Draws
from sbi_colt.probes.bags import Bags, BagStore, make_bags
from sbi_colt.probes.base import Probe
from sbi_colt.probes.coordinates import Coordinates, Scales
from sbi_colt.probes.training import History
from sbi_colt.stats.ranks import RankTable

__all__ = ["fit_all", "rank_all", "training_ranks", "truth_first"]

# Members of each training bag that tell how much of q the worst ball holds.
_NUM_BALL_MEMBERS = 201
_BLOCK = 2**16  # members that are scored at once


def rank_all(
    probes: Sequence[Probe],
    keep_for: Sequence[Probe],
    draws: Draws,
    truth: Tensor,
    scales: Scales,
    generator: torch.Generator,
) -> tuple[dict[Coordinates, Bags], RankTable | None]:
    """Rank the members of all bags under each probe, in blocks of pairs.

    Args:
        probes: The probes that rank.
        keep_for: Probes in whose coordinates the bags are returned.
        draws: Pairs with their draws.
        truth: The place of the truth in each bag.
        scales: Scales of the training pairs.
        generator: CPU generator that breaks ties.

    Returns:
        The bags, and the ranks of all members, or `None` if no probe ranks.
    """
    kinds: list[Coordinates] = [probe.coordinates for probe in (*probes, *keep_for)]
    store, table = BagStore(len(draws)), None
    if probes:
        size = draws.num_posterior_samples + 1
        table = RankTable.empty(len(probes), len(draws), size, draws.thetas.device)
    for rows in draws.blocks():
        bags = make_bags(draws.bags(truth, rows), draws.xs[rows], scales, kinds)
        if table is not None:
            scores = [_scores(probe, bags[probe.coordinates]) for probe in probes]
            table.fill(rows, scores, generator)
        if keep_for:
            store.fill(rows, bags)
    return store.bags, table


def _scores(probe: Probe, bags: Bags) -> Tensor:
    scores = probe.eval()(bags)  # (n, K + 1)
    if scores.isnan().any():
        raise FloatingPointError(
            f"The probe {probe.name!r} returned NaN scores; check the scale of xs and "
            "thetas, or a custom embedding."
        )
    return scores


def truth_first(bags: dict[Coordinates, Bags], truth: Tensor) -> None:
    """Put the truth first in every bag, in place, as training expects it."""
    rows = torch.arange(len(truth), device=truth.device)
    shared = next(iter(bags.values())).shared.values()
    for values in (*(own.points for own in bags.values()), *shared):
        first = values[rows, 0].clone()
        values[rows, 0] = values[rows, truth]
        values[rows, truth] = first


def fit_all(
    probes: Sequence[Probe],
    bags: dict[Coordinates, Bags],
    generator: torch.Generator,
    show_progress_bar: bool,
) -> dict[str, History]:
    """Fit the probes one after another; after Ctrl-C no other one is trained."""
    history: dict[str, History] = {}
    interrupted = False
    for probe in probes:
        if probe.is_trainable and interrupted:
            history[probe.name] = History()
            continue
        own = probe.fit(bags[probe.coordinates], generator, show_progress_bar)
        history[probe.name] = own
        interrupted = interrupted or own.stopped == "interrupted"
    return history


def training_ranks(
    probes: Sequence[Probe], bags: dict[Coordinates, Bags], generator: torch.Generator
) -> list[Tensor]:
    """Return the ranks of the training truths under each probe, each ``(N,)``."""
    ranks = []
    for probe in probes:
        own = bags[probe.coordinates]
        few = Bags(own.points[:, :_NUM_BALL_MEMBERS], own.xs).blocks(_BLOCK)
        scores = torch.cat([_scores(probe, block) for block in few])
        first = torch.zeros(len(own), dtype=torch.long, device=scores.device)
        ranks.append(RankTable.of([scores], generator).take(first)[0])
    return ranks
