"""The front door: one set of draws, every method, one report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from tqdm.auto import tqdm

from sbi_colt.checks import check_inner_share
from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws
from sbi_colt.methods import Method, MethodSettings, Result, resolve_methods
from sbi_colt.plausibility import nearness
from sbi_colt.randomness import digest, generator_from, resolve_seed
from sbi_colt.report.diagnostic import Cost, DiagnosticReport, overall_p_value
from sbi_colt.results.finding import Finding
from sbi_colt.results.plausibility_result import PlausibilityResult
from sbi_colt.sampling.at_xs import run_seed
from sbi_colt.sampling.check_observation import check_observation
from sbi_colt.sampling.draw import Spent, make_draws
from sbi_colt.sampling.focus import describe_focus, focused_xs
from sbi_colt.sampling.pairs import PairSource
from sbi_colt.tilt.bags import choose_members
from sbi_colt.tilt.findings import find_errors
from sbi_colt.weighted import thinned

__all__ = ["check_options", "diagnose", "diagnose_draws"]


def diagnose(
    posterior: Any,
    prior: Any = None,
    simulator: Any = None,
    *,
    thetas: Any = None,
    xs: Any = None,
    num_simulations: int = 1000,
    num_posterior_samples: int = 500,
    methods: Sequence[str | Callable] | None = None,
    config: CoLTConfig | None = None,
    level: float = 0.05,
    parameter_names: Sequence[str] | None = None,
    seed: int | None = None,
    device: str | torch.device = "cpu",
    num_workers: int = 1,
    show_progress_bar: bool = True,
    num_replicates: int = 6,
    num_replicated_pairs: int | None = None,
    x_o: Any = None,
    proposal: Any = None,
    **sampling: Any,
) -> DiagnosticReport:
    """Test a posterior with CoLT on both sides, beside SBC, TARP and C2ST.

    *Parameters.* Pairs (θ*, x) come from the prior and the simulator, draws θ^1, …, θ^S
    from the posterior q(θ | x). If q is right, θ* is one more draw from q at its x.
    *Data* (`sbi_colt.predictive`, if there is a simulator). At some of the pairs, one
    draw θ' of q is simulated again: if q is right, x is one more simulation from θ'.
    The verdict is one exact p-value of both sides, ``report.p_value``; the other
    methods stand beside it.

    Args:
        posterior: The posterior to test: any sbi posterior, a callable, or an object
            with a ``sample`` method; see `draw_posterior_samples`.
        prior: Prior, to simulate pairs from together with ``simulator``.
        simulator: Simulator of x given θ, for pairs and for replicates.
        thetas: True parameters of pairs that are already simulated, with shape
            ``(N, d)``. The posterior must not have been trained on them.
        xs: Their observations, with shape ``(N, …)``.
        num_simulations: Number of pairs to simulate with ``prior`` and ``simulator``.
        num_posterior_samples: Draws per x.
        methods: Names (``"colt"``, ``"predictive"``, ``"sbc"``, ``"tarp"``,
            ``"c2st"``, ``"coverage"``), functions of your own, or pairs of a name and a
            function, such as ``("tarp at 0", partial(tarp, references=zeros))``. A
            function goes from `Draws` to a `TestResult`, a dict with ``p_value`` and
            ``statistic``, or a p-value. The default is all but coverage;
            ``"predictive"`` only where there is a simulator.
            ``methods=("predictive",)`` simulates only the pairs that get replicates
            and takes one posterior draw at each, for samplers that take seconds a draw.
        config: Settings of CoLT.
        level: Level of the verdict: a correct posterior is rejected with at most this
            probability.
        parameter_names: Names of the parameters, used everywhere.
        seed: Seed of everything.
        device: Device to train and test on.
        num_workers: Number of processes for simulators and samplers that handle one
            input at a time.
        show_progress_bar: Whether to show progress.
        num_replicates: Simulations from each θ' on the data side, M; 0 for no data
            side. They come on top of ``num_simulations``.
        num_replicated_pairs: Pairs that have replicates; by default a sixth of
            ``num_simulations`` or of the pairs handed in, and at least 50: as many
            simulations again.
        x_o: Your observation. All pairs are then simulated near it, from a proposal
            around q(θ | x_o) (`sbi_colt.sampling.proposal`), and the verdict is about
            posteriors at observations like x_o. For posteriors that were trained for
            one observation, in several rounds, no other verdict is valid. Whether the
            simulator could have made x_o is tested as well, with 1500 simulations more
            (`sbi_colt.plausibility`).
        proposal: The distribution that ``thetas`` were simulated from, if that is not
            the prior: a distribution with ``log_prob`` (``prior`` is needed too), or a
            function from parameters ``(n, d)`` to log w, w = proposal / prior.
        **sampling: Further options of `draw_posterior_samples`, such as
            ``max_sampling_time`` and ``checkpoint``.

    Returns:
        The report; print it. Null hypothesis of every p-value: q(θ | x) = p(θ | x).

    References:
        CoLT: Chen, Bansal and Scott (2025); SBC: Talts et al. (2018); TARP: Lemos et
        al. (2023); C2ST: Lopez-Paz and Oquab (2017); Holm (1979).

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> prior = MultivariateNormal(torch.zeros(2), torch.eye(2))
        >>> def simulator(thetas):
        ...     return thetas + torch.randn_like(thetas)
        >>> def exact(xs, num):  # the posterior, N(x / 2, I / 2)
        ...     return xs / 2 + 0.5**0.5 * torch.randn(num, *xs.shape)
        >>> report = diagnose(
        ...     exact,
        ...     prior,
        ...     simulator,
        ...     num_simulations=100,
        ...     num_posterior_samples=50,
        ...     methods=("colt", "sbc", "tarp"),
        ...     seed=1,
        ...     show_progress_bar=False,
        ... )
        >>> report.rejected
        False
        >>> [name for name in report]
        ['colt', 'sbc', 'tarp']
    """
    seed = run_seed(seed, sampling.get("checkpoint"))
    has_data_side = simulator is not None and num_replicates != 0
    runs = check_options(methods, level, has_data_side=has_data_side)
    if parameter_names is not None and getattr(thetas, "ndim", 0) == 2:
        _checked_names(parameter_names, thetas.shape[1])  # before the work begins
    source = PairSource(prior, simulator, thetas, xs, num_simulations)
    if x_o is not None:
        source = source.with_simulator(seed)
    common: dict[str, Any] = {
        "seed": seed,
        "num_workers": num_workers,
        "show_progress_bar": show_progress_bar,
    }
    draws, spent = make_draws(
        posterior,
        source,
        num_posterior_samples,
        device=device,
        num_replicates=num_replicates if "predictive" in runs else 0,
        num_replicated_pairs=num_replicated_pairs,
        parameter_side=set(runs) != {"predictive"},
        x_o=x_o,
        proposal=proposal,
        **common,
        **sampling,
    )
    if draws.predictive is None:  # left out, as a warning said
        runs.pop("predictive", None)
    settings = MethodSettings(config or CoLTConfig(), seed, device, show_progress_bar)
    observed = None
    if x_o is not None:
        observed, spent = _check_x_o(posterior, source, x_o, draws, spent, **common)
    return _report(draws, runs, settings, level, parameter_names, spent, observed)


def _check_x_o(
    posterior: Any,
    source: PairSource,
    x_o: Any,
    draws: Draws,
    spent: Spent,
    *,
    seed: int,
    **common: Any,
) -> tuple[tuple[PlausibilityResult, float], Spent]:
    """Return whether the simulator could have made x_o, and its nearness to the xs."""
    start, before = time.perf_counter(), source.num_spent
    assert spent.weighing is not None
    assert spent.weighing.proposal is not None
    result = check_observation(
        posterior,
        source.prior,
        source.simulator,
        x_o,
        seed=seed,
        simulated=spent.weighing.simulated,
        **common,
    )
    near = nearness(
        result.x_o,
        focused_xs(draws, spent.weighing.proposal),
        generator_from(seed, "nearness"),
    )
    return (result, near), replace(
        spent,
        seconds={**spent.seconds, "observation": time.perf_counter() - start},
        num_spent=spent.num_spent + source.num_spent - before,
    )


def diagnose_draws(
    draws: Draws,
    *,
    methods: Sequence[str | Callable] | None = None,
    config: CoLTConfig | None = None,
    level: float = 0.05,
    parameter_names: Sequence[str] | None = None,
    seed: int | None = None,
    device: str | torch.device = "cpu",
    show_progress_bar: bool = True,
    spent: Spent | None = None,
) -> DiagnosticReport:
    """Return the report for draws from anywhere.

    ``draws`` are pairs with their posterior draws, and replicates if there are any.
    ``spent`` is what simulation and sampling cost; it counts among the report's costs.
    The other arguments are those of `diagnose`.
    """
    runs = check_options(
        methods,
        level,
        has_data_side=draws.predictive is not None,
        has_samples=draws.num_posterior_samples > 0,
    )
    settings = MethodSettings(
        config or CoLTConfig(), resolve_seed(seed), device, show_progress_bar
    )
    return _report(draws, runs, settings, level, parameter_names, spent or Spent({}, 0))


def _report(
    draws: Draws,
    methods: Mapping[str, Method],
    settings: MethodSettings,
    level: float,
    parameter_names: Sequence[str] | None,
    spent: Spent,
    observed: tuple[PlausibilityResult, float] | None = None,
) -> DiagnosticReport:
    """Run the methods on draws, and return the report.

    ``observed`` is what is known of x_o, where there is one; see `_check_x_o`.
    """
    names = _checked_names(parameter_names, draws.dim)
    whole = draws
    draws = thinned(whole, settings.seed).to(settings.device)
    results, seconds = _run_methods(draws, methods, settings)
    findings = ()
    if overall_p_value(results) <= level and draws.num_posterior_samples:
        start = time.perf_counter()
        findings = _explain(draws, settings, level)
        seconds["findings"] = time.perf_counter() - start
    return DiagnosticReport(
        results=results,
        level=float(level),
        findings=findings,
        names=names,
        cost=Cost(
            len(draws),
            draws.num_posterior_samples,
            {**spent.seconds, **seconds},
            spent.num_spent,
        ),
        seed=settings.seed,
        x_shape=tuple(draws.xs.shape[1:]),
        replicates=draws.predictive if "predictive" in results else None,
        left_out=spent.left_out,
        failed_share=_failed_share(draws, spent),
        focus=describe_focus(whole, draws, spent.weighing),
        observation=observed and observed[0],
        nearness=observed and observed[1],
    )


def _failed_share(draws: Draws, spent: Spent) -> float | None:
    """Return the share of the θ' at which the simulator fails again and again."""
    if draws.predictive is None:
        return spent.failed_share
    return float((~draws.predictive.mask).double().mean())


