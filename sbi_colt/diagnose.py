"""The front door: one set of draws, every method, one report."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from tqdm.auto import tqdm

from sbi_colt.baselines import c2st, coverage, sbc, tarp
from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from, isolated_rng, resolve_seed
from sbi_colt.report.diagnostic import Cost, DiagnosticReport
from sbi_colt.report.findings import Finding, find
from sbi_colt.report.trends import Trend, find_trend
from sbi_colt.report.truths import Truths
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.results.test_result import TestResult
from sbi_colt.run_colt import colt_on_draws
from sbi_colt.sampling.draw import draw_at_pairs, run_seed
from sbi_colt.sampling.pairs import make_pairs
from sbi_colt.stats.combine import holm

__all__ = ["METHODS", "check_options", "diagnose", "diagnose_draws"]


@dataclass(frozen=True)
class _Settings:
    """What a method may need beside the draws."""

    config: CoLTConfig
    seed: int
    device: str | torch.device
    show_progress_bar: bool


_Result = TestResult | CoLTResult
_Method = Callable[[Draws, _Settings], _Result]

_METHODS: dict[str, _Method] = {
    "colt": lambda draws, settings: colt_on_draws(draws, **vars(settings)),
    "sbc": lambda draws, settings: sbc(draws, seed=settings.seed),
    "tarp": lambda draws, settings: tarp(draws, seed=settings.seed),
    "coverage": lambda draws, settings: coverage(draws, seed=settings.seed),
    "c2st": lambda draws, settings: c2st(
        draws, seed=settings.seed, embedding_net=settings.config.embedding_net
    ),
}
METHODS = tuple(_METHODS)


def diagnose(
    posterior: Any,
    prior: Any = None,
    simulator: Any = None,
    *,
    thetas: Any = None,
    xs: Any = None,
    num_simulations: int = 1000,
    num_posterior_samples: int = 500,
    methods: Sequence[str | Callable] = ("colt", "sbc", "tarp", "c2st"),
    config: CoLTConfig | None = None,
    level: float = 0.05,
    parameter_names: Sequence[str] | None = None,
    seed: int | None = None,
    device: str | torch.device = "cpu",
    num_workers: int = 1,
    show_progress_bar: bool = True,
    **sampling: Any,
) -> DiagnosticReport:
    """Test a posterior with CoLT beside SBC, TARP and C2ST, on the same draws.

    Pairs (θ*, x) come from the prior and the simulator, draws θ^1, …, θ^S from the
    posterior q(θ | x). If q is right, θ* is one more draw from q at its x; each method
    tests that in its own way. `DiagnosticReport` combines their p-values into one
    verdict.

    Args:
        posterior: The posterior to test: any sbi posterior, a callable, or an object
            with a ``sample`` method; see `draw_posterior_samples`.
        prior: Prior, to simulate pairs from together with ``simulator``.
        simulator: Simulator of x given θ.
        thetas: True parameters of pairs that are already simulated, with shape
            ``(N, d)``. The posterior must not have been trained on them.
        xs: Their observations, with shape ``(N, …)``.
        num_simulations: Number of pairs to simulate with ``prior`` and ``simulator``.
        num_posterior_samples: Draws per x.
        methods: Names (``"colt"``, ``"sbc"``, ``"tarp"``, ``"c2st"``, ``"coverage"``),
            functions of your own, or pairs of a name and a function, such as
            ``("tarp at 0", partial(tarp, references=zeros))``. A function goes from
            `Draws` to a `TestResult`, a dict with ``p_value`` and ``statistic``, or a
            p-value.
        config: Settings of CoLT.
        level: Level of the verdict. Holm's adjustment makes the chance that any method
            rejects a correct posterior at most this.
        parameter_names: Names of the parameters, used everywhere.
        seed: Seed of everything.
        device: Device to train and test on.
        num_workers: Number of processes for simulators and samplers that handle one
            input at a time.
        show_progress_bar: Whether to show progress.
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
    check_options(methods, level)
    start = time.perf_counter()
    thetas, xs = make_pairs(
        prior,
        simulator,
        thetas,
        xs,
        num_simulations,
        seed=seed,
        num_workers=num_workers,
        show_progress_bar=show_progress_bar,
    )
    if parameter_names is not None and getattr(thetas, "ndim", 0) == 2:
        _checked_names(parameter_names, thetas.shape[1])  # before the work begins
    simulated = time.perf_counter()
    draws = draw_at_pairs(
        posterior,
        thetas,
        xs,
        num_posterior_samples,
        seed=seed,
        num_workers=num_workers,
        show_progress_bar=show_progress_bar,
        device=device,
        **sampling,
    )
    return diagnose_draws(
        draws,
        methods=methods,
        config=config,
        level=level,
        parameter_names=parameter_names,
        seed=seed,
        device=device,
        show_progress_bar=show_progress_bar,
        seconds={
            "simulation": simulated - start,
            "sampling": time.perf_counter() - simulated,
        },
    )


