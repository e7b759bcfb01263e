"""Which proposal a run takes its pairs from: near one observation, or the user's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sbi_colt.arrays import as_observation
from sbi_colt.draws import Draws
from sbi_colt.plausibility import nearest
from sbi_colt.randomness import derive_seed, generator_from, isolated_rng
from sbi_colt.results.focus import Focus
from sbi_colt.sampling.at_xs import sample_posterior
from sbi_colt.sampling.pairs import (
    find_simulator,
    processed_prior,
    simulate_at,
    simulate_pairs,
)
from sbi_colt.sampling.proposal import (
    FocusProposal,
    WindowProposal,
    make_focus_proposal,
    num_left,
    user_log_weight,
    with_log_weights,
)
from sbi_colt.sampling.sbi_internals import prior_of
from sbi_colt.sampling.simulator import Simulator
from sbi_colt.stats.thinning import effective_number

__all__ = [
    "NUM_OF_PRIOR",
    "Simulated",
    "Weighing",
    "describe_focus",
    "find_weighing",
    "focused_xs",
]

Simulated = tuple[Tensor, Tensor]  # parameters (n, d) and data (n, …)

# Simulations from the prior: those nearest to x_o have a part in the proposal, and all
# of them are what x_o itself is compared with.
NUM_OF_PRIOR = 499
_NUM_NEIGHBOURS = 20

_NUM_AT_X_O = 1000  # draws at x_o, which make the proposal and enter no bag
# Widths of the proposal that pilot runs try, in those of the draws at x_o.
_WIDENINGS = (1.5, 2.5, 4.0, 8.0, 16.0)
_NUM_PILOT, _NUM_PILOT_DRAWS = 30, 200
_LEAST_NEAR = 20  # xs, to tell whether they come near x_o
# Share of the draws that thinning should leave at most xs, and the least share for
# which a proposal near x_o is used at all.
_ENOUGH, _LEAST = 0.2, 0.05


@dataclass(frozen=True)
class Weighing:
    """How the members of bags are weighted, and where pairs are simulated from.

    Args:
        log_weight: From parameters ``(n, d)`` to log w.
        proposal: The proposal to simulate from; `None` for pairs handed in.
        simulated: Simulations from the prior, of which the proposal knows those near
            x_o; `None` for pairs handed in.
    """

    log_weight: Callable[[Tensor], Tensor]
    proposal: FocusProposal | WindowProposal | None = None
    simulated: Simulated | None = None


def find_weighing(
    posterior: Any,
    prior: Any,
    simulator: Any,
    thetas: Any,
    x_o: Any,
    proposal: Any,
    *,
    seed: int,
    num_workers: int,
    show_progress_bar: bool,
    **options: Any,
) -> Weighing | None:
    """Return how members are weighted, or `None` where pairs come from the prior.

    Raises:
        ValueError: The arguments contradict each other.
    """
    if x_o is None and proposal is None:
        return None
    if x_o is not None and proposal is not None:
        raise ValueError(
            "x_o, proposal: expected one of them; x_o makes a proposal of its own."
        )
    if proposal is not None:
        if thetas is None:
            raise ValueError(
                "proposal: it describes pairs that you simulated; hand them in as "
                "thetas=… and xs=…, or use x_o=… to simulate near an observation."
            )
        prior = prior_of(posterior) if prior is None else prior
        known = None if prior is None else processed_prior(prior, seed)[0]
        return Weighing(user_log_weight(proposal, known))
    if thetas is not None or prior is None or simulator is None:
        raise ValueError(
            "x_o: a focused run simulates its own pairs near x_o; hand in prior=… and "
            "simulator=…, and no thetas or xs. For pairs that you have, see "
            "report.colt.at(x_o)."
        )
    common = {"num_workers": num_workers, "show_progress_bar": show_progress_bar}
    known = find_simulator(simulator, prior, None, seed)
    assert known is not None
    simulated = simulate_pairs(prior, known, NUM_OF_PRIOR, seed=seed, **common)
    chosen = _focus(posterior, prior, known, simulated, x_o, seed, common, options)
    return Weighing(chosen.log_weight, chosen, simulated)


def _focus(
    posterior: Any,
    prior: Any,
    simulator: Simulator,
    simulated: Simulated,
    x_o: Any,
    seed: int,
    common: dict[str, Any],
    options: dict[str, Any],
) -> FocusProposal | WindowProposal:
    """Return the narrowest proposal that leaves enough draws, by pilot runs.

    Where every proposal near x_o leaves next to none, that is the whole prior.
    """
    seed = derive_seed(seed, "focus")
    options = {k: v for k, v in options.items() if not k.startswith("checkpoint")}
    density = processed_prior(prior, seed)[0]
    thetas, xs = simulated
    x_o = as_observation(x_o, xs)
    own = sample_posterior(
        posterior, x_o.unsqueeze(0), _NUM_AT_X_O, seed=seed, **common, **options
    )
    samples = own.samples[:, 0]
    replicates = _replicates(simulator, samples, seed, common["num_workers"])
    neighbours = thetas[nearest(x_o, xs, _NUM_NEIGHBOURS, replicates)]

    def make(widening: float) -> FocusProposal | WindowProposal:
        with isolated_rng(generator_from(seed, "window", str(widening))):
            return make_focus_proposal(density, samples, neighbours, widening)

    tried: list[tuple[float, FocusProposal | WindowProposal]] = []
    for widening in _WIDENINGS:
        pilot = derive_seed(seed, "pilot", str(widening))
        proposal = make(widening)
        thetas, xs = simulate_pairs(
            proposal, simulator, _NUM_PILOT, seed=pilot, **common
        )
        draws = sample_posterior(
            posterior, xs, _NUM_PILOT_DRAWS, seed=pilot, **common, **options
        )
        kept = draws.mask
        bags = Draws(thetas[kept], xs[kept], draws.samples[:, kept], shuffle=False)
        bags = with_log_weights(bags, proposal.log_weight)
        share = num_left(bags, generator_from(pilot, "thinning"))
        tried.append((share, proposal))
        if share >= _ENOUGH:
            break
    share, best = max(tried, key=lambda one: one[0])
    return best if share >= _LEAST else make(math.inf)


def _replicates(
    simulator: Simulator, samples: Tensor, seed: int, num_workers: int
) -> Tensor:
    """Return data of a few draws at x_o, those that could be simulated, ``(n, …)``.

    Where there are none, that is an empty tensor.
    """
    thetas = samples[:_NUM_PILOT].float().cpu()
    blocks = simulate_at(simulator, thetas, num_workers, seed, "replicates at x_o")
    made = [x for _, outputs, _ in blocks for x in outputs if x is not None]
    return torch.stack(made) if made else thetas.new_zeros(0)


def focused_xs(draws: Draws, proposal: FocusProposal | WindowProposal) -> Tensor:
    """Return the xs that were simulated from the draws at x_o, ``(n, …)``.

    Other parameters come from the whole prior, or from around simulations near x_o, so
    that some xs may be near any x_o; these say nothing about whether the posterior
    draws at x_o are in place.
    """
    near = proposal.is_near(draws.thetas)
    if int(near.sum()) < _LEAST_NEAR:  # the posterior hardly overlaps with the prior
        near = torch.ones_like(near)
    return draws.xs[near.to(draws.xs.device)].cpu()


def describe_focus(whole: Draws, few: Draws, weighing: Weighing | None) -> Focus | None:
    """Return the numbers of a weighted run: before and after thinning.

    Args:
        whole: All draws, with weights.
        few: Those that thinning left.
        weighing: How members were weighted; `None` where weights were handed in.
    """
    if whole.log_weights is None:
        return None
    proposal = None if weighing is None else weighing.proposal
    outside = whole.log_weights[1:] == -torch.inf
    if proposal is not None:
        outside = proposal.is_outside(whole.samples.flatten(0, 1))
    return Focus(
        num_draws=whole.num_posterior_samples,
        num_effective=float(effective_number(whole.log_weights).mean()),
        num_kept=few.num_posterior_samples,
        num_pairs=len(whole),
        num_pairs_kept=len(few),
        share_outside=float(outside.double().mean()),
        widening=0.0 if proposal is None else proposal.widening,
    )
