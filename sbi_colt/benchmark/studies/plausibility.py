"""Measure level and power of "could the simulator have made x_o?", beside sbi's tests.

Each x_o is simulated and then made impossible in one of seven ways. Ours has 199
references, 300 fitting simulations and 5 replicates from a posterior of sbi (NPE, 2000
simulations). sbi's tests are `calc_misspecification_logprob` (a density of x that sbi
trained on 2000 simulations, compared on 199 simulations) and
`calc_misspecification_mmd` (on x itself, 199 simulations, 100 shuffles). Scores and
their combination were chosen on other simulators.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from sbi.diagnostics.misspecification import calc_misspecification_mmd
from sbi.inference import NPE, MarginalTrainer
from sbi.utils import BoxUniform
from torch import Tensor

from sbi_colt.benchmark.row_files import append_rows, rows_so_far
from sbi_colt.benchmark.studies.shared import (
    JOBS,
    QUIET,
    count_option,
    in_parallel_with_bar,
    out_option,
)
from sbi_colt.benchmark.tables import aligned
from sbi_colt.benchmark.tasks.simulators import SIMULATORS, Simulator
from sbi_colt.plausibility import plausibility
from sbi_colt.randomness import derive_seed, generator_from, isolated_rng
from sbi_colt.sampling.parallel import one_thread

OPTIONS = {
    **JOBS,
    **QUIET,
    "--repetitions": count_option("observations of each kind (default: 40)", 40),
    **out_option("plausibility.csv"),
}
_REPORTED = ("pendulum", "rings", "mixed", "student")  # others chose the scores
KINDS = ("none", "outlier", "shift", "scale", "prior", "noise", "smooth", "splice")
_REFERENCES, _FITTING, _REPLICATES, _TRAINING = 199, 300, 5, 2000
_METHODS = ("ours", "without posterior", "sbi logprob", "sbi mmd")
_WIDTHS = (10, 8, 20, 14, 10)
_LEVEL = 0.05


@dataclass(frozen=True)
class PlausibilityKey:
    """One kind of misspecification of one simulator, seen by one method."""

    simulator: str
    kind: str
    method: str
    repetitions: int


@dataclass(frozen=True)
class PlausibilityRow:
    """The share of observations that a method rejects at level 0.05."""

    key: PlausibilityKey
    rejected: float


def run(options: argparse.Namespace) -> Iterator[str]:
    """Yield a table of means over the simulators."""
    number = options.repetitions

    def rows_of_run() -> list[PlausibilityRow]:
        rows = rows_so_far(options.out, PlausibilityRow)
        return [row for row in rows if row.key.repetitions == number]

    done = {row.key.simulator for row in rows_of_run()}
    jobs = [(name, number) for name in _REPORTED if name not in done]
    for rows in in_parallel_with_bar(_measure, jobs, options, "Simulators"):
        append_rows(options.out, rows, options.command_line)
    yield from plausibility_lines(rows_of_run())


def plausibility_lines(rows: Sequence[PlausibilityRow]) -> Iterator[str]:
    """Yield the mean share of rejections of each kind and method."""
    yield aligned(("x_o", *_METHODS), *_WIDTHS)
    shares = {
        (kind, method): fmean(
            row.rejected
            for row in rows
            if (row.key.kind, row.key.method) == (kind, method)
        )
        for kind in KINDS
        for method in _METHODS
    }
    for kind in KINDS:
        cells = (f"{shares[kind, method]:.2f}" for method in _METHODS)
        yield aligned((kind, *cells), *_WIDTHS)
    means = (
        f"{fmean(shares[kind, method] for kind in KINDS[1:]):.2f}"
        for method in _METHODS
    )
    yield aligned(("mean power", *means), *_WIDTHS)
    count = len({row.key.simulator for row in rows})
    yield f"Share of observations rejected at level {_LEVEL}: means over {count}"
    yield f"simulators with {rows[0].key.repetitions} observations of each kind; the"
    yield "first line has false alarms, the mean power is without it."


def _misspecified(
    simulator: Simulator, kind: str, scale: Tensor, generator: torch.Generator
) -> Tensor:
    """Return one observation, with shape ``(D,)``."""
    theta = simulator.prior(1, generator)
    if kind == "prior":  # a parameter outside the prior
        theta[:, 0] = 1.3
    x = simulator(theta, generator)[0]
    size = len(x)
    if kind == "outlier":
        place = int(torch.randint(size, (1,), generator=generator))
        x[place] += 6 * scale[place]
    elif kind == "shift":
        x = x + 1.5 * scale
    elif kind == "scale":
        x = 2 * x
    elif kind == "noise":
        x = x + 0.7 * scale * torch.randn(size, generator=generator)
    elif kind == "smooth":  # half of the noise
        x = simulator(theta.expand(4, -1), generator).mean(dim=0)
    elif kind == "splice":  # halves of two simulations
        other = simulator(simulator.prior(1, generator), generator)[0]
        x[size // 2 :] = other[size // 2 :]
    return x


def _measure(name: str, repetitions: int) -> list[PlausibilityRow]:
    simulator = SIMULATORS[name]
    generator = generator_from(1000, "plausibility", name)
    with (
        one_thread(),
        warnings.catch_warnings(),
        isolated_rng(generator_from(derive_seed(1000, name), "global")),
    ):
        warnings.simplefilter("ignore")
        posterior, density, scale = _trained(simulator, generator)
        rows = []
        for kind in KINDS:
            found = [
                _rejections(simulator, kind, posterior, density, scale, generator)
                for _ in range(repetitions)
            ]
            for method, own in zip(_METHODS, zip(*found, strict=True), strict=True):
                key = PlausibilityKey(name, kind, method, repetitions)
                rows.append(PlausibilityRow(key, fmean(own)))
    return rows


def _trained(
    simulator: Simulator, generator: torch.Generator
) -> tuple[Any, Any, Tensor]:
    """Return NPE's posterior, sbi's density of x, and robust scales of x."""
    thetas = simulator.prior(_TRAINING, generator)
    xs = simulator(thetas, generator)
    prior = BoxUniform(torch.zeros(simulator.dim), torch.ones(simulator.dim))
    trainer = NPE(prior, show_progress_bars=False)
    trainer.append_simulations(thetas, xs)
    trainer.train(max_num_epochs=100, show_train_summary=False)
    marginal = MarginalTrainer(show_progress_bars=False)
    density = marginal.append_samples(xs).train(max_num_epochs=100)
    quartiles = xs.quantile(torch.tensor([0.25, 0.75]), dim=0)
    scale = (quartiles[1] - quartiles[0]) / 1.349
    scale = torch.where(scale > 0, scale, xs.std(dim=0))
    return trainer.build_posterior(), density, scale


def _rejections(
    simulator: Simulator,
    kind: str,
    posterior: Any,
    density: Any,
    scale: Tensor,
    generator: torch.Generator,
) -> list[bool]:
    """Return which methods reject one new observation."""
    number = _REFERENCES + _FITTING
    xs = simulator(simulator.prior(number, generator), generator)
    x_o = _misspecified(simulator, kind, scale, generator)
    references = xs[:_REFERENCES]
    own = torch.cat([x_o.unsqueeze(0), references])
    thetas = posterior.sample_batched(
        (_REPLICATES,), x=own, show_progress_bars=False, reject_outside_prior=False
    ).clamp(0, 1)
    replicates = simulator(thetas.reshape(-1, simulator.dim), generator)
    shape = simulator.x_shape
    near, fitting = (
        part.reshape(-1, *shape) for part in (references, xs[_REFERENCES:])
    )
    replicates = replicates.reshape(_REPLICATES, len(own), *shape)
    with_q = plausibility(x_o.reshape(shape), near, fitting, generator, replicates)
    without = plausibility(x_o.reshape(shape), near, fitting, generator)
    # What calc_misspecification_logprob computes, without its check of the density.
    logprob = (density.log_prob(references) <= density.log_prob(own[:1])).float().mean()
    mmd = calc_misspecification_mmd(own[:1], references, n_shuffle=100)[0]
    p_values = (with_q.p_value, without.p_value, float(logprob), mmd)
    return [p <= _LEVEL for p in p_values]
