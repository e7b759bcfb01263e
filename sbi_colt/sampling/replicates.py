"""The data side: replicates x' ~ p(· | θ') at one posterior draw θ' for each x.

*One θ' per x.* θ' is a random member of the whole bag {θ*, θ^1, …, θ^K}, true parameter
included, or a fresh draw where the parameter side is not wanted. If q is right, (θ', x)
is then a pair from the joint distribution, and given all bags as sets the place of θ*
is still uniform. So both sides may use the same pairs, and their p-values are
independent. They would not be independent if θ' were always one of the K draws.

*Nothing is selected.* An x at which the posterior could not be sampled keeps its true
parameter as θ', which is right for every q: no x is lost because of q, and the p-value
stays exact. Such a bag says nothing about q; ``drawn`` of the data side tells which
bags do. A simulation that fails is made again *at the same θ'*, because only finite xs
are tested and replicates must be selected in the same way. If the simulator fails again
and again at a θ', the pair is left out. That depends on θ' alone, so it does no harm.
No other θ' is drawn in its place.

*Rounds.* Each of the M rounds simulates once at every θ', with random numbers of its
own. Identical rounds show that a simulator seeds itself. To find this out there are at
least two rounds, also for M = 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.checks import check_integer, warn_caller
from sbi_colt.draws import Draws, make_predictive
from sbi_colt.randomness import digest, generator_from
from sbi_colt.replicate_checks import check_randomness
from sbi_colt.sampling.checkpoint import Checkpoint
from sbi_colt.sampling.pairs import simulate_at
from sbi_colt.sampling.pool import SamplingError
from sbi_colt.sampling.simulator import Simulator

__all__ = [
    "FEWEST",
    "ReplicateOptions",
    "TooFewBags",
    "choose_pairs",
    "draws_of_posterior",
    "num_replicated",
    "replicate",
]

# A θ' at which fewer than M of this many times M simulations succeed loses its pair.
_MAX_ROUNDS = 4
# By default this share of the pairs have replicates, but at least so many: with 6
# replicates each as many simulations again. For 900 replicates, 150 pairs with 6 find
# more than 100 pairs with 9 (`benchmark predictive`).
_SHARE_REPLICATED = 1 / 6
_MIN_REPLICATED = 50
# Fewer bags than this say nothing once they are split into training and test bags.
FEWEST = 20


class TooFewBags(SamplingError):
    """The data side has too few bags to be tested.

    Args:
        message: What a person reads.
        failed_share: Share of the θ' at which the simulator fails; `None` where that
            was not looked for.
    """

    def __init__(self, message: str, failed_share: float | None = None):
        super().__init__(message)
        self.failed_share = failed_share


@dataclass(frozen=True)
class ReplicateOptions:
    """How many replicates are made, and how.

    Args:
        num_replicates: Replicates for each pair, M; 0 for no data side.
        num_replicated_pairs: Pairs that have replicates, n; by default a sixth of all
            pairs, and at least 50.
        seed: Seed of the run.
        num_workers: Processes for a simulator that takes one θ at a time.
        show_progress_bar: Whether to show progress.
        checkpoint: The folder of the run's checkpoint, or `None`.
        checkpoint_name: The name by which the user vouches for posterior and simulator.
    """

    num_replicates: int = 6
    num_replicated_pairs: int | None = None
    seed: int = 0
    num_workers: int = 1
    show_progress_bar: bool = True
    checkpoint: str | os.PathLike | None = None
    checkpoint_name: str | None = None

    def __post_init__(self):
        check_integer("num_replicates", self.num_replicates, least=0)
        if self.num_replicated_pairs is not None:
            check_integer("num_replicated_pairs", self.num_replicated_pairs, least=1)


def num_replicated(num_pairs: int) -> int:
    """Return how many of the pairs get replicates if the user does not say.

    Example:
        >>> num_replicated(1000), num_replicated(200), num_replicated(30)
        (167, 50, 30)
    """
    return min(num_pairs, max(_MIN_REPLICATED, round(_SHARE_REPLICATED * num_pairs)))


def choose_pairs(num_pairs: int, options: ReplicateOptions) -> Tensor:
    """Return the positions of the pairs that get replicates, with shape ``(n,)``.

    They are chosen at random: the caller may have sorted the pairs by x.
    """
    generator = generator_from(options.seed, "replicated pairs")
    order = torch.randperm(num_pairs, generator=generator)
    if (options.num_replicated_pairs or 0) > num_pairs:
        warn_caller(
            f"num_replicated_pairs: there are only {num_pairs} pairs, so {num_pairs} "
            f"have replicates instead of {options.num_replicated_pairs}."
        )
    return order[: options.num_replicated_pairs or num_replicated(num_pairs)]


def draws_of_posterior(
    draws: Draws, places: Tensor, thetas: Tensor, seed: int
) -> tuple[Tensor, Tensor]:
    """Return a random member of the whole bag of each chosen pair.

    Args:
        draws: The parameter side.
        places: Where the chosen pairs stood among the pairs handed in, ``(n,)``.
        thetas: Their true parameters, with shape ``(n, d)``. They stand in where the
            posterior could not be sampled.
        seed: Seed of the run.

    Returns:
        The members, ``(n, d)``, and at which xs there are draws, ``(n,)``.
    """
    rows = torch.full((len(draws.mask),), -1)
    rows[draws.index] = torch.arange(len(draws))
    rows = rows[places]  # −1 where there are no draws
    size = draws.num_posterior_samples + 1
    generator = generator_from(seed, "members of bags")
    if draws.log_weights is None:
        members = torch.randint(size, rows.shape, generator=generator)
    else:  # in proportion to the weights: (θ', x) is then a pair of the proposal
        shares = draws.log_weights.softmax(dim=0).T[rows]  # (n, S + 1)
        members = torch.multinomial(shares, 1, generator=generator).squeeze(1)
    drawn = rows >= 0
    picked = draws.samples[(members - 1).clamp_min(0), rows]
    here = (drawn & (members > 0)).to(picked.device).unsqueeze(1)
    return torch.where(here, picked, thetas.to(picked)), drawn


def replicate(
    simulator: Simulator,
    xs: Tensor,
    thetas: Tensor,
    options: ReplicateOptions,
    drawn: Tensor | None = None,
) -> Draws:
    """Simulate M replicates at each θ', and return the data side.

    Args:
        simulator: The simulator.
        xs: Observations, finite, with shape ``(n, …)``.
        thetas: One θ' for each x, with shape ``(n, d)``.
        options: How many, and how.
        drawn: At which xs the posterior could be sampled, with shape ``(n,)``; `None`
            for all.

    Returns:
        Draws with the roles swapped; ``mask`` tells which of the n pairs were kept.
    """
    number = options.num_replicates
    rounds = max(2, number)
    found: list[list[Tensor]] = [[] for _ in xs]
    errors: list[str] = []
    checkpoint = _checkpoint(simulator, thetas, options)
    progress = tqdm(
        total=len(xs) * rounds,
        desc=f"Simulating {number} replicates per x",
        disable=not options.show_progress_bar,
        leave=False,
    )
    with progress:
        for turn in range(max(20, _MAX_ROUNDS * number)):
            missing = [i for i, own in enumerate(found) if len(own) < rounds]
            if not missing or (turn >= rounds and not any(found)):
                break
            for place, x in _round(
                simulator, thetas, missing, turn, options, checkpoint, errors
            ):
                found[place].append(x)
                progress.update(1)
    kept = torch.tensor([len(own) >= rounds for own in found])
    _report_failures(kept, errors)
    _check_shapes(found, tuple(xs.shape[1:]))
    index = kept.nonzero().flatten()
    rows = [torch.stack(found[i]) for i in index.tolist()]
    simulated = torch.stack(rows, dim=1)  # (rounds, n, …)
    check_randomness(simulated, options.num_workers)
    here = kept.to(xs.device)
    xs, thetas = xs[here], thetas[here]
    data = make_predictive(
        xs,
        thetas,
        simulated[:number].reshape(number, *xs.shape).to(xs.device),
        drawn=None if drawn is None else drawn[index],
    )
    return replace(data, mask=kept, index=index)


def _round(
    simulator: Simulator,
    thetas: Tensor,
    places: list[int],
    turn: int,
    options: ReplicateOptions,
    checkpoint: Checkpoint,
    errors: list[str],
) -> Iterator[tuple[int, Tensor]]:
    """Simulate once at some of the θ', and yield what succeeded with its place."""
    part = checkpoint.load(f"round-{turn}")
    if part is not None:
        errors += ["in an earlier run"] * (len(places) - len(part["places"]))
        yield from zip(part["places"].tolist(), part["xs"], strict=True)
        return
    good: list[tuple[int, Tensor]] = []
    stream = (options.seed, "replicates", turn)
    at = thetas[places].cpu()
    for start, outputs, failed in simulate_at(
        simulator, at, options.num_workers, *stream
    ):
        errors += failed
        done = [(places[start + i], x) for i, x in enumerate(outputs) if x is not None]
        good += done
        yield from done
    if checkpoint.path is not None and len({x.shape for _, x in good}) == 1:
        kept = {
            "places": torch.tensor([place for place, _ in good]),
            "xs": torch.stack([x for _, x in good]),
        }
        checkpoint.save(f"round-{turn}", kept)


