"""Measure features and probes of the data side on simulators of many kinds.

A bag is an observation x and 9 replicates from the simulator at one draw θ' of a wrong
posterior. There are 100 bags, of which 30% train; the last lines have more bags with
fewer replicates, 900 in all as well. The table has, for each choice of features and
probes, the power at level 0.05 for small errors, the mean estimated distance and
certified bound of posteriors that are blind to x, wholly or in one parameter, and the
false alarms for exact ones. The CSV file has the numbers of each error; what it already
has is not run again. The default was chosen on other simulators with other seeds;
``--choice`` runs those.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

import torch

from sbi_colt.benchmark.row_files import append_rows, rows_so_far
from sbi_colt.benchmark.studies.shared import (
    JOBS,
    QUIET,
    count_option,
    flag,
    in_parallel_with_bar,
    out_option,
)
from sbi_colt.benchmark.tables import aligned
from sbi_colt.benchmark.tasks.simulators import (
    SIMULATORS,
    SMALL_ERRORS,
    predictive_draws,
)
from sbi_colt.colt import CoLT
from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws
from sbi_colt.probes.features import DataFeatures
from sbi_colt.randomness import generator_from
from sbi_colt.sampling.parallel import one_thread
from sbi_colt.stats.combine import two_halves_p_value

OPTIONS = {
    **JOBS,
    **QUIET,
    "--choice": flag("run the simulators and seeds with which the default was chosen"),
    "--repetitions": count_option("repetitions of each error (default: 20)", 20),
    **out_option("predictive.csv"),
}
_LARGE = ("blind", "one blind")
_REPORTED = ("pendulum", "rings", "mixed")
_REPORT_SEED = 1000  # the first seed of the reported runs
_NUM_REDRAWS, _TRAIN_FRACTION = 499, 0.3
_SIZE = (100, 9)  # bags, and replicates in each
_OTHER_SIZES = ((150, 6), (225, 4))
_WIDTHS = (43, 7, 10, 7, 9)
_NUMBERS, _COMPONENTS = "numbers", "components"
_TEN = CoLTConfig().probes
_DATA = ("data-energy", "data-distance", "logit", "data-drift")
_PARAMETERS = "default of the parameter side"


class _Candidate(NamedTuple):
    """A choice to measure."""

    features: str
    label: str  # of the probes
    probes: tuple[str, ...]  # that see the features
    size: tuple[int, int] = _SIZE


_CANDIDATES = (
    _Candidate(_NUMBERS, _PARAMETERS, _TEN),
    _Candidate(_COMPONENTS, _PARAMETERS, _TEN),
    *(
        _Candidate(_COMPONENTS, " ".join(probes), probes)
        for probes in (
            ("data-energy",),
            ("data-distance",),
            ("data-energy", "data-distance"),
            ("data-energy", "logit", "data-drift"),
            _DATA,
        )
    ),
    _Candidate(_COMPONENTS, "the four above and data-ball", (*_DATA, "data-ball")),
    *(
        _Candidate(_COMPONENTS, f"the four, {n} bags of {m} replicates", _DATA, (n, m))
        for n, m in _OTHER_SIZES
    ),
)


@dataclass(frozen=True)
class PredictiveKey:
    """One error of a simulator, seen by one choice of features and probes."""

    simulator: str
    error: str
    size: float
    features: str
    probes: str
    repetitions: int


@dataclass(frozen=True)
class PredictiveRow:
    """What was measured, the mean over the repetitions."""

    key: PredictiveKey
    power: float
    distance: float
    distance_lower: float


def run(options: argparse.Namespace) -> Iterator[str]:
    """Yield a table of means; each error has rows in the CSV file."""
    chosen = [name for name in SIMULATORS if (name in _REPORTED) != options.choice]
    first, repetitions = (0 if options.choice else _REPORT_SEED), options.repetitions

    def rows_of_run() -> list[PredictiveRow]:
        return [
            row
            for row in rows_so_far(options.out, PredictiveRow)
            if row.key.simulator in chosen and row.key.repetitions == repetitions
        ]

    done = {row.key for row in rows_of_run()}
    jobs = []
    for name in chosen:
        for error, size in _sizes(name).items():
            missing = [
                candidate
                for candidate in _CANDIDATES
                if _key(name, error, size, candidate, repetitions) not in done
            ]
            if missing:
                jobs.append((name, error, size, first, repetitions, missing))
    for rows in in_parallel_with_bar(_measure, jobs, options, "Errors"):
        append_rows(options.out, rows, options.command_line)
    yield from predictive_lines(rows_of_run())


def _key(
    name: str, error: str, size: float, candidate: _Candidate, repetitions: int
) -> PredictiveKey:
    own = (candidate.features, candidate.label)
    return PredictiveKey(name, error, size, *own, repetitions)


def _sizes(simulator: str) -> dict[str, float]:
    """Return the errors to measure and their sizes; large errors and none have 0."""
    sizes: dict[str, float] = dict.fromkeys((*SMALL_ERRORS, *_LARGE, "none"), 0.0)
    sizes.update(zip(SMALL_ERRORS, SIMULATORS[simulator].sizes, strict=True))
    return sizes


def predictive_lines(rows: Sequence[PredictiveRow]) -> Iterator[str]:
    """Yield the means of each candidate."""
    by_kind: dict[tuple[str, str, str], list[PredictiveRow]] = defaultdict(list)
    for row in rows:
        error = row.key.error
        kind = (
            "small" if error in SMALL_ERRORS else "large" if error in _LARGE else error
        )
        by_kind[row.key.features, row.key.probes, kind].append(row)
    heads = ("power", "distance", "bound", "alarms")
    yield f"{'features':<12}" + aligned(("probes", *heads), *_WIDTHS)
    for features, probes in dict.fromkeys((f, p) for f, p, _ in by_kind):
        small, large, none = (
            by_kind[features, probes, kind] for kind in ("small", "large", "none")
        )
        means = (
            fmean(row.power for row in small),
            fmean(row.distance for row in large),
            fmean(row.distance_lower for row in large),
            fmean(row.power for row in none),
        )
        numbers = (f"{mean:.2f}" for mean in means)
        yield f"{features:<12}" + aligned((probes, *numbers), *_WIDTHS)
    simulators = len({row.key.simulator for row in rows})
    repetitions = rows[0].key.repetitions
    count = simulators * repetitions
    error, alarm = (0.25 / len(SMALL_ERRORS) / count) ** 0.5, (0.0475 / count) ** 0.5
    yield f"Means over {simulators} simulators and {repetitions} repetitions: power for"
    yield "five small errors, distance and certified bound for two large ones, false"
    yield f"alarms for exact posteriors. Standard errors: power at most {error:.2f},"
    yield f"false alarms {alarm:.2f}. All candidates of one size see the same bags."


def _measure(
    name: str,
    error: str,
    size: float,
    first: int,
    repetitions: int,
    candidates: Sequence[_Candidate] = _CANDIDATES,
) -> list[PredictiveRow]:
    """Return the row of each candidate."""
    simulator = SIMULATORS[name]
    found: dict[_Candidate, list[tuple[float, ...]]] = defaultdict(list)
    with one_thread():
        for seed in range(first, first + repetitions):
            seen: dict[tuple[int, int], dict[str, tuple[Draws, Draws]]] = {}
            for own in candidates:
                if own.size not in seen:
                    generator = generator_from(seed, "predictive", name, error)
                    draws = predictive_draws(
                        simulator, error, size, *own.size, generator
                    )
                    parts = draws.split(_TRAIN_FRACTION, seed=seed)
                    components = _components(*parts, simulator.x_shape, generator)
                    seen[own.size] = {_NUMBERS: parts, _COMPONENTS: components}
                found[own].append(
                    _test(*seen[own.size][own.features], own.probes, seed)
                )
    return [
        PredictiveRow(
            _key(name, error, size, own, repetitions),
            *(float(f"{fmean(part):.4g}") for part in zip(*numbers, strict=True)),
        )
        for own, numbers in found.items()
    ]


def _components(
    train: Draws, test: Draws, x_shape: tuple[int, ...], generator: torch.Generator
) -> tuple[Draws, Draws]:
    """Return both sets with the components of the data in the place of the data."""
    members = train.bags(train.place_truths(generator))
    features = DataFeatures.fit(members, x_shape)

    def seen(part: Draws) -> Draws:
        first = torch.zeros(len(part), dtype=torch.long)
        bags = features.of_bags(part.bags(first))  # (n, M + 1, m)
        return replace(part, thetas=bags[:, 0], samples=bags[:, 1:].transpose(0, 1))

    return seen(train), seen(test)


def _test(
    train: Draws, test: Draws, probes: tuple[str, ...], seed: int
) -> tuple[float, ...]:
    """Return rejection at level 0.05 by all pairs, distance and certified bound."""
    config = CoLTConfig(probes=probes, num_redraws=_NUM_REDRAWS)
    colt = CoLT(config, seed=seed).fit(train, show_progress_bar=False)
    result = colt.test(test)
    p_value = result.p_value
    if colt.training_p_value is not None:
        p_value = two_halves_p_value(p_value, colt.training_p_value)
    return float(p_value <= 0.05), result.distance, result.distance_lower
