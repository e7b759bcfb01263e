"""The data side and the verdict over both sides: exact on exact posteriors.

Every problem has a posterior that can be sampled exactly, so each repetition goes all
the way: pairs, draws, one θ' per x, replicates, features, probes, p-value.
"""

import math
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from scipy.stats import binom, spearmanr
from torch.distributions import Gamma, Poisson

from sbi_colt import CoLTConfig, Draws
from sbi_colt.diagnose import diagnose_draws
from sbi_colt.draws import make_predictive
from sbi_colt.predictive import predictive
from sbi_colt.sampling.data_side import add_data_side
from sbi_colt.sampling.pairs import PairSource
from sbi_colt.sampling.replicates import ReplicateOptions

REPETITIONS = 400
UNTRAINED = ("mahalanobis", "energy", "density")
QUICK = CoLTConfig(probes=UNTRAINED, data_probes=UNTRAINED)


@dataclass
class Problem:
    """A prior, a simulator and the exact posterior, all on the global random state."""

    num_data: int

    def prior(self, num):
        return torch.randn(num, 2)

    def simulate(self, thetas):
        return thetas @ self.mixing + torch.randn(len(thetas), self.num_data)

    def posterior(self, xs, num):
        covariance = torch.linalg.inv(torch.eye(2) + self.mixing @ self.mixing.T)
        noise = torch.randn(num, len(xs), 2) @ torch.linalg.cholesky(covariance).T
        return xs @ self.mixing.T @ covariance + noise

    @property
    def mixing(self):
        generator = torch.Generator().manual_seed(self.num_data)
        return torch.randn(2, self.num_data, generator=generator)


class Counts(Problem):
    """Poisson counts with a Gamma prior: x is discrete and often 0."""

    def prior(self, num):
        return Gamma(2.0, 2.0).sample((num, 1))

    def simulate(self, thetas):
        return Poisson(thetas.expand(-1, self.num_data)).sample()

    def posterior(self, xs, num):
        total = xs.sum(dim=1, keepdim=True)
        return Gamma(2.0 + total, 2.0 + self.num_data).sample((num,))


class HeavyTails(Problem):
    """Cauchy data around one of five places."""

    def prior(self, num):
        return torch.randint(5, (num, 1)).float() + 0.01 * torch.randn(num, 1)

    def simulate(self, thetas):
        noise = torch.randn(len(thetas), self.num_data) / torch.randn(len(thetas), 1)
        return thetas.round() + noise

    def posterior(self, xs, num):
        places = torch.arange(5.0)
        gaps = xs.unsqueeze(1) - places.unsqueeze(1)  # (n, 5, D)
        # Given the shared divisor the data are a multivariate Cauchy.
        logs = -(self.num_data + 1) / 2 * (1 + gaps.square().sum(dim=2)).log()
        chosen = torch.distributions.Categorical(logits=logs).sample((num,))
        return places[chosen].unsqueeze(-1) + 0.01 * torch.randn(num, len(xs), 1)


def bags_of_data(problem, num_pairs, num_replicates):
    """One repetition of the data side alone, with a fresh draw θ' for each x."""
    thetas = problem.prior(num_pairs)
    xs = problem.simulate(thetas)
    of_posterior = problem.posterior(xs, 1)[0]
    replicates = torch.stack(
        [problem.simulate(of_posterior) for _ in range(num_replicates)]
    )
    data = make_predictive(xs, of_posterior, replicates)
    return Draws(thetas, xs, None).with_predictive(data)


def alarms(make, config=QUICK, level=0.05):
    found = 0
    for i in range(REPETITIONS):
        with torch.random.fork_rng():
            torch.manual_seed(1000 + i)
            draws = make()
        result = predictive(draws, config=config, seed=i, show_progress_bar=False)
        found += result.p_value <= level
    return found


@pytest.mark.parametrize("num_data", [1, 10, 100])
@pytest.mark.parametrize("num_pairs", [20, 100])
@pytest.mark.parametrize("num_replicates", [1, 3, 9, 30])
@pytest.mark.slow
def test_the_data_side_is_exact(
    num_replicates, num_pairs, num_data, within_binomial_band
):
    make = partial(bags_of_data, Problem(num_data), num_pairs, num_replicates)
    assert within_binomial_band(alarms(make), REPETITIONS, 0.05)


