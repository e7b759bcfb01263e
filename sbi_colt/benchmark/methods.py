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
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.results.test_result import TestResult

__all__ = ["METHODS", "Tester"]

Tester = Callable[[Draws], TestResult | CoLTResult]


def _colt(train: Draws, config: CoLTConfig, seed: int) -> Tester:
    return CoLT(config, seed=seed).fit(train, show_progress_bar=False).test


def _default(
    train: Draws, setting: Setting, seed: int, draws_per_step: int | None
) -> Tester:
    return _colt(train, CoLTConfig(), seed)


def _paper(
    train: Draws,
    setting: Setting,
    seed: int,
    draws_per_step: int | None,
    *,
    variant: str,
) -> Tester:
    config = CoLTConfig.paper(
        variant,
        learning_rate=setting.learning_rate,
        epochs=setting.epochs,
        draws_per_step=draws_per_step,
    )
    return _colt(train, config, seed)


def _c2st(
    train: Draws, setting: Setting, seed: int, draws_per_step: int | None
) -> Tester:
    classifier = C2ST(
        epochs=setting.c2st_epochs,
        learning_rate=setting.c2st_learning_rate,
        seed=seed,
    )
    return classifier.fit(train).test


def _untrained(
    train: Draws,
    setting: Setting,
    seed: int,
    draws_per_step: int | None,
    *,
    test: Callable[..., TestResult],
) -> Tester:
    return partial(test, seed=seed)


METHODS: dict[str, Callable[[Draws, Setting, int, int | None], Tester]] = {
    "default": _default,
    "paper-full": partial(_paper, variant="full"),
    "paper-id": partial(_paper, variant="id"),
    "c2st": _c2st,
    "sbc": partial(_untrained, test=sbc),
    "tarp": partial(_untrained, test=tarp),
}
