"""What is named first for posteriors with one known error each: a confusion table.

There are 26 kinds of error, each in two sizes, with 1, 2, 5 and 10 parameters and with
300 and 1000 pairs, 100 draws per x, and five kinds of correct posteriors. The right
answers are part of the tasks (`sbi_colt.benchmark.tasks.errors`). As in a report,
something is named only if the verdict rejects, the p-value of CoLT on all pairs.
Intervals of sizes are those that a report would have for the true error's family and
parameter, whether or not it was named. They allow for the choice of the parameter and
of the part of x. The rules were chosen on other seeds.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from sbi_colt.benchmark.row_files import append_rows, rows_so_far
from sbi_colt.benchmark.studies.shared import (
    JOBS,
    QUIET,
    at_least,
    count_option,
    in_parallel_with_bar,
    out_option,
)
from sbi_colt.benchmark.tasks.error_sizes import true_size
from sbi_colt.benchmark.tasks.errors import ERRORS, NULLS, ErrorTask
from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from
from sbi_colt.results.finding import Finding
from sbi_colt.run_colt import colt_on_draws
from sbi_colt.sampling.parallel import one_thread
from sbi_colt.tilt.bags import choose_members
from sbi_colt.tilt.findings import find_errors
from sbi_colt.tilt.sizes import Errors, measure

OPTIONS = {
    **JOBS,
    **QUIET,
    "--kinds": {"nargs": "+", "metavar": "KIND", "help": "some of the kinds only"},
    "--dims": {"nargs": "+", "type": at_least(1), "default": [1, 2, 5, 10]},
    "--pairs": {"nargs": "+", "type": at_least(10), "default": [300, 1000]},
    "--repetitions": count_option("repetitions of each cell (default: 8)", 8),
    "--first-seed": {
        "type": at_least(0),
        "default": 2000,
        "metavar": "SEED",
        "help": "seed of the first repetition; the rules were chosen below 2000",
    },
    **out_option("findings.csv"),
}
_NUM_DRAWS, _LEVEL = 100, 0.05


@dataclass(frozen=True)
class FindingsKey:
    """One run: a kind of error, its size, and the data."""

    kind: str
    size: float
    dim: int
    pairs: int
    seed: int


@dataclass(frozen=True)
class FindingsRow:
    """What was found in a run."""

    key: FindingsKey
    p_value: float  # of the verdict
    named: str  # families, the first one first; empty if the verdict does not reject
    parameters: str  # of the first finding
    covered: str  # "1" if the interval has the true size, "0" if not, "" if none has


def run(options: argparse.Namespace) -> Iterator[str]:
    """Yield the table; each run is a row of the CSV file."""
    keys = [
        FindingsKey(kind, float(f"{size:.4g}"), dim, pairs, seed)
        for kind, error in {**ERRORS, **NULLS}.items()
        if not options.kinds or kind in options.kinds
        for dim in options.dims
        if error.least_dim <= dim <= error.most_dim
        for pairs in options.pairs
        for size in dict.fromkeys(error.sizes)
        # As many correct posteriors as wrong ones of a kind.
        for seed in _seeds(options, 1 + (kind in NULLS))
    ]
    done = {row.key for row in rows_so_far(options.out, FindingsRow)}
    jobs = [(key,) for key in keys if key not in done]
    for row in in_parallel_with_bar(_measure, jobs, options, "Runs"):
        append_rows(options.out, [row], options.command_line)
    asked = set(keys)
    rows = rows_so_far(options.out, FindingsRow)
    yield from findings_lines([row for row in rows if row.key in asked])


def _seeds(options: argparse.Namespace, factor: int) -> range:
    first = options.first_seed
    return range(first, first + factor * options.repetitions)


def _measure(key: FindingsKey) -> FindingsRow:
    with one_thread():
        task = ErrorTask(key.kind, key.size, key.dim, key.seed)
        where = (key.kind, repr(key.size), key.dim, key.pairs)
        generator = generator_from(key.seed, *where)
        draws = task.draws(key.pairs, _NUM_DRAWS, generator)
        verdict = colt_on_draws(draws, seed=key.seed, show_progress_bar=False)
        p_value = float(f"{verdict.p_value:.4g}")
        found: Sequence[Finding] = ()
        if p_value <= _LEVEL:
            bags = choose_members(draws.thetas, draws.samples, generator)
            found = find_errors(bags, draws.xs.double(), _LEVEL, generator)
        names = dict.fromkeys(finding.family for finding in found)
        first = ".".join(map(str, found[0].parameters)) if found else ""
        covered = _covered(task, draws)
        return FindingsRow(key, p_value, "; ".join(names), first, covered)


def _covered(task: ErrorTask, draws: Draws) -> str:
    """Return whether the interval of the true error's size has the true size."""
    if task.kind in NULLS:
        return ""
    size = true_size(task)
    bags = choose_members(draws.thetas, draws.samples, torch.Generator().manual_seed(0))
    errors, num_choices = Errors.of(bags), 1
    if size.feature is not None:
        errors = errors.thirds(draws.xs[:, size.feature])[2]
        num_choices = 3 * draws.xs.shape[1]  # as many as a report chooses from
    own = measure(errors, size.base, size.parameters, num_choices)
    return str(int(own.low <= size.value(own.pattern) <= own.high))


def findings_lines(rows: Sequence[FindingsRow]) -> Iterator[str]:
    """Yield the confusion table."""
    by_kind: dict[str, list[FindingsRow]] = defaultdict(list)
    for row in rows:
        by_kind[row.key.kind].append(row)
    head = f"{'named':>7}{'right':>7}{'more':>6}{'covered':>9}"
    head = f"{'rejected':>10}" + head
    yield f"{'kind of error':<27}{'runs':>5}{head}  others named first"
    total: Counter[str] = Counter()
    for kind, own in by_kind.items():
        right = {**ERRORS, **NULLS}[kind].right
        names = [row.named.split("; ") for row in own if row.named]
        first = Counter(name[0] for name in names)
        hits = sum(count for name, count in first.items() if name in right)
        more = sum(len(name) > 1 for name in names)
        rejected = sum(row.p_value <= _LEVEL for row in own)
        covered = [int(row.covered) for row in own if row.covered]
        wrong = ", ".join(f"{n} {c}" for n, c in first.most_common() if n not in right)
        group = "null" if kind in NULLS else "wrong"
        total += Counter(
            {f"{group} runs": len(own), f"{group} named": len(names), "right": hits}
        )
        yield (
            f"{kind:<27}{len(own):>5}{_ratio(rejected, len(own)):>10}"
            f"{_ratio(len(names), len(own)):>7}"
            f"{_ratio(hits, len(names)):>7}{_ratio(more, len(names)):>6}"
            f"{_ratio(sum(covered), len(covered)):>9}  {wrong}"
        )
    yield ""
    yield (
        "Where something is named, the first family is right in "
        f"{_ratio(total['right'], total['wrong named'])} of "
        f"{total['wrong named']} runs."
    )
    yield (
        "Correct posteriors: something is named in "
        f"{_ratio(total['null named'], total['null runs'])} of "
        f"{total['null runs']} runs, at a level of {_LEVEL:g}."
    )


def _ratio(count: int, total: int) -> str:
    return f"{count / total:.2f}" if total else "-"