def _checkpoint(
    simulator: Simulator, thetas: Tensor, options: ReplicateOptions
) -> Checkpoint:
    """Return the checkpoint of the replicates, if it is that of this simulator."""
    folder = options.checkpoint
    header = {
        "seed": options.seed,
        "num_replicates": options.num_replicates,
        "thetas_of_posterior": digest(thetas),
        "checkpoint_name": options.checkpoint_name,
    }
    path = None if folder is None else os.path.join(folder, "replicates")
    checkpoint = Checkpoint(path, header, subject="simulator")

    def few() -> Tensor:
        at, stream = thetas[:4].cpu(), (options.seed, "reference replicates")
        parts = simulate_at(simulator, at, 1, *stream)
        outputs = [x for _, xs, _ in parts for x in xs]
        good = [x for x in outputs if x is not None]
        return torch.stack(good).unsqueeze(1) if good else torch.zeros(0, 1, 1)

    checkpoint.recognise(few, simulator.is_batched)
    return checkpoint


def _report_failures(kept: Tensor, errors: list[str]) -> None:
    lost, total = int((~kept).sum()), len(kept)
    said = f"; the first error was: {errors[0]}" if errors else ""
    if total - lost < min(FEWEST, total):
        raise TooFewBags(
            f"posterior: the simulator fails at {lost} of {total} parameters that the "
            f"posterior drew{said}. Either the posterior is in the wrong place, or the "
            f"simulator fails by itself. The data side needs at least {FEWEST} pairs.",
            lost / total,
        )
    if errors:
        text = f"simulator: {len(errors)} simulations at posterior draws failed{said}."
        if lost:
            text += (
                f" {lost} of {total} pairs were left out of the data side: the "
                "simulator fails at the parameters that the posterior drew there."
            )
        warn_caller(text)


def _check_shapes(found: list[list[Tensor]], shape: tuple[int, ...]) -> None:
    shapes: set[Any] = {tuple(x.shape) for own in found for x in own}
    shapes = {own if own != (1,) or shape else shape for own in shapes}
    if shapes != {shape}:
        raise ValueError(
            f"simulator: expected data of shape {shape}, that of one x, got "
            f"{', '.join(map(str, sorted(shapes)))}; use the simulator that made xs."
        )
