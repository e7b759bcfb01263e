"""Measure features and probes of the data side on simulators of many kinds.

A bag is an observation x and 9 replicates from the simulator at one draw θ' of a wrong
posterior. There are 100 bags, of which 30 train. The table has, for each choice of
features and probes, the power at level 0.05 for small errors, the mean estimated
distance and certified bound of posteriors that are blind to x, wholly or in one
parameter, and the false alarms for exact ones. The CSV file has the numbers of each
error. The default was chosen on other simulators with other seeds; ``--choice`` runs
those.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import torch
from tqdm.auto import tqdm

from sbi_colt.benchmark.grid.rows import metadata
from sbi_colt.benchmark.studies.shared import JOBS, QUIET, at_least
from sbi_colt.benchmark.tasks.simulators import SIMULATORS, predictive_draws
from sbi_colt.colt import CoLT
from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws
from sbi_colt.probes.features import DataFeatures
from sbi_colt.randomness import generator_from
from sbi_colt.sampling.parallel import in_parallel, one_thread
from sbi_colt.stats.combine import two_halves_p_value

OPTIONS = {
    **JOBS,
    **QUIET,
    "--choice": {
        "action": "store_true",
        "help": "run the simulators and seeds with which the default was chosen",
    },
    "--repetitions": {
        "type": at_least(1),
        "default": 20,
        "metavar": "NUM",
        "help": "repetitions of each error (default: 20)",
    },
    "--out": {
        "type": Path,
        "default": Path("predictive.csv"),
        "metavar": "FILE",
        "help": "the CSV file (default: %(default)s)",
    },
}
_SMALL = ("wide", "one wide", "nearest", "shift", "narrow")
_LARGE = ("blind", "one blind")
# Sizes of the small errors, in this order: most have a power between 0.1 and 0.95.
_SIZES = {
    "linear": (0.1, 0.3, 0.6, 0.05, 0.6),
    "student": (0.08, 0.12, 0.3, 0.02, 0.25),
    "bent": (0.02, 0.05, 1.0, 0.01, 0.35),
    "moving average": (0.05, 0.1, 0.15, 0.05, 0.12),
    "counts": (0.01, 0.1, 0.2, 0.003, 0.2),
    "blob": (0.05, 0.2, 0.4, 0.035, 0.3),
    "trials": (0.05, 0.1, 0.2, 0.03, 0.15),
    "volatility": (0.12, 0.3, 0.2, 0.06, 0.25),
    "g-and-k": (0.03, 0.15, 0.6, 0.015, 0.3),
    "fitzhugh": (0.015, 0.03, 0.2, 0.006, 0.3),
    "menten": (0.015, 0.3, 0.2, 0.02, 0.25),
    "queue": (0.05, 0.1, 0.1, 0.02, 0.12),
    "waves": (0.04, 0.05, 0.2, 0.015, 0.2),
    "pendulum": (0.008, 0.02, 0.15, 0.004, 0.2),
    "rings": (0.025, 0.07, 0.18, 0.013, 0.15),
    "mixed": (0.025, 0.4, 0.18, 0.01, 0.2),
}
_REPORTED = ("pendulum", "rings", "mixed")
_REPORT_SEED = 1000  # the first seed of the reported runs
_NUM_PAIRS, _NUM_REPLICATES, _NUM_REDRAWS, _TRAIN_FRACTION = 100, 9, 499, 0.3
_NUMBERS, _COMPONENTS = "numbers", "components"
_TEN = CoLTConfig().probes
_DATA = ("data-energy", "data-distance", "logit", "data-drift")
_LABELS = {
    _TEN: "default of the parameter side",
    (*_DATA, "data-ball"): "the four above and data-ball",
}
_COLUMNS = ("simulator", "error", "size", "features", "probes", "repetitions")
_MEASURED = ("power", "distance", "distance_lower")


@dataclass(frozen=True)
class _Candidate:
    """Features of the data, and the probes that see them."""

    features: str
    probes: tuple[str, ...]

    @property
    def label(self) -> str:
        return _LABELS.get(self.probes, " ".join(self.probes))


_CANDIDATES = (
    _Candidate(_NUMBERS, _TEN),
    _Candidate(_COMPONENTS, _TEN),
    _Candidate(_COMPONENTS, ("data-energy",)),
    _Candidate(_COMPONENTS, ("data-distance",)),
    _Candidate(_COMPONENTS, ("data-energy", "data-distance")),
    _Candidate(_COMPONENTS, ("data-energy", "logit", "data-drift")),
    _Candidate(_COMPONENTS, _DATA),
    _Candidate(_COMPONENTS, (*_DATA, "data-ball")),
)
Numbers = tuple[float, ...]  # power, distance, certified bound


def run(options: argparse.Namespace) -> Iterator[str]:
    """Yield a table of means; each error is a row of the CSV file."""
    chosen = [name for name in _SIZES if (name in _REPORTED) != options.choice]
    cells = []
    for name in chosen:
        sizes: dict[str, float] = dict(zip(_SMALL, _SIZES[name], strict=True))
        cells += [(name, e, sizes.get(e, 0.0)) for e in (*_SMALL, *_LARGE, "none")]
    first = 0 if options.choice else _REPORT_SEED
    jobs = [(*cell, first, options.repetitions) for cell in cells]
    found = tqdm(
        in_parallel(_measure, jobs, options.jobs),
        total=len(jobs),
        desc="Errors",
        disable=options.quiet,
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", encoding="utf-8", newline="") as file:
        file.write(metadata(options.command_line))
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*_COLUMNS, *_MEASURED])
        for cell, numbers in zip(cells, found, strict=True):
            for candidate, own in zip(_CANDIDATES, numbers, strict=True):
                key = (*cell, candidate.features, candidate.label, options.repetitions)
                writer.writerow([*key, *(f"{number:.4g}" for number in own)])
            file.flush()
    yield from predictive_lines(options.out)


def predictive_lines(path: Path) -> Iterator[str]:
    """Yield the means of each candidate, from a file of this command."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if line[0] != "#"))
    by_kind: dict[tuple[str, str, str], list[list[float]]] = defaultdict(list)
    for row in rows:
        error = row["error"]
        kind = "small" if error in _SMALL else "large" if error in _LARGE else error
        numbers = [float(row[name]) for name in _MEASURED]
        by_kind[row["features"], row["probes"], kind].append(numbers)
    head = f"{'power':>7}{'distance':>10}{'bound':>7}{'alarms':>9}"
    yield f"{'features':<12}{'probes':<43}{head}"
    for features, probes in dict.fromkeys((f, p) for f, p, _ in by_kind):
        power = fmean(n[0] for n in by_kind[features, probes, "small"])
        large = by_kind[features, probes, "large"]
        distance, bound = fmean(n[1] for n in large), fmean(n[2] for n in large)
        alarms = fmean(n[0] for n in by_kind[features, probes, "none"])
        numbers = f"{power:>7.2f}{distance:>10.2f}{bound:>7.2f}{alarms:>9.2f}"
        yield f"{features:<12}{probes:<43}{numbers}"
    simulators = len({row["simulator"] for row in rows})
    repetitions = int(rows[0]["repetitions"])
    count = simulators * repetitions
    error, alarm = (0.25 / len(_SMALL) / count) ** 0.5, (0.0475 / count) ** 0.5
    yield f"Means over {simulators} simulators and {repetitions} repetitions: power for"
    yield "five small errors, distance and certified bound for two large ones, false"
    yield f"alarms for exact posteriors. Standard errors: power at most {error:.2f},"
    yield f"false alarms {alarm:.2f}. All candidates see the same bags."