def _run_methods(
    draws: Draws, methods: Mapping[str, Method], settings: MethodSettings
) -> tuple[dict[str, Result], dict[str, float]]:
    """Return the result of each method, and the seconds that it took."""
    results: dict[str, Result] = {}
    seconds: dict[str, float] = {}
    progress = tqdm(
        methods, desc="Methods", disable=not settings.show_progress_bar, leave=False
    )
    for name in progress:
        progress.set_postfix_str(name)
        start = time.perf_counter()
        results[name] = methods[name](draws, settings)
        seconds[name] = time.perf_counter() - start
    return results, seconds


def _explain(
    draws: Draws, settings: MethodSettings, level: float
) -> tuple[Finding, ...]:
    """Return what is wrong; errors that depend on x name a number of x itself."""
    key = digest(draws.thetas, draws.xs)
    generator = generator_from(settings.seed, "findings", key)
    bags = choose_members(draws.thetas, draws.samples, generator)
    features = draws.xs.reshape(len(draws), -1).cpu().double()
    return find_errors(bags, features, level, generator)


def _checked_names(names: Sequence[str] | None, dim: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"theta[{i}]" for i in range(dim))
    sized = hasattr(names, "__len__") and not isinstance(names, str)
    if not sized or len(set(map(str, names)) - {""}) != dim or len(names) != dim:
        raise ValueError(
            f"parameter_names: expected {dim} different names, got {names!r}."
        )
    return tuple(map(str, names))


def check_options(
    methods: Sequence[str | Callable] | None,
    level: float,
    *,
    has_data_side: bool,
    has_samples: bool = True,
) -> dict[str, Method]:
    """Return the methods by name; raise where methods or level cannot be used."""
    check_inner_share("level", level)
    return resolve_methods(
        methods, has_data_side=has_data_side, has_samples=has_samples
    )
