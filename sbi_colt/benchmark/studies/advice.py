"""Does the advice of a report help? Ten real defects of posteriors trained with sbi.

Each posterior is trained with one mistake (`sbi_colt.benchmark.tasks.defects`) and
diagnosed with 400 pairs and 100 draws at each x. The report names what is wrong and
says what to do. The posterior is then trained again in every way that could be advised
and that changes something: the advice is followed by its first such remedy, and the
best of the others is the alternative. Distances are measured on fresh pairs with
another seed. The report knows nothing of the defects; the study finds the remedies by
their words in the advice. The advice was chosen with seeds 0 and 1.

A row takes about ten seconds on one core.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sbi_colt.benchmark.row_files import append_rows, rows_so_far
from sbi_colt.benchmark.studies.shared import (
    JOBS,
    QUIET,
    at_least,
    count_option,
    in_parallel_with_bar,
    out_option,
)
from sbi_colt.benchmark.tables import aligned
from sbi_colt.benchmark.tasks.defects import (
    DEFECTS,
    ENOUGH,
    PROBLEMS,
    Training,
    train,
)
from sbi_colt.diagnose import diagnose
from sbi_colt.randomness import derive_seed
from sbi_colt.report.diagnostic import DiagnosticReport
from sbi_colt.report.text import report_sentences
from sbi_colt.sampling.parallel import one_thread

OPTIONS = {
    **JOBS,
    **QUIET,
    "--defects": {
        "nargs": "+",
        "metavar": "DEFECT",
        "choices": list(DEFECTS),
        "default": list(DEFECTS),
        "help": "some of the defects only",
    },
    "--pairs": count_option("pairs of each report (default: 400)", 400),
    "--draws": count_option("posterior draws at each x (default: 100)", 100),
    "--seed": {
        "type": at_least(0),
        "default": 2,
        "help": "seed (default: 2); the advice was chosen with seeds 0 and 1",
    },
    **out_option("advice.csv"),
}
_NOTHING = "nothing"  # is changed
_SLOWEST = "spline flow"
_METHODS = ("colt", "predictive", "sbc")  # those that the report's words depend on
# At such a level nothing is rejected, and so nothing is named, which saves time.
_DISTANCE_ONLY = {"methods": ("colt", "predictive"), "level": 1e-9}
_WRONG, _TO_DO = "What is wrong: ", "What to do: "


@dataclass(frozen=True)
class Remedy:
    """What can be changed in a training, and the words that advise it."""

    words: str
    change: Callable[[Training], Training]


def _larger_embedding(training: Training) -> Training:
    return training if training.embedding is None else replace(training, embedding=16)


def _more_components(training: Training) -> Training:
    if training.estimator != "one Gaussian":
        return training
    return replace(training, estimator="mixture")


def _longer(training: Training) -> Training:
    """Train on while the loss falls on pairs that were not trained on."""
    if training.copies > 1:
        return training
    return replace(training, max_epochs=ENOUGH)


REMEDIES = {
    "same simulations": Remedy(
        "the same prior and the same noise", lambda t: replace(t, noise=1.0, share=1.0)
    ),
    "x as it is": Remedy(
        "x reaches the network", lambda t: replace(t, is_shuffled=False, dropped=None)
    ),
    "larger embedding": Remedy("embedding", _larger_embedding),
    "longer training": Remedy("for longer", _longer),
    "earlier stop": Remedy("stop the training earlier", lambda t: replace(t, copies=1)),
    "more components": Remedy("network with more components", _more_components),
    "10 times the simulations": Remedy(
        "more simulations",
        lambda t: replace(t, num_simulations=10 * t.num_simulations),
    ),
    _SLOWEST: Remedy("spline flow", lambda t: replace(t, estimator="nsf")),
}


@dataclass(frozen=True)
class AdviceKey:
    """One training and its report."""

    defect: str
    remedy: str
    pairs: int
    draws: int
    seed: int


@dataclass(frozen=True)
class AdviceRow:
    """What was said of a defective posterior, and the distance of each training."""

    key: AdviceKey
    named: str  # empty where something was changed
    advised: str
    distance: float
    distance_lower: float


def run(options: argparse.Namespace) -> Iterator[str]:
    """Yield the table; each training is a row of the CSV file."""
    keys = [
        AdviceKey(defect, remedy, options.pairs, options.draws, options.seed)
        for defect in options.defects
        for remedy in (_NOTHING, *REMEDIES)
        if remedy == _NOTHING or _changes(remedy, defect)
    ]
    keys.sort(key=lambda key: key.remedy == _SLOWEST)  # a table early
    done = {row.key for row in rows_so_far(options.out, AdviceRow)}
    jobs = [(key,) for key in keys if key not in done]
    for row in in_parallel_with_bar(_measure, jobs, options, "Trainings"):
        append_rows(options.out, [row], options.command_line)
    asked = set(keys)
    rows = rows_so_far(options.out, AdviceRow)
    yield from advice_lines([row for row in rows if row.key in asked])


def _changes(remedy: str, defect: str) -> bool:
    return REMEDIES[remedy].change(DEFECTS[defect]) != DEFECTS[defect]


def remedies_in(advice: str) -> list[str]:
    """Return the remedies that a text advises, in its order."""
    places = {name: advice.find(remedy.words) for name, remedy in REMEDIES.items()}
    found = [name for name in places if places[name] >= 0]
    return sorted(found, key=places.__getitem__)


def followed(defect: str, advice: str) -> str:
    """Return the first remedy of an advice that changes something, or "nothing"."""
    useful = (name for name in remedies_in(advice) if _changes(name, defect))
    return next(useful, _NOTHING)


def _measure(key: AdviceKey) -> AdviceRow:
    with one_thread():
        training = DEFECTS[key.defect]
        if key.remedy != _NOTHING:
            training = REMEDIES[key.remedy].change(training)
        posterior = train(training, key.seed)
        named = advised = ""
        if key.remedy == _NOTHING:
            report = _report(posterior, key, "diagnosis", methods=_METHODS)
            named, advised = _said(report, _WRONG), _said(report, _TO_DO)
        fresh = _report(posterior, key, "distance", **_DISTANCE_ONLY)
        return AdviceRow(key, named, advised, fresh.distance, fresh.distance_lower)


def _report(posterior: Any, key: AdviceKey, use: str, **options: Any) -> Any:
    problem = PROBLEMS[DEFECTS[key.defect].problem]
    return diagnose(
        posterior,
        problem.prior(),
        lambda thetas: problem.simulate(thetas, 1.0),
        num_simulations=key.pairs,
        num_posterior_samples=key.draws,
        seed=derive_seed(key.seed, "advice", use, key.defect),
        show_progress_bar=False,
        **options,
    )


def _said(report: DiagnosticReport, beginning: str) -> str:
    """Return the paragraph of a report with a beginning; empty if there is none."""
    texts = (t for t in report_sentences(report) if t.startswith(beginning))
    return next(texts, "").removeprefix(beginning)


def advice_lines(rows: Sequence[AdviceRow]) -> Iterator[str]:
    """Yield the distances of each defect, what was named and what was advised."""
    by_defect: dict[str, dict[str, AdviceRow]] = {}
    for row in rows:
        by_defect.setdefault(row.key.defect, {})[row.key.remedy] = row
    widths = (32, 13, 15, 15)
    yield aligned(("defect", "before", "after advice", "alternative"), *widths)
    for defect, own in by_defect.items():
        first = own[_NOTHING]
        advised = followed(defect, first.advised)
        others = [n for n in own if n not in (_NOTHING, advised)]
        best = min(others, key=lambda name: own[name].distance, default=_NOTHING)
        numbers = (_numbers(own[name]) for name in (_NOTHING, advised, best))
        yield aligned((defect, *numbers), *widths)
        yield _indented(f"named: {_short(first.named)}")
        yield _indented(f"advised: {', '.join(remedies_in(first.advised)) or _NOTHING}")
        yield _indented(f"done: {advised}; alternative: {best}")
    yield "Distances on fresh pairs, with their certified lower bounds in brackets."


def _short(text: str) -> str:
    """Return the first statement about what is wrong, or that there is none."""
    first = text.split(" (correcting")[0].removesuffix(".")
    return first or "nothing, not rejected"


def _indented(text: str) -> str:
    return textwrap.fill(text, 92, initial_indent=" " * 4, subsequent_indent=" " * 6)


def _numbers(row: AdviceRow) -> str:
    return f"{row.distance:.2f} ({row.distance_lower:.2f})"
