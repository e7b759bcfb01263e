"""The front door: one set of draws, every method, one report."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from tqdm.auto import tqdm

from sbi_colt.baselines import c2st, coverage, sbc, tarp
from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from, isolated_rng, resolve_seed
from sbi_colt.report.diagnostic import Cost, DiagnosticReport
from sbi_colt.report.findings import find
from sbi_colt.report.trends import find_trend
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.results.test_result import TestResult
from sbi_colt.run_colt import colt_on_draws
from sbi_colt.sampling.draw import draw_at_pairs, run_seed
from sbi_colt.sampling.pairs import make_pairs

__all__ = ["METHODS", "check_options", "diagnose", "diagnose_draws"]

_BASELINES: dict[str, Callable[[Draws, CoLTConfig, int], TestResult]] = {
    "sbc": lambda draws, _, seed: sbc(draws, seed=seed),
    "tarp": lambda draws, _, seed: tarp(draws, seed=seed),
    "coverage": lambda draws, _, seed: coverage(draws, seed=seed),
    "c2st": lambda draws, config, seed: c2st(
        draws, seed=seed, embedding_net=config.embedding_net
    ),
}
METHODS = ("colt", *_BASELINES)


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

    Pairs (θ*, x) come from prior and simulator, draws θ^1, …, θ^S from q(θ | x).
    Each method asks in its own way whether θ* is one more of them; `DiagnosticReport`
    has the formula that makes one verdict of their p-values.

    Args:
        posterior: What to test: a posterior of sbi, a callable or an object with
            ``sample``; see `draw_posterior_samples`.
        prior: Prior, to simulate pairs from; with ``simulator``.
        simulator: Simulator of x given θ; with ``prior``.
        thetas: True parameters of pairs already simulated, with shape ``(N, d)``. The
            posterior must not have been trained on them.
        xs: Their observations, with shape ``(N, …)``.
        num_simulations: Pairs to simulate, with ``prior`` and ``simulator``.
        num_posterior_samples: Draws per x.
        methods: Names (``"colt"``, ``"sbc"``, ``"tarp"``, ``"c2st"``, ``"coverage"``),
            functions of your own, or pairs of a name and a function, such as
            ``("tarp at 0", partial(tarp, references=zeros))``. A function goes from
            `Draws` to a `TestResult`, a dict with ``p_value`` and ``statistic``, or a
            p-value.
        config: Settings of CoLT.
        level: Level of the verdict, controlled over all methods by Holm's adjustment.
        parameter_names: Names of the parameters, used everywhere.
        seed: Seed of everything.
        device: Device to train and test on.
        num_workers: Processes for simulators and samplers that take one at a time.
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
    seconds = {
        "simulation": simulated - start,
        "sampling": time.perf_counter() - simulated,
    }
    return _report(
        draws,
        _resolve(methods),
        config,
        level,
        parameter_names,
        seed,
        device,
        show_progress_bar,
        seconds,
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
) -> DiagnosticReport:
    """Return the report for draws from anywhere; the arguments are `diagnose`'s."""
    check_options(methods, level)
    return _report(
        draws.to(device),
        _resolve(methods),
        config,
        level,
        parameter_names,
        resolve_seed(seed),
        device,
        show_progress_bar,
        {},
    )


def _report(
    draws: Draws,
    runs: dict[str, Callable | None],
    config: CoLTConfig | None,
    level: float,
    parameter_names: Sequence[str] | None,
    seed: int,
    device: str | torch.device,
    show_progress_bar: bool,
    seconds: dict[str, float],
) -> DiagnosticReport:
    names = _checked_names(parameter_names, draws.dim)
    config = config or CoLTConfig()
    results: dict[str, TestResult | CoLTResult] = {}
    progress = tqdm(runs, desc="Methods", disable=not show_progress_bar, leave=False)
    for name in progress:
        progress.set_postfix_str(name)
        start = time.perf_counter()
        own = runs[name]
        if name == "colt":
            results[name] = colt_on_draws(
                draws,
                config=config,
                seed=seed,
                device=device,
                show_progress_bar=show_progress_bar,
            )
        elif own is None:
            results[name] = _BASELINES[name](draws, config, seed)
        else:
            with isolated_rng(generator_from(seed, "method", name)):
                # A copy: what the function changes must not reach the others.
                results[name] = _as_result(name, own(copy.deepcopy(draws)))
        seconds[name] = time.perf_counter() - start
    colt = results.get("colt")
    colt = colt if isinstance(colt, CoLTResult) else None
    start = time.perf_counter()
    report = DiagnosticReport(
        results=results,
        level=level,
        findings=(),
        trend=None,
        names=names,
        cost=Cost(len(draws), draws.num_posterior_samples, seconds),
        seed=seed,
        x_shape=tuple(draws.xs.shape[1:]),
    )
    if not report.rejected:
        return report
    trend = find_trend(draws, seed)
    findings = find(draws, colt, level, seed, trend)
    seconds["findings"] = time.perf_counter() - start
    return replace(report, findings=findings, trend=trend)


def _resolve(methods: Sequence[str | Callable]) -> dict[str, Callable | None]:
    """Return each method's name, and its function where it is the user's own."""
    if isinstance(methods, str) or callable(methods):
        methods = (methods,)
    runs: dict[str, Callable | None] = {}
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
        runs[name] = function
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


def check_options(methods: Sequence[str | Callable], level: float) -> None:
    """Raise where methods or level are not what `diagnose` takes."""
    _resolve(methods)
    if isinstance(level, str) or not 0 < level < 1:
        raise ValueError(f"level: expected a number in (0, 1), got {level!r}.")