def diagnose_draws(
    draws: Draws,
    *,
    methods: Sequence[str | Callable] = ("colt", "sbc", "tarp", "c2st"),
    config: CoLTConfig | None = None,
    level: float = 0.05,
    parameter_names: Sequence[str] | None = None,
    seed: int | None = None,
    device: str | torch.device = "cpu",
    show_progress_bar: bool = True,
    seconds: Mapping[str, float] | None = None,
) -> DiagnosticReport:
    """Return the report for draws from anywhere; the arguments are `diagnose`'s.

    Args:
        draws: Pairs with their posterior draws.
        methods: Methods to run.
        config: Settings of CoLT.
        level: Level of the verdict.
        parameter_names: Names of the parameters.
        seed: Seed of everything.
        device: Device to train and test on.
        show_progress_bar: Whether to show progress.
        seconds: Seconds that simulation and sampling took, by step; they count among
            the report's costs.
    """
    runs = check_options(methods, level)
    names = _checked_names(parameter_names, draws.dim)
    seed = resolve_seed(seed)
    draws = draws.to(device)
    settings = _Settings(config or CoLTConfig(), seed, device, show_progress_bar)
    results, spent = _run_methods(draws, runs, settings)
    findings, trend = (), None
    if min(holm([result.p_value for result in results.values()])) <= level:
        start = time.perf_counter()
        findings, trend = _explain(draws, results, level, seed)
        spent["findings"] = time.perf_counter() - start
    return DiagnosticReport(
        results=results,
        level=level,
        findings=findings,
        trend=trend,
        names=names,
        cost=Cost(
            len(draws), draws.num_posterior_samples, {**(seconds or {}), **spent}
        ),
        seed=seed,
        x_shape=tuple(draws.xs.shape[1:]),
    )


def _run_methods(
    draws: Draws, methods: Mapping[str, _Method], settings: _Settings
) -> tuple[dict[str, _Result], dict[str, float]]:
    """Return the result of each method, and the seconds that it took."""
    results: dict[str, _Result] = {}
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
    draws: Draws, results: Mapping[str, _Result], level: float, seed: int
) -> tuple[tuple[Finding, ...], Trend]:
    """Return what is wrong, and how the error changes with x."""
    colt = results.get("colt")
    truths = Truths.of(draws, seed, results)
    trend = find_trend(truths, draws.xs, seed)
    findings = find(
        draws,
        truths,
        colt if isinstance(colt, CoLTResult) else None,
        level,
        seed,
        trend,
    )
    return findings, trend


def _own_method(name: str, function: Callable) -> _Method:
    """Return a user's function as a method: it gets a copy, and its answer is checked.

    What the function changes in the draws must not reach the other methods.
    """

    def run(draws: Draws, settings: _Settings) -> TestResult:
        with isolated_rng(generator_from(settings.seed, "method", name)):
            return _as_result(name, function(copy.deepcopy(draws)))

    return run


def _resolve(methods: Sequence[str | Callable]) -> dict[str, _Method]:
    """Return the methods by name; functions of the user's own are wrapped."""
    if isinstance(methods, str) or callable(methods):
        methods = (methods,)
    runs: dict[str, _Method] = {}
    for method in methods:
        if isinstance(method, str):
            name, function = method, None
        elif isinstance(method, tuple) and len(method) == 2:
            name, function = method
        else:
            name, function = getattr(method, "__name__", "own"), method
        if function is None and name not in METHODS:
            raise ValueError(
                f"methods: unknown name {name!r}; known are {', '.join(METHODS)}, "
                "and functions of your own."
            )
        if function is not None and not (callable(function) and isinstance(name, str)):
            raise TypeError(
                "methods: expected names, functions or pairs of both, got "
                f"{type(method).__name__}."
            )
        if function is not None and name in METHODS:
            raise ValueError(
                f"methods: {name!r} is the name of a method here; give yours another, "
                'as in methods=("colt", ("mine", f)).'
            )
        if name in runs:
            raise ValueError(
                f"methods: {name!r} occurs twice; name functions, as in "
                'methods=(("first", f), ("second", g)).'
            )
        runs[name] = _METHODS[name] if function is None else _own_method(name, function)
    if not runs:
        raise ValueError(f"methods: expected at least one of {', '.join(METHODS)}.")
    return runs


def _as_result(name: str, value: Any) -> TestResult:
    """Return what a user's own method gave as a `TestResult`, checked."""
    ranks, details, statistic = None, {}, float("nan")
    if isinstance(value, TestResult):
        p_value, statistic = value.p_value, value.statistic
        ranks = None if value.ranks is None else torch.as_tensor(value.ranks).cpu()
        details = value.details
    elif isinstance(value, dict) and "p_value" in value:
        p_value, statistic = value["p_value"], value.get("statistic", statistic)
    else:
        p_value = value
    try:
        if isinstance(p_value, bool):
            raise TypeError
        p_value, statistic = float(cast(float, p_value)), float(statistic)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"methods: {name!r} returned the p-value {p_value!r} and the statistic "
            f"{statistic!r}; expected a TestResult, a dict with numbers p_value and "
            "statistic, or a p-value."
        ) from error
    if not 0 <= p_value <= 1:
        raise ValueError(
            f"methods: {name!r} returned the p-value {p_value}; expected a number in "
            "[0, 1]."
        )
    try:
        details = json.loads(json.dumps(details, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"methods: the details that {name!r} returned are not ready for JSON "
            f"({error}); expected numbers, strings, lists and dicts."
        ) from error
    return TestResult(name, p_value, statistic, ranks, details)


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
    methods: Sequence[str | Callable], level: float
) -> dict[str, _Method]:
    """Return the methods by name; raise where methods or level cannot be used."""
    if isinstance(level, str) or not 0 < level < 1:
        raise ValueError(f"level: expected a number in (0, 1), got {level!r}.")
    return _resolve(methods)
