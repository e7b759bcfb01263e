"""Draws at pairs: the first half of every front door.

Pairs are handed in or simulated (``pairs``), the posterior is sampled at their xs
(``at_xs``), and replicates are simulated at some of its draws (``data_side``).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from sbi_colt.arrays import as_tensor, check_finite, clean_pairs, in_one_precision
from sbi_colt.checks import check_integer, checked_device, warn_caller
from sbi_colt.draws import Draws
from sbi_colt.pair_keys import make_pair_keys
from sbi_colt.sampling.at_xs import check_dimension, run_seed, sample_posterior
from sbi_colt.sampling.data_side import add_data_side, draw_for_data_side
from sbi_colt.sampling.focus import find_weighing
from sbi_colt.sampling.pairs import find_simulator, make_pairs
from sbi_colt.sampling.proposal import check_prior, with_log_weights
from sbi_colt.sampling.replicates import (
    ReplicateOptions,
    TooFewBags,
    num_replicated,
)
from sbi_colt.sampling.sbi_internals import default_observation
from sbi_colt.sampling.simulator import Simulator

__all__ = ["Spent", "draw", "draw_at_pairs", "make_draws", "ready_pairs"]


def draw(
    posterior: Any,
    prior: Any,
    simulator: Any,
    num_simulations: int,
    num_posterior_samples: int,
    *,
    seed: int | None = None,
    num_workers: int = 1,
    show_progress_bar: bool = True,
    device: str | torch.device = "cpu",
    **options: Any,
) -> Draws:
    """Simulate pairs and draw from the posterior at each x.

    Args:
        posterior: What to draw from, as in `draw_posterior_samples`.
        prior: Prior: a torch distribution, a list of them, or anything that sbi's
            `process_prior` takes.
        simulator: Function from parameters to data, of a batch ``(n, d)`` or of a
            single θ ``(d,)``, in torch or NumPy. Pairs for which it raises or returns
            NaN or infinity are dropped, counted and replaced.
        num_simulations: Pairs, N.
        num_posterior_samples: Draws per x, S.
        seed: Seed of simulation and sampling.
        num_workers: Processes for simulators and samplers that take one at a time.
        show_progress_bar: Whether to show progress.
        device: Device of the draws.
        **options: Further options of `draw_posterior_samples`.

    Returns:
        The draws; xs that could not be sampled are left out with a warning.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> prior = MultivariateNormal(torch.zeros(2), torch.eye(2))
        >>> def simulator(thetas):
        ...     return thetas + torch.randn_like(thetas)
        >>> def q(xs, num):
        ...     return xs / 2 + torch.randn(num, *xs.shape)
        >>> draw(q, prior, simulator, 30, 10, seed=0, show_progress_bar=False)
        Draws(num_pairs=30, num_posterior_samples=10, dim=2, x_shape=(2,))
    """
    return make_draws(
        posterior,
        prior,
        simulator,
        None,
        None,
        num_simulations,
        num_posterior_samples,
        seed=run_seed(seed, options.get("checkpoint")),
        num_workers=num_workers,
        show_progress_bar=show_progress_bar,
        device=device,
        **options,
    )[0]


def make_draws(
    posterior: Any,
    prior: Any,
    simulator: Any,
    thetas: Any,
    xs: Any,
    num_simulations: int,
    num_posterior_samples: int,
    *,
    seed: int,
    device: str | torch.device,
    num_workers: int,
    show_progress_bar: bool,
    num_replicates: int = 0,
    num_replicated_pairs: int | None = None,
    parameter_side: bool = True,
    x_o: Any = None,
    proposal: Any = None,
    **options: Any,
) -> tuple[Draws, Spent]:
    """Return draws at pairs that are handed in or simulated, and what they cost.

    This is the first half of every front door; the arguments are those of `diagnose`.
    Without a ``parameter_side`` only the data side is made: just the pairs that get
    replicates are simulated, and the posterior is drawn from once at each of them.
    """
    device = checked_device(device)  # before the simulations
    common = {
        "seed": seed,
        "num_workers": num_workers,
        "show_progress_bar": show_progress_bar,
    }
    check_prior(prior)
    if not parameter_side and (x_o is not None or proposal is not None):
        raise ValueError(
            "methods: with x_o or proposal the data side needs the weights of "
            'posterior draws; add "colt", or leave methods out.'
        )
    if x_o is None and proposal is None:
        _warn_if_for_one_x(posterior)
    clock = Clock()
    before = simulator.num_spent if isinstance(simulator, Simulator) else 0
    how = ReplicateOptions(
        num_replicates,
        num_replicated_pairs,
        checkpoint=options.get("checkpoint"),
        checkpoint_name=options.get("checkpoint_name"),
        **common,
    )
    if x_o is not None:
        simulator = find_simulator(simulator, prior, thetas, seed)
    weighing = find_weighing(
        posterior, prior, simulator, thetas, x_o, proposal, **common, **options
    )
    focus = None if weighing is None else weighing.proposal
    known, thetas, xs, number = ready_pairs(
        prior if focus is None else focus,
        simulator,
        thetas,
        xs,
        num_simulations,
        num_posterior_samples,
        num_replicated_pairs,
        parameter_side,
        **common,
    )
    how = replace(how, num_replicated_pairs=number)
    clock.add("simulation")
    left_out, failed_share = "", None
    if known is not None and not parameter_side:
        draws = draw_for_data_side(posterior, thetas, xs, known, how, device, **options)
        clock.add("sampling and replicates")
    else:
        sampling = {"device": device, **common, **options}
        draws = draw_at_pairs(posterior, thetas, xs, num_posterior_samples, **sampling)
        if weighing is not None:
            draws = with_log_weights(draws, weighing.log_weight)
        clock.add("sampling")
        if known is not None and how.num_replicates:
            try:
                draws = add_data_side(draws, thetas, xs, known, how)
            except TooFewBags as error:
                warn_caller(f"{error} The data side is left out.")
                failed_share = error.failed_share
                left_out = "failing" if failed_share else "few"
            clock.add("replicates")
        elif known is not None:
            left_out = "off"
    num_spent = 0 if known is None else known.num_spent - before
    widening = 0.0 if focus is None else focus.widening
    return draws, Spent(clock.seconds, num_spent, left_out, failed_share, widening)


def _warn_if_for_one_x(posterior: Any) -> None:
    """Warn where sbi says that a posterior is meant for one observation."""
    if default_observation(posterior) is not None:
        warn_caller(
            "posterior: it has a default observation (default_x). If it was trained "
            "for this observation, in several rounds or with a truncated proposal, "
            "pairs from the whole prior reject it although it may be right there: use "
            "diagnose(…, x_o=posterior.default_x). If it was trained on simulations "
            "from the prior alone, this verdict is valid."
        )


def ready_pairs(
    prior: Any,
    simulator: Any,
    thetas: Any,
    xs: Any,
    num_simulations: int,
    num_posterior_samples: int,
    num_replicated_pairs: int | None,
    parameter_side: bool,
    *,
    seed: int,
    **simulation: Any,
) -> tuple[Simulator | None, Any, Any, int | None]:
    """Return simulator, parameters, data and the number of pairs that get replicates.

    Where only the data side is wanted, only those pairs are simulated: as many as the
    user asks for, or as many as ``num_simulations`` pairs would have beside a parameter
    side. The arguments are those of `make_draws`.
    """
    check_integer("num_posterior_samples", num_posterior_samples, least=1)
    if not parameter_side and thetas is None:
        check_integer("num_simulations", num_simulations, least=1)
        num_simulations = num_replicated_pairs or num_replicated(num_simulations)
        num_replicated_pairs = num_simulations
    known = find_simulator(simulator, prior, thetas, seed)
    pairs = make_pairs(
        prior, known, thetas, xs, num_simulations, seed=seed, **simulation
    )
    return known, *pairs, num_replicated_pairs


@dataclass(frozen=True)
class Spent:
    """What draws cost, and why they have no data side.

    Args:
        seconds: Seconds by step.
        num_simulations: Simulations, trial calls and failures included.
        left_out: Why there is a simulator but no data side; see `DiagnosticReport`.
        failed_share: Share of the θ' at which the simulator fails, if the data side
            was left out after that was seen.
        widening: How much wider than the draws at x_o the proposal of a focused run is;
            0 for any other run.
    """

    seconds: dict[str, float]
    num_simulations: int
    left_out: str = ""
    failed_share: float | None = None
    widening: float = 0.0


class Clock:
    """Seconds by step: each step ends where it is added."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.start = time.perf_counter()

    def add(self, step: str) -> None:
        """End a step."""
        now = time.perf_counter()
        self.seconds[step] = now - self.start
        self.start = now


