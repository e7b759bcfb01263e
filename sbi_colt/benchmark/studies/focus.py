"""Measure the power of a focused run beside `at` and sbi's LC2ST, at one observation.

The posterior is exact except near x_o, within five of its standard deviations in x,
where it has one error; x_o is simulated anew in each run. The focused test is CoLT on
the parameter side of ``diagnose(…, x_o=x_o)`` with n pairs; its pilot simulations come
on top. The other methods have three times as many simulations, n and pilot together:
`CoLTResult.at` after a run over the whole prior, and sbi's `LC2ST`, whose classifiers
are trained on as many pairs, with 19 trials under the null hypothesis. They are run at
the smallest n at which the focused test has a power of 0.9. The error "none" is the
exact posterior, for false alarms.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from sbi.diagnostics.lc2st import LC2ST
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal, constraints

from sbi_colt.benchmark.row_files import append_rows, rows_so_far
from sbi_colt.benchmark.studies.shared import (
    JOBS,
    QUIET,
    count_option,
    in_parallel_with_bar,
    out_option,
)
from sbi_colt.benchmark.tables import aligned
from sbi_colt.draws import Draws
from sbi_colt.randomness import derive_seed, generator_from, isolated_rng
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.run_colt import colt_on_draws
from sbi_colt.sampling.draw import make_draws
from sbi_colt.sampling.pairs import PairSource
from sbi_colt.sampling.parallel import one_thread
from sbi_colt.weighted import thinned

OPTIONS = {
    **JOBS,
    **QUIET,
    "--runs": count_option("runs of the focused test (default: 40)", 40),
    "--other-runs": count_option("runs of the other methods (default: 40)", 40),
    **out_option("focus.csv"),
}
_NUMBERS = (100, 200, 400)
_ERRORS = ("near", "none")
_METHODS = ("focused", "at", "lc2st")
_NUM_DRAWS = 300
_TIMES_MORE = 3  # simulations of the methods that are not focused
_REACH = 0.5  # distance from x_o up to which the posterior is wrong
_NOISE = 0.1
# With 19 trials under the null hypothesis p <= 0.05 has the probability 1/20 under it.
_NUM_TRIALS, _NUM_AT_X_O = 19, 1000
_POWER = 0.9  # of the focused test, where the others are measured
_LEVEL = 0.05
_WIDTHS = (10, 8, 14, 10, 10, 10)


@dataclass(frozen=True)
class FocusKey:
    """One method on one problem with one error, in one run."""

    problem: str
    error: str
    method: str
    num_pairs: int
    run: int


@dataclass(frozen=True)
class FocusRow:
    """The p-value at x_o, and all simulations that it took."""

    key: FocusKey
    p_value: float
    num_spent: int


class Bent(Distribution):
    """Gaussian parameters, the second bent along the first: θ₂ = φ₂ + φ₁²."""

    def __init__(self, dim: int):
        super().__init__(event_shape=torch.Size([dim]), validate_args=False)

    @property
    def arg_constraints(self) -> dict[str, Any]:
        """There are no parameters to check."""
        return {}

    @property
    def support(self) -> Any:
        """All vectors."""
        return constraints.independent(constraints.real, 1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Return bent Gaussian draws."""
        return bend(torch.randn(*sample_shape, *self.event_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density up to a constant."""
        return -bend(value, -1.0).square().sum(dim=-1) / 2


def bend(points: Tensor, sign: float = 1.0) -> Tensor:
    """Return points whose second coordinate is bent along the first, or unbent."""
    first, second, *others = points.unbind(dim=-1)
    return torch.stack([first, second + sign * first.square(), *others], dim=-1)


@dataclass(frozen=True)
class FocusProblem:
    """A Gaussian problem, bent or not, and the error of its posterior near x_o.

    Data are φ + noise; θ is φ, or φ bent.

    Args:
        dim: Number of parameters.
        is_bent: Whether θ is bent.
        width: Ratio of widths near x_o.
        shift: Shift of the first φ near x_o, in standard deviations.
    """

    dim: int
    is_bent: bool = False
    width: float = 1.0
    shift: float = 0.0

    def prior(self) -> Any:
        """Return the prior of θ."""
        if self.is_bent:
            return Bent(self.dim)
        return MultivariateNormal(torch.zeros(self.dim), torch.eye(self.dim))

    def simulate(self, thetas: Tensor) -> Tensor:
        """Return data for parameters ``(n, d)``."""
        thetas = bend(thetas, -1.0) if self.is_bent else thetas
        return thetas + _NOISE * torch.randn_like(thetas)

    def posterior(self, x_o: Tensor, is_wrong: bool) -> Callable[[Tensor, int], Tensor]:
        """Return the exact posterior, or one that is wrong near x_o."""
        variance = _NOISE**2 / (1 + _NOISE**2)

        def draw(xs: Tensor, num: int) -> Tensor:
            near = (xs - x_o).norm(dim=1, keepdim=True) < _REACH
            near = near & torch.tensor(is_wrong)
            scale = torch.where(near, self.width, 1.0)
            noise = scale * torch.randn(num, *xs.shape)
            noise[..., :1] += torch.where(near, self.shift, 0.0)
            thetas = xs / (1 + _NOISE**2) + variance**0.5 * noise
            return bend(thetas) if self.is_bent else thetas

        return draw


PROBLEMS = {
    "gaussian": FocusProblem(3, width=1.6),
    "bent": FocusProblem(2, is_bent=True, shift=0.6),
}


def run(options: argparse.Namespace) -> Iterator[str]:
    """Yield a table of the power of each method."""
    cells = [
        FocusKey(problem, error, "focused", number, turn)
        for turn in range(options.runs)
        for number in _NUMBERS
        for problem in PROBLEMS
        for error in _ERRORS
    ]
    rows = _filled(cells, [], options)
    others = [
        FocusKey(problem, "near", method, _enough(problem, rows), turn)
        for turn in range(min(options.runs, options.other_runs))
        for problem in PROBLEMS
        for method in _METHODS[1:]
    ]
    rows = _filled(others, rows, options)
    wanted = {*cells, *others}
    yield from focus_lines([row for row in rows if row.key in wanted])


def _filled(
    keys: Sequence[FocusKey], known: Sequence[FocusRow], options: argparse.Namespace
) -> list[FocusRow]:
    """Measure the cells that the file lacks, and return all of its rows."""
    done = {row.key for row in rows_so_far(options.out, FocusRow)}
    spent = {row.key: row.num_spent for row in known}
    jobs = [
        (key, _TIMES_MORE * spent.get(replace(key, method="focused"), 0))
        for key in keys
        if key not in done
    ]
    for row in in_parallel_with_bar(_measure, jobs, options, "Runs"):
        append_rows(options.out, [row], options.command_line)
    return rows_so_far(options.out, FocusRow)


def _enough(problem: str, rows: Sequence[FocusRow]) -> int:
    """Return the smallest number of pairs with a power of 0.9, or the largest."""
    for number in _NUMBERS:
        own = [
            row.p_value <= _LEVEL
            for row in rows
            if (row.key.problem, row.key.num_pairs) == (problem, number)
            and (row.key.error, row.key.method) == ("near", "focused")
        ]
        if own and fmean(own) >= _POWER:
            return number
    return _NUMBERS[-1]


def focus_lines(rows: Sequence[FocusRow]) -> Iterator[str]:
    """Yield the share of runs in which each method rejects."""
    yield aligned(("problem", "pairs", "simulations", *_METHODS), *_WIDTHS)
    for error in _ERRORS:
        text = "near x_o: power" if error == "near" else "none: false alarms"
        yield f"Error {text}"
        for problem in PROBLEMS:
            for number in _NUMBERS:
                own = [
                    row
                    for row in rows
                    if (row.key.problem, row.key.error) == (problem, error)
                    and row.key.num_pairs == number
                ]
                if own:
                    yield _line(problem, number, own)
    counts = [
        len({row.key.run for row in rows if (row.key.method == "focused") is focused})
        for focused in (True, False)
    ]
    yield f"Share of runs with p <= {_LEVEL}: {counts[0]} runs of the focused test and"
    yield f"{counts[1]} runs of the others. Simulations are those of the focused test,"
    yield f"with its pilot; the others have {_TIMES_MORE} times as many."


def _line(problem: str, number: int, rows: Sequence[FocusRow]) -> str:
    by_method = {
        method: [row for row in rows if row.key.method == method] for method in _METHODS
    }
    spent = fmean(row.num_spent for row in by_method["focused"])
    shares = (
        f"{fmean(row.p_value <= _LEVEL for row in own):.2f}" if own else ""
        for own in by_method.values()
    )
    return aligned((problem, str(number), f"{spent:.0f}", *shares), *_WIDTHS).rstrip()


def _measure(key: FocusKey, num_simulations: int) -> FocusRow:
    """Run one method on one x_o; the focused test knows its number of simulations."""
    seed = derive_seed(2000, key.problem, key.num_pairs, key.run)
    own = PROBLEMS[key.problem]
    with (
        one_thread(),
        warnings.catch_warnings(),
        isolated_rng(generator_from(seed, "global")),
    ):
        warnings.simplefilter("ignore")
        x_o = own.simulate(own.prior().sample((1,)))[0]
        posterior = own.posterior(x_o, key.error == "near")
        if key.method == "focused":
            return FocusRow(key, *_focused(own, posterior, x_o, key.num_pairs, seed))
        test = _at if key.method == "at" else _lc2st
        return FocusRow(
            key, test(own, posterior, x_o, num_simulations, seed), num_simulations
        )


def _focused(
    problem: FocusProblem, posterior: Any, x_o: Tensor, number: int, seed: int
) -> tuple[float, int]:
    """Return the p-value of a focused run, and the simulations that it spent."""
    source = PairSource(problem.prior(), problem.simulate, num_simulations=number)
    how = {"x_o": x_o, **_how(seed)}
    draws, spent = make_draws(posterior, source, _NUM_DRAWS, **how)
    result = _colt(thinned(draws, seed), seed)
    return result.p_value, spent.num_spent


def _at(
    problem: FocusProblem, posterior: Any, x_o: Tensor, number: int, seed: int
) -> float:
    source = PairSource(problem.prior(), problem.simulate, num_simulations=number)
    draws, _ = make_draws(posterior, source, _NUM_DRAWS, **_how(seed))
    result = _colt(draws, seed)
    return result.at(x_o).p_value


def _colt(draws: Draws, seed: int) -> CoLTResult:
    return colt_on_draws(draws, seed=seed, show_progress_bar=False)


def _how(seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "device": "cpu",
        "num_workers": 1,
        "show_progress_bar": False,
    }


def _lc2st(
    problem: FocusProblem, posterior: Any, x_o: Tensor, number: int, seed: int
) -> float:
    thetas = problem.prior().sample((number,))
    xs = problem.simulate(thetas)
    settings: Any = {"z_score": True, "num_trials_null": _NUM_TRIALS}
    test = LC2ST(thetas, xs, posterior(xs, 1)[0], seed=seed % 2**31, **settings)
    test.train_under_null_hypothesis(verbosity=0)
    test.train_on_observed_data(verbosity=0)
    draws = posterior(x_o.unsqueeze(0), _NUM_AT_X_O)[:, 0]
    return float(test.p_value(theta_o=draws, x_o=x_o.unsqueeze(0)))
