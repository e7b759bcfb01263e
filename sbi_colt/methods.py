"""The methods of a report by name, and functions of the user's own beside them.

To add a method, write a function from draws to a `TestResult` and give it a line in
`METHODS`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from sbi_colt.baselines import c2st, coverage, sbc, tarp
from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws
from sbi_colt.predictive import predictive
from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.results.test_result import TestResult
from sbi_colt.run_colt import colt_on_draws

__all__ = [
    "DEFAULT",
    "METHODS",
    "Method",
    "MethodSettings",
    "Result",
    "resolve_methods",
]

# What a report has if nothing else is asked for. "predictive" needs replicates.
DEFAULT = ("colt", "predictive", "sbc", "tarp", "c2st")


@dataclass(frozen=True)
class MethodSettings:
    """What a method may need beside the draws."""

    config: CoLTConfig
    seed: int
    device: str | torch.device
    show_progress_bar: bool


Result = TestResult | CoLTResult
Method = Callable[[Draws, MethodSettings], Result]

METHODS: dict[str, Method] = {
    "colt": lambda draws, settings: colt_on_draws(draws, **vars(settings)),
    "predictive": lambda draws, settings: predictive(draws, **vars(settings)),
    "sbc": lambda draws, settings: sbc(draws, seed=settings.seed),
    "tarp": lambda draws, settings: tarp(draws, seed=settings.seed),
    "coverage": lambda draws, settings: coverage(draws, seed=settings.seed),
    "c2st": lambda draws, settings: c2st(
        draws, seed=settings.seed, embedding_net=settings.config.embedding_net
    ),
}


def _own_method(name: str, function: Callable) -> Method:
    """Return a user's function as a method: it gets a copy, and its answer is checked.

    What the function changes in the draws must not reach the other methods.
    """

    def run(draws: Draws, settings: MethodSettings) -> TestResult:
        with isolated_rng(generator_from(settings.seed, "method", name)):
            return _as_result(name, function(copy.deepcopy(draws)))

    return run


def resolve_methods(
    methods: Sequence[str | Callable] | None,
    *,
    has_data_side: bool,
    has_samples: bool = True,
) -> dict[str, Method]:
    """Return the methods by name; functions of the user's own are wrapped.

    Args:
        methods: What the user asked for; `None` for all of `DEFAULT` that can be run.
        has_data_side: Whether there are replicates, or a simulator to make them.
        has_samples: Whether there are posterior draws, or a posterior to make them.
    """
    if methods is None:
        methods = [
            name
            for name in DEFAULT
            if (has_data_side if name == "predictive" else has_samples)
        ]
    if isinstance(methods, str) or callable(methods):
        methods = (methods,)
    runs: dict[str, Method] = {}
    for method in methods:
        name, run = _resolve(method)
        if name in runs:
            raise ValueError(
                f"methods: {name!r} occurs twice; name functions, as in "
                'methods=(("first", f), ("second", g)).'
            )
        runs[name] = run
    if not runs:
        raise ValueError(f"methods: expected at least one of {', '.join(METHODS)}.")
    if "predictive" in runs and not has_data_side:
        raise ValueError(
            'methods: "predictive" compares x with replicates, which need a simulator: '
            "hand in simulator=… with num_replicates >= 1, or replicates in the file."
        )
    if not has_samples and set(runs) != {"predictive"}:
        raise ValueError(
            "methods: there are no posterior draws (samples), so only "
            f'methods=("predictive",) can be run, got {", ".join(runs)}.'
        )
    return runs


def _resolve(method: Any) -> tuple[str, Method]:
    """Return the name of one method and what runs it, or raise."""
    if isinstance(method, str):
        if method not in METHODS:
            raise ValueError(
                f"methods: unknown name {method!r}; known are {', '.join(METHODS)}, "
                "and functions of your own."
            )
        return method, METHODS[method]
    is_pair = isinstance(method, tuple) and len(method) == 2
    name, function = method if is_pair else (getattr(method, "__name__", "own"), method)
    if not (callable(function) and isinstance(name, str)):
        raise TypeError(
            "methods: expected names, functions or pairs of both, got "
            f"{type(method).__name__}."
        )
    if name in METHODS:
        raise ValueError(
            f"methods: {name!r} is the name of a method here; give yours another, "
            'as in methods=("colt", ("mine", f)).'
        )
    return name, _own_method(name, function)


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
    try:
        details = json.loads(json.dumps(details, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"methods: the details that {name!r} returned are not ready for JSON "
            f"({error}); expected numbers, strings, lists and dicts."
        ) from error
    try:
        return TestResult(name, p_value, statistic, ranks, details)
    except ValueError as error:
        raise ValueError(f"methods: {name!r} returned a wrong {error}") from error
