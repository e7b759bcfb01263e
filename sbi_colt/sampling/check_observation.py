"""Could the simulator have made x_o? The simulations behind the answer.

References and fitting simulations come from the prior. With a posterior, M parameters
are drawn at x_o and at every reference alike and each is simulated once: the
replicates. Where a simulation fails, it is made again *at the same θ'*, a few times;
an x some of whose replicates still fail, or at which the posterior cannot be sampled,
counts as the farthest from its replicates. The rule is the same for x_o and the
references, so the p-value stays exact.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.arrays import as_observation
from sbi_colt.checks import check_integer, warn_caller
from sbi_colt.plausibility import plausibility
from sbi_colt.randomness import generator_from
from sbi_colt.results.plausibility_result import PlausibilityResult
from sbi_colt.sampling.at_xs import run_seed, sample_posterior
from sbi_colt.sampling.focus import NUM_OF_PRIOR, Simulated
from sbi_colt.sampling.pairs import find_simulator, simulate_at, simulate_pairs
from sbi_colt.sampling.simulator import Simulator

__all__ = ["LEAST_REFERENCES", "check_observation"]

LEAST_REFERENCES = 99  # fewer cannot reject at the 1% level
_NUM_REFERENCES = 199
_LEAST_FITTING = 20
_MAX_ROUNDS = 4  # simulations at one θ' before it counts as failing


def check_observation(
    posterior: Any,
    prior: Any,
    simulator: Any,
    x_o: Any,
    *,
    num_references: int = _NUM_REFERENCES,
    num_fitting: int = NUM_OF_PRIOR - _NUM_REFERENCES,
    num_replicates: int = 5,
    seed: int | None = None,
    num_workers: int = 1,
    show_progress_bar: bool = True,
    simulated: Simulated | None = None,
    **options: Any,
) -> PlausibilityResult:
    """Test whether prior and simulator could have made an observation.

    Null hypothesis: x_o ~ p(x), the data that prior and simulator make together, given
    that the simulation succeeds. The p-value is exact, whatever the posterior is.

    Args:
        posterior: What to draw from, as in `draw_posterior_samples`; `None` leaves the
            posterior-predictive score out.
        prior: Prior, as for sbi's `process_prior`.
        simulator: Function from parameters to data, as in `draw`.
        x_o: The observation, with the shape of one x, or with a leading axis of one.
        num_references: Prior simulations that x_o is ranked with, n; at least 99.
        num_fitting: Further prior simulations, which fit the scores; at least 20.
        num_replicates: Posterior draws that are simulated at x_o and at each reference,
            M; they cost M (n + 1) simulations. 0 leaves the predictive score out.
        seed: Seed of simulation and sampling.
        num_workers: Processes for simulators and samplers that take one at a time.
        show_progress_bar: Whether to show progress.
        simulated: Parameters and data of at least ``num_references + num_fitting``
            simulations from the prior that are already there; by default they are made.
        **options: Further options of `draw_posterior_samples`, but no time limit.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> prior = MultivariateNormal(torch.zeros(2), torch.eye(2))
        >>> def simulator(thetas):
        ...     return thetas + 0.1 * torch.randn_like(thetas)
        >>> result = check_observation(
        ...     None, prior, simulator, [0, 9], seed=0, show_progress_bar=False
        ... )
        >>> result.p_value <= 0.02
        True
    """
    check_integer("num_references", num_references, least=LEAST_REFERENCES)
    check_integer("num_fitting", num_fitting, least=_LEAST_FITTING)
    check_integer("num_replicates", num_replicates, least=0)
    if options.get("max_sampling_time") is not None:
        raise ValueError(
            "max_sampling_time: a time limit could leave x_o without posterior draws; "
            "use fewer references or replicates instead."
        )
    seed = run_seed(seed)
    common = {"num_workers": num_workers, "show_progress_bar": show_progress_bar}
    known = find_simulator(simulator, prior, None, seed)
    if known is None:
        raise TypeError("simulator: expected a function of θ, got None.")
    number = num_references + num_fitting
    if simulated is None:
        simulated = simulate_pairs(prior, known, number, seed=seed, **common)
    thetas, xs = simulated
    observed = as_observation(x_o, xs)
    _warn_if_same(known, thetas[:10], seed)
    references, fitting = xs[:num_references], xs[num_references:number]
    replicates = None
    if posterior is not None and num_replicates:
        together = torch.cat([observed.unsqueeze(0), references])
        options = {"max_lost": 1.0} | options  # an x that is given up is counted
        result = sample_posterior(
            posterior, together, num_replicates, seed=seed, **common, **options
        )
        replicates = _replicates(known, result.samples, together, seed, **common)
    generator = generator_from(seed, "plausibility")
    return plausibility(observed, references, fitting, generator, replicates)


def _warn_if_same(simulator: Simulator, thetas: Tensor, seed: int) -> None:
    """Warn where simulations repeat: then x_o differs from all of them by its noise."""
    rounds = [
        [
            x
            for _, outputs, _ in simulate_at(simulator, thetas, 1, seed, "again", turn)
            for x in outputs
        ]
        for turn in range(2)
    ]
    pairs = [
        (a, b) for a, b in zip(*rounds, strict=True) if a is not None and b is not None
    ]
    differ = len({tuple(a.flatten().tolist()) for a, _ in pairs}) > 1
    if differ and all(torch.equal(a, b) for a, b in pairs):
        warn_caller(
            "simulator: it returns the same data again for the same parameters. If it "
            "sets a random seed itself, x_o is unlike simulations only because its "
            "noise is another: remove the seed."
        )


def _replicates(
    simulator: Simulator,
    thetas: Tensor,
    xs: Tensor,
    seed: int,
    *,
    num_workers: int,
    show_progress_bar: bool,
) -> Tensor:
    """Simulate once at each θ', and return the data, NaN for failures.

    Args:
        simulator: The simulator.
        thetas: Posterior draws with shape ``(M, n + 1, d)``; NaN where there are none.
        xs: x_o and references, with shape ``(n + 1, …)``.
        seed: Seed of the run.
        num_workers: Processes for a simulator that takes one θ at a time.
        show_progress_bar: Whether to show progress.
    """
    flat = thetas.flatten(0, 1).float().cpu()
    found = xs.new_full((len(flat), *xs.shape[1:]), math.nan)
    missing = flat.isfinite().all(dim=1).nonzero().flatten()
    progress = tqdm(
        total=len(missing),
        desc="Simulating replicates",
        disable=not show_progress_bar,
        leave=False,
    )
    with progress:
        for turn in range(_MAX_ROUNDS):
            failed = []
            at, stream = flat[missing], ("plausibility", turn)
            for start, outputs, _ in simulate_at(
                simulator, at, num_workers, seed, *stream
            ):
                for place, x in zip(missing[start:].tolist(), outputs, strict=False):
                    if x is None:
                        failed.append(place)
                    else:
                        found[place] = x.to(found).reshape(found.shape[1:])
                        progress.update(1)
            missing = torch.tensor(failed, dtype=torch.long)
            if not failed:
                break
    return found.reshape(*thetas.shape[:2], *xs.shape[1:])
