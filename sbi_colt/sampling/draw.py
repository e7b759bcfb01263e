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
from sbi_colt.sampling.focus import Weighing, find_weighing
from sbi_colt.sampling.origin import warn_if_not_of_prior
from sbi_colt.sampling.pairs import PairSource
from sbi_colt.sampling.proposal import with_log_weights
from sbi_colt.sampling.replicates import ReplicateOptions, TooFewBags, num_replicated
from sbi_colt.sampling.sbi_internals import default_observation

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
    source = PairSource(prior, simulator, num_simulations=num_simulations)
    return make_draws(
        posterior,
        source,
        num_posterior_samples,
        seed=run_seed(seed, options.get("checkpoint")),
        num_workers=num_workers,
        show_progress_bar=show_progress_bar,
        device=device,
        **options,
    )[0]


def make_draws(
    posterior: Any,
    source: PairSource,
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
    of_prior: bool = False,
    **options: Any,
) -> tuple[Draws, Spent]:
    """Return draws at pairs that are handed in or simulated, and what they cost.

    This is the first half of every front door; the arguments are those of `diagnose`.
    Without a ``parameter_side`` only the data side is made: just the pairs that get
    replicates are simulated, and the posterior is drawn from once at each of them.
    ``of_prior`` says that the pairs handed in were simulated from the prior.
    """
    device = checked_device(device)  # before the simulations
    bar = show_progress_bar
    common = {"seed": seed, "num_workers": num_workers, "show_progress_bar": bar}
    _check_focus(posterior, parameter_side, x_o, proposal)
    how = ReplicateOptions(
        num_replicates,
        num_replicated_pairs,
        checkpoint=options.get("checkpoint"),
        checkpoint_name=options.get("checkpoint_name"),
        **common,
    )
    clock, before = Clock(), source.num_spent
    if x_o is not None:
        source = source.with_simulator(seed)
    given = (source.prior, source.simulator, source.thetas, x_o, proposal)
    weighing = find_weighing(posterior, *given, **common, **options)
    if not of_prior:
        warn_if_not_of_prior(posterior, source, weighing, seed)
    focus = None if weighing is None else weighing.proposal
    if focus is not None:
        source = replace(source, prior=focus)
    source, number = ready_pairs(
        source, num_posterior_samples, num_replicated_pairs, parameter_side, **common
    )
    how = replace(how, num_replicated_pairs=number)
    clock.add("simulation")
    left_out, failed_share = "", None
    if source.simulator is not None and not parameter_side:
        draws = draw_for_data_side(posterior, source, how, device, **options)
        clock.add("sampling and replicates")
    else:
        at = (source.thetas, source.xs, num_posterior_samples)
        draws = draw_at_pairs(posterior, *at, device=device, **common, **options)
        if weighing is not None:
            draws = with_log_weights(draws, weighing.log_weight)
        clock.add("sampling")
        if source.simulator is not None and not num_replicates:
            left_out = "off"
        elif source.simulator is not None:
            draws, left_out, failed_share = _with_data_side(draws, source, how)
            clock.add("replicates")
    num_spent = source.num_spent - before
    return draws, Spent(clock.seconds, num_spent, left_out, failed_share, weighing)


def _check_focus(posterior: Any, parameter_side: bool, x_o: Any, proposal: Any) -> None:
    """Raise if weights have nothing to weigh; warn if a posterior is for one x."""
    if x_o is None and proposal is None:
        if default_observation(posterior) is not None:
            warn_caller(
                "posterior: it has a default observation (default_x). If it was "
                "trained for this observation, in several rounds or with a truncated "
                "proposal, pairs from the whole prior reject it although it may be "
                "right there: use diagnose(…, x_o=posterior.default_x). If it was "
                "trained on simulations from the prior alone, this verdict is valid."
            )
    elif not parameter_side:
        raise ValueError(
            "methods: with x_o or proposal the data side needs the weights of "
            'posterior draws; add "colt", or leave methods out.'
        )


def _with_data_side(
    draws: Draws, source: PairSource, how: ReplicateOptions
) -> tuple[Draws, str, float | None]:
    """Return draws with a data side; or without one, why, and the failed share."""
    try:
        return add_data_side(draws, source, how), "", None
    except TooFewBags as error:
        warn_caller(f"{error} The data side is left out.")
        share = error.failed_share
        return draws, "failing" if share else "few", share


def ready_pairs(
    source: PairSource,
    num_posterior_samples: int,
    num_replicated_pairs: int | None,
    parameter_side: bool,
    *,
    seed: int,
    **simulation: Any,
) -> tuple[PairSource, int | None]:
    """Return the source with its pairs, and the number of pairs that get replicates.

    Where only the data side is wanted, only those pairs are simulated: as many as the
    user asks for, or as many as ``num_simulations`` pairs would have beside a parameter
    side. The arguments are those of `make_draws`.
    """
    check_integer("num_posterior_samples", num_posterior_samples, least=1)
    if not parameter_side and source.thetas is None:
        number = check_integer("num_simulations", source.num_simulations, least=1)
        num_replicated_pairs = num_replicated_pairs or num_replicated(number)
        source = replace(source, num_simulations=num_replicated_pairs)
    source = source.with_simulator(seed).with_pairs(seed=seed, **simulation)
    return source, num_replicated_pairs


@dataclass(frozen=True)
class Spent:
    """What draws cost, and why they have no data side.

    Args:
        seconds: Seconds by step.
        num_spent: Simulations, trial calls and failures included.
        left_out: Why there is a simulator but no data side; see `DiagnosticReport`.
        failed_share: Share of the θ' at which the simulator fails, if the data side
            was left out after that was seen.
        weighing: How members were weighted: the proposal of a focused run, and what
            was simulated from the prior for it; `None` for pairs from the prior.
    """

    seconds: dict[str, float]
    num_spent: int
    left_out: str = ""
    failed_share: float | None = None
    weighing: Weighing | None = None


class Clock:
    """Seconds by step: `add` ends a step, and the next one begins."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.start = time.perf_counter()

    def add(self, step: str) -> None:
        """Keep the seconds since the last call under the name of a step."""
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