def _measure(
    name: str, error: str, size: float, first: int, repetitions: int
) -> list[Numbers]:
    """Return the mean numbers of each candidate."""
    simulator = SIMULATORS[name]
    results: dict[_Candidate, list[Numbers]] = defaultdict(list)
    with one_thread():
        for seed in range(first, first + repetitions):
            generator = generator_from(seed, "predictive", name, error)
            draws = predictive_draws(
                simulator, error, size, _NUM_PAIRS, _NUM_REPLICATES, generator
            )
            train, test = draws.split(_TRAIN_FRACTION, seed=seed)
            components = _components(train, test, simulator.x_shape, generator)
            both = {_NUMBERS: (train, test), _COMPONENTS: components}
            for candidate in _CANDIDATES:
                tested = _test(*both[candidate.features], candidate.probes, seed)
                results[candidate].append(tested)
    return [
        tuple(map(fmean, zip(*results[candidate], strict=True)))
        for candidate in _CANDIDATES
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


def _test(train: Draws, test: Draws, probes: tuple[str, ...], seed: int) -> Numbers:
    """Return rejection at level 0.05 by all pairs, distance and certified bound."""
    config = CoLTConfig(probes=probes, num_redraws=_NUM_REDRAWS)
    colt = CoLT(config, seed=seed).fit(train, show_progress_bar=False)
    result = colt.test(test)
    p_value = result.p_value
    if colt.training_p_value is not None:
        p_value = two_halves_p_value(p_value, colt.training_p_value)
    return float(p_value <= 0.05), result.distance, result.distance_lower