@pytest.mark.parametrize(
    "problem",
    [
        Counts(5),
        *(
            pytest.param(problem, marks=pytest.mark.slow)
            for problem in (Problem(10), Counts(1), HeavyTails(3))
        ),
    ],
    ids=repr,
)
def test_the_data_side_is_exact_for_discrete_and_heavy_tailed_data(
    problem, within_binomial_band
):
    make = partial(bags_of_data, problem, 30, 9)
    assert within_binomial_band(alarms(make), REPETITIONS, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "num_pairs"), [(Problem(30), 60), (Counts(3), 60), (HeavyTails(3), 40)]
)
def test_the_default_probes_are_exact(problem, num_pairs, within_binomial_band):
    make = partial(bags_of_data, problem, num_pairs, 9)
    found = alarms(make, CoLTConfig())
    assert within_binomial_band(found, REPETITIONS, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("num_pairs", [20, 100])
@pytest.mark.parametrize("num_replicates", [1, 3, 9, 30])
def test_the_default_probes_are_exact_with_any_number_of_replicates(
    num_replicates, num_pairs, within_binomial_band
):
    make = partial(bags_of_data, Counts(3), num_pairs, num_replicates)
    found = alarms(make, CoLTConfig(num_redraws=199))
    assert within_binomial_band(found, REPETITIONS, 0.05)


@pytest.fixture(autouse=True)
def _with_any_number_of_bags(monkeypatch):
    """The package refuses few bags because they say nothing; they are exact too."""
    monkeypatch.setattr("sbi_colt.sampling.data_side.FEWEST", 0)


def both_sides(problem, num_pairs, num_samples, num_replicates, i, keep=None):
    """Both sides on the same pairs, with θ' a member of the bag."""
    thetas = problem.prior(num_pairs)
    xs = problem.simulate(thetas)
    draws = Draws(thetas, xs, problem.posterior(xs, num_samples))
    if keep is not None:
        draws = draws.select(keep(xs))
    options = ReplicateOptions(
        num_replicates, num_pairs, seed=i, show_progress_bar=False
    )
    source = PairSource(None, problem.simulate, thetas, xs).with_simulator(i)
    return add_data_side(draws, source, options)


def p_values(make, config=QUICK):
    """The p-values of parameters, data and verdict, by row."""
    rows = []
    for i in range(REPETITIONS):
        with torch.random.fork_rng():
            torch.manual_seed(5000 + i)
            draws = make(i=i)
        report = diagnose_draws(
            draws,
            methods=("colt", "predictive"),
            config=config,
            seed=i,
            show_progress_bar=False,
        )
        rows.append([report["colt"].p_value, report["predictive"].p_value])
        rows[-1].append(report.p_value)
    return torch.tensor(rows).T


@pytest.mark.parametrize(
    ("problem", "num_samples"),
    [
        (Problem(3), 4),
        pytest.param(Counts(2), 1, marks=pytest.mark.slow),
        pytest.param(HeavyTails(2), 20, marks=pytest.mark.slow),
    ],
)
def test_the_verdict_is_exact_and_the_sides_are_independent(
    problem, num_samples, within_binomial_band
):
    """Few draws per x: θ' is then often a draw that the parameter side has, or θ*."""
    make = partial(both_sides, problem, 30, num_samples, 5)
    parameters, data, verdict = p_values(make)
    for p in (parameters, data, verdict):
        for level in (0.05, 0.2):
            assert within_binomial_band(int((p <= level).sum()), REPETITIONS, level)
    assert spearmanr(parameters, data).pvalue > 0.005


@pytest.mark.slow
@pytest.mark.long
def test_the_verdict_of_the_default_probes_is_exact(within_binomial_band):
    config = CoLTConfig(num_redraws=199, settings={"ball": {"max_epochs": 3}})
    make = partial(both_sides, Problem(3), 30, 10, 5)
    parameters, data, verdict = p_values(make, config)
    for p in (parameters, data, verdict):
        assert within_binomial_band(int((p <= 0.05).sum()), REPETITIONS, 0.05)
    assert spearmanr(parameters, data).pvalue > 0.005


@pytest.mark.slow
def test_xs_that_could_not_be_sampled_do_not_spoil_the_data_side(within_binomial_band):
    """Their true parameters stand in; without these pairs x would be selected."""
    make = partial(both_sides, Problem(1), 40, 10, 5, keep=lambda xs: xs[:, 0] < 0.5)
    _, data, verdict = p_values(make)
    assert within_binomial_band(int((data <= 0.05).sum()), REPETITIONS, 0.05)
    assert within_binomial_band(int((verdict <= 0.05).sum()), REPETITIONS, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0.5, 1.5])