def draw_at_pairs(
    posterior: Any,
    thetas: Any,
    xs: Any,
    num_posterior_samples: int,
    *,
    device: str | torch.device = "cpu",
    **options: Any,
) -> Draws:
    """Draw from the posterior at the xs of pairs already simulated.

    Pairs that repeat are refused; pairs whose x is not finite or cannot be sampled are
    left out with a warning, and the draws' ``mask`` and ``index`` tell which.

    Args:
        posterior: What to draw from, as in `draw_posterior_samples`.
        thetas: True parameters, with shape ``(N, d)``.
        xs: Observations, with shape ``(N, …)``.
        num_posterior_samples: Draws per x, S.
        device: Device of the draws.
        **options: Further options of `draw_posterior_samples`.
    """
    precision = as_tensor(thetas, "thetas").dtype
    thetas, xs, mask = clean_pairs(thetas, xs)
    keys = make_pair_keys(thetas, xs)  # repeats are refused before the work begins
    result = sample_posterior(
        posterior, xs, num_posterior_samples, device=device, **options
    )
    check_dimension(result.samples, thetas.shape[1])
    complete = result.mask
    samples = result.samples[:, complete.to(result.samples.device)]
    here = complete.to(thetas.device)
    thetas, xs = thetas[here].to(device), xs[here].to(device)
    index = mask.cpu().nonzero().flatten()[complete]
    kept = torch.zeros(len(mask), dtype=torch.bool)
    kept[index] = True
    if precision.is_floating_point:  # half precision came as single from clean_pairs
        thetas = thetas.to(precision)
    thetas, samples = in_one_precision(thetas, "thetas", samples, "samples")
    check_finite(samples, "posterior")
    keys = None if keys is None else keys[complete]
    return Draws(thetas, xs, samples, mask=kept, index=index, keys=keys)
