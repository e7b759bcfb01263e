"""What is named for posteriors of the sbi benchmark, and is it true?

The posteriors are those of ``sbi-colt benchmark published`` (NPE and FMPE); those that
its folder lacks are trained. Each is diagnosed with several seeds. What is named first
is compared with the true posterior at the ten observations of that study: true draws
take the place of true parameters, and the same moments are measured. A finding agrees
if the error there has the same sign (of a posterior that merges modes: if true draws
avoid the centre of its draws). An error "where a number of x is high" is measured at
those observations where it is high, if there are two or more. Further columns tell how
often the same family, and the same parameter with it, is found with another seed.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.benchmark.row_files import append_rows, rows_so_far
from sbi_colt.benchmark.studies.shared import (
    MODELS,
    QUIET,
    count_option,
    only_option,
    out_option,
)
from sbi_colt.benchmark.tables import aligned
from sbi_colt.benchmark.tasks.published.trained import (
    TRAINED,
    Trained,
    load_or_train,
    observations,
    read_or_measure,
    reference_draws,
)
from sbi_colt.diagnose import diagnose
from sbi_colt.randomness import derive_seed, generator_from, isolated_rng
from sbi_colt.report.finding_text import describe
from sbi_colt.results.finding import Finding
from sbi_colt.sampling.at_xs import draw_posterior_samples
from sbi_colt.sampling.parallel import one_thread
from sbi_colt.tilt.bags import choose_members
from sbi_colt.tilt.families import WITH_X
from sbi_colt.tilt.sizes import Errors, measure

OPTIONS = {
    **QUIET,
    **MODELS,
    "--seeds": count_option("number of seeds of the diagnostics (default: 4)", 4),
    "--simulations": only_option("NUMBER", 1000, 10_000),
    "--estimator": only_option("NAME", "npe-maf", "npe-nsf", "fmpe"),
    **out_option("named.csv"),
}
_NUM_PAIRS, _NUM_DRAWS, _NUM_FMPE_DRAWS = 1000, 100, 20
_NUM_TRUE, _NUM_AT_X = 100, 100  # true draws and posterior draws at each observation
_FEWEST = 2  # observations where a number of x is high
_NOTHING = "nothing"
_WIDTHS = (28, 6, 7, 8, 8, 8)


@dataclass(frozen=True)
class NamedKey:
    """A diagnosis of a posterior."""

    posterior: Trained
    seed: int


@dataclass(frozen=True)
class NamedRow:
    """What was named first."""

    key: NamedKey
    c2st: float
    p_value: float
    families: str  # all that were named
    first: str  # in words
    parameters: str  # of all findings
    agrees: str  # "1", "0", or "" where nothing was named


def run(options: argparse.Namespace) -> Iterator[str]:
    """Yield a table of what was named for each posterior."""
    which = [
        one
        for one in TRAINED
        if one.estimator in options.estimator
        and one.num_simulations in options.simulations
    ]
    keys = [NamedKey(p, seed) for p in which for seed in range(options.seeds)]
    done = {row.key for row in rows_so_far(options.out, NamedRow)}
    left = [key for key in keys if key not in done]
    for key in tqdm(left, desc="Diagnoses", disable=options.quiet):
        with one_thread():
            row = _measure(key, options.models)
        append_rows(options.out, [row], options.command_line)
    asked = set(keys)
    rows = rows_so_far(options.out, NamedRow)
    yield from named_lines([row for row in rows if row.key in asked])


def _measure(key: NamedKey, folder: Path) -> NamedRow:
    which = key.posterior
    posterior, seconds = load_or_train(which, folder)
    truth = read_or_measure(which, posterior, seconds, folder)
    num_draws = _NUM_FMPE_DRAWS if which.estimator == "fmpe" else _NUM_DRAWS
    report = diagnose(
        posterior,
        which.problem.prior(),
        which.problem.simulate,
        num_simulations=_NUM_PAIRS,
        num_posterior_samples=num_draws,
        methods=("colt", "predictive"),
        seed=derive_seed(key.seed, "named study", which.name),
        show_progress_bar=False,
    )
    found = report.findings
    agrees, words = "", _NOTHING
    if found:
        agrees = str(int(_agrees(found[0], which, posterior, folder)))
        words = describe(found[0], report.names, report.x_shape)
    about = ["+".join(map(str, one.parameters)) for one in found]
    families = "; ".join(one.family for one in found)
    numbers = (round(truth.c2st, 4), float(f"{report.p_value:.4g}"))
    return NamedRow(key, *numbers, families, words, "; ".join(about), agrees)


def _agrees(finding: Finding, which: Trained, posterior: Any, folder: Path) -> bool:
    """Return whether true draws show the error that was named."""
    xs = observations(which.task)
    here = _where(finding, which, xs)
    true = reference_draws(which.task, folder)[here][:, :_NUM_TRUE]  # (n, T, d)
    seed = derive_seed(0, "named draws", which.name)
    num = _NUM_AT_X * _NUM_TRUE
    # Each true draw has posterior draws of its own.
    draws = draw_posterior_samples(
        posterior, xs[here], num, seed=seed, show_progress_bar=False
    )
    draws = draws.reshape(_NUM_AT_X, _NUM_TRUE, *draws.shape[1:])
    generator = generator_from(0, "named", which.name)
    bags = choose_members(
        true.transpose(0, 1).flatten(0, 1), draws.flatten(1, 2), generator
    )
    base = finding.family.removesuffix(WITH_X)
    size = measure(Errors.of(bags), base, finding.parameters)
    if finding.pattern == "modes":
        return size.pattern == "modes"
    return size.sign == finding.sign and size.pattern in ("", finding.pattern)


def _where(finding: Finding, which: Trained, xs: Tensor) -> Tensor:
    """Return the observations that a finding is about, ``(n,)``."""
    everywhere = torch.arange(len(xs))
    if finding.feature is None or not finding.where:
        return everywhere
    with isolated_rng(generator_from(0, "named thirds", which.task)):
        prior = which.problem.simulate(which.problem.prior().sample((2000,)))
    values = prior.flatten(1)[:, finding.feature]
    low, high = values.quantile(torch.tensor([1 / 3, 2 / 3]))
    own = xs.flatten(1)[:, finding.feature]
    third = {"low": own <= low, "high": own > high}.get(
        finding.where, (own > low) & (own <= high)
    )
    return everywhere[third] if int(third.sum()) >= _FEWEST else everywhere


def named_lines(rows: Sequence[NamedRow]) -> Iterator[str]:
    """Yield what was named, and how often it came back and agreed."""
    groups: dict[Trained, list[NamedRow]] = defaultdict(list)
    for row in rows:
        groups[row.key.posterior].append(row)
    heads = ("C2ST", "named", "agrees", "family", "same")
    yield aligned(("posterior", *heads), *_WIDTHS)
    for which, own in sorted(groups.items(), key=lambda one: -one[1][0].c2st):
        named = [row for row in own if row.families]
        agree = [int(row.agrees) for row in named]
        texts = (
            f"{own[0].c2st:.2f}",
            f"{len(named)}/{len(own)}",
            f"{sum(agree)}/{len(agree)}" if agree else "-",
            *(_share(_came_back(named, part)) for part in ("family", "parameter")),
        )
        yield aligned((which.label, *texts), *_WIDTHS)
        for row in own[:1]:
            yield f"    {row.first}"
    named = [row for row in rows if row.families]
    agree = sum(int(row.agrees) for row in named)
    yield ""
    yield f"What is named first agrees with true draws in {agree} of {len(named)} runs."
    for part, words in (("family", "family"), ("parameter", "family and parameters")):
        shares = [
            _came_back([row for row in own if row.families], part)
            for own in groups.values()
        ]
        known = [share for share in shares if share is not None]
        mean = f"{fmean(known):.2f}" if known else "-"
        yield f"With another seed the first finding comes back ({words}): {mean}."


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"


def _came_back(rows: Sequence[NamedRow], part: str) -> float | None:
    """Return how often the first finding of one seed is among those of another."""
    hits = []
    for row, other in permutations(rows, 2):
        family, who = _statements(row)[0]
        hits.append(
            any(
                family == f and (part == "family" or who == w or bool(who & w))
                for f, w in _statements(other)
            )
        )
    return fmean(hits) if hits else None


def _statements(row: NamedRow) -> list[tuple[str, set[str]]]:
    """Return the family and the parameters of each finding."""
    families, parameters = row.families.split("; "), row.parameters.split("; ")
    return [(f, set(w.split("+"))) for f, w in zip(families, parameters, strict=True)]
