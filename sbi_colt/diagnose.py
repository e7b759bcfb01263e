"""The front door: one set of draws, every method, one report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tqdm.auto import tqdm

from sbi_colt.checks import check_number
from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws
from sbi_colt.methods import Method, MethodSettings, Result, resolve_methods
from sbi_colt.randomness import resolve_seed
from sbi_colt.report.diagnostic import Cost, DiagnosticReport
from sbi_colt.report.findings import find
from sbi_colt.report.trends import find_trend
from sbi_colt.report.truths import Truths
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.results.finding import Finding, Trend
from sbi_colt.sampling.draw import make_draws, run_seed
from sbi_colt.stats.combine import holm

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
    if parameter_names is not None and getattr(thetas, "ndim", 0) == 2:
        _checked_names(parameter_names, thetas.shape[1])  # before the work begins
    draws, seconds = make_draws(
        posterior,
        prior,
        simulator,
        thetas,
        xs,
        num_simulations,
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
        seconds=seconds,
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
    settings = MethodSettings(config or CoLTConfig(), seed, device, show_progress_bar)
    results, spent = _run_methods(draws, runs, settings)
    findings, trend = (), None
    if min(holm([result.p_value for result in results.values()])) <= level:
        start = time.perf_counter()
        findings, trend = _explain(draws, results, level, seed)
        spent["findings"] = time.perf_counter() - start
    return DiagnosticReport(
        results=results,
        level=float(level),
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
    draws: Draws, results: Mapping[str, Result], level: float, seed: int
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


def _checked_names(names: Sequence[str] | None, dim: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"theta[{i}]" for i in range(dim))
    sized = hasattr(names, "__len__") and not isinstance(names, str)
    if not sized or len(set(map(str, names)) - {""}) != dim or len(names) != dim:
        raise ValueError(
            f"parameter_names: expected {dim} different names, got {names!r}."
        )
    return tuple(map(str, names))


def check_options(methods: Sequence[str | Callable], level: float) -> dict[str, Method]:
    """Return the methods by name; raise where methods or level cannot be used."""
    check_number("level", level, "a number in (0, 1)", lambda v: 0 < v < 1)
    return resolve_methods(methods)
