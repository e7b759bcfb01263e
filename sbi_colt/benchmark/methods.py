"""The registry of methods: each learns from some pairs and tests others.

To add a method, write a function and add one line to `METHODS`. The function takes the
training draws, the task's `Setting`, a seed, and the draws per training step (for the
paper's variants). It returns another function, from the test draws to a result with
``p_value`` and ``statistic``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sbi_colt.baselines import C2ST, sbc, tarp
from sbi_colt.benchmark.tasks.task import Setting
from sbi_colt.colt import CoLT
from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws
from sbi_colt.predictive import data_features, data_side
from sbi_colt.randomness import digest, generator_from
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.results.test_result import TestResult

__all__ = ["METHODS", "SIMULATOR_METHODS", "Method", "Tester", "known_methods"]

Tester = Callable[[Draws], TestResult | CoLTResult]
Method = Callable[[Draws, Setting, int, "int | None"], Tester]


def _colt(train: Draws, config: CoLTConfig, seed: int) -> Tester:
    return CoLT(config, seed=seed).fit(train, show_progress_bar=False).test


def _paper(variant: str) -> Method:
    def method(
        train: Draws, setting: Setting, seed: int, draws_per_step: int | None
    ) -> Tester:
        config = CoLTConfig.paper(
            variant,
            learning_rate=setting.learning_rate,
            epochs=setting.epochs,
            draws_per_step=draws_per_step,
        )
        return _colt(train, config, seed)

    return method


def _c2st(train: Draws, setting: Setting, seed: int, _: int | None) -> Tester:
    budget = (setting.c2st_epochs, setting.c2st_learning_rate)
    return C2ST(epochs=budget[0], learning_rate=budget[1], seed=seed).fit(train).test


def _predictive(train: Draws, setting: Setting, seed: int, _: int | None) -> Tester:
    seen, features = data_features(train, CoLTConfig(), seed)
    test = CoLT(CoLTConfig().for_data(), seed=seed)
    test = test.fit(seen, show_progress_bar=False).test

    def run(draws: Draws) -> CoLTResult:
        generator = generator_from(seed, "test data", digest(draws.thetas))
        return test(data_side(draws).map_bags(features.of_bags, generator))

    return run


METHODS: dict[str, Method] = {
    "default": lambda train, setting, seed, _: _colt(train, CoLTConfig(), seed),
    "paper-full": _paper("full"),
    "paper-id": _paper("id"),
    "c2st": _c2st,
    "sbc": lambda train, setting, seed, _: partial(sbc, seed=seed),
    "tarp": lambda train, setting, seed, _: partial(tarp, seed=seed),
}
# Methods that need a simulator, which tasks with a trained posterior have.
SIMULATOR_METHODS: dict[str, Method] = {"predictive": _predictive}


def known_methods() -> dict[str, Method]:
    """Return all methods by name."""
    return {**METHODS, **SIMULATOR_METHODS}