def test_a_simulator_that_fails_for_some_data_keeps_the_data_side_exact(
    limit, within_binomial_band
):
    """x is selected, so replicates are selected alike: made again at the same θ'."""
    problem = Problem(1)

    def fails(thetas):
        xs = problem.simulate(thetas)
        return torch.where(xs < limit, xs, torch.nan)

    def make(i):
        thetas = problem.prior(300)
        xs = fails(thetas)
        good = xs.isfinite().flatten()
        thetas, xs = thetas[good][:40], xs[good][:40]
        draws = Draws(thetas, xs, problem.posterior(xs, 10))
        options = ReplicateOptions(5, 40, seed=i, show_progress_bar=False)
        source = PairSource(None, fails, thetas, xs).with_simulator(i)
        return add_data_side(draws, source, options)

    with pytest.warns(UserWarning, match="failed"):
        _, data, _ = p_values(make)
    assert within_binomial_band(int((data <= 0.05).sum()), REPETITIONS, 0.05)


def test_certified_bounds_of_both_sides_hold_together():
    """On exact posteriors every positive bound is an error: at most 5% of reports."""
    wrong = 0
    for i in range(200):
        with torch.random.fork_rng():
            torch.manual_seed(9000 + i)
            draws = both_sides(Problem(3), 40, 20, 9, i)
        report = diagnose_draws(
            draws,
            methods=("colt", "predictive"),
            config=QUICK,
            seed=i,
            show_progress_bar=False,
        )
        wrong += (report.distance_lower or 0) > 0
    assert wrong <= binom.ppf(0.995, 200, 0.05)


def test_the_error_probability_is_split_between_the_bounds_of_both_sides():
    """Massart's bound by hand: δ / 2 for each of two sides, δ for a single one."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        problem = Problem(3)
        draws = both_sides(problem, 200, 20, 9, i=1)
        wrong = Draws(draws.thetas + 2, draws.xs, draws.samples)
    wrong = wrong.with_predictive(
        make_predictive(
            draws.predictive.thetas + 2, draws.predictive.xs, draws.predictive.samples
        )
    )
    sides = ("colt", "predictive")
    for methods in (sides, sides[:1], sides[1:]):
        report = diagnose_draws(
            wrong, methods=methods, config=QUICK, seed=0, show_progress_bar=False
        )
        for name in methods:
            side = report[name]
            delta = (1 - QUICK.confidence) / len(methods)
            log = math.log(2 * len(side.probes) / delta)
            bound = side.distance - math.sqrt(log / (2 * side.num_test))
            assert bound > 0.1
            assert report.bounds[name] == pytest.approx(bound)
        assert report.distance_lower == max(report.bounds.values())


def lossy(problem, xs, num):
    """The posterior given the first datum alone: calibrated, but far too wide."""
    first = Problem(1)
    mixing = problem.mixing[:, :1]
    covariance = torch.linalg.inv(torch.eye(2) + mixing @ mixing.T)
    noise = torch.randn(num, len(xs), first.num_data + 1)
    root = torch.linalg.cholesky(covariance).T
    return xs[:, :1] @ mixing.T @ covariance + noise @ root


def test_a_posterior_that_discards_data_is_found_on_both_sides():
    """SBC and TARP do not see it; the data side and the learned likelihood do."""
    problem = Problem(10)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        thetas = problem.prior(100)
        xs = problem.simulate(thetas)
        draws = Draws(thetas, xs, lossy(problem, xs, 50))
        options = ReplicateOptions(9, 100, seed=1, show_progress_bar=False)
        source = PairSource(None, problem.simulate, thetas, xs).with_simulator(1)
        draws = add_data_side(draws, source, options)
    report = diagnose_draws(draws, seed=1, show_progress_bar=False)
    assert report["sbc"].p_value > 0.05
    assert report["tarp"].p_value > 0.05
    assert report["predictive"].p_value < 0.001
    assert report.bounds["predictive"] > 0.15
    assert report["colt"].p_value < 0.01
    assert report["colt"].leading.name == "likelihood"
    assert report.distance_lower > 0.15
