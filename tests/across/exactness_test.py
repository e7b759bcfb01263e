"""False alarms of CoLT under the null hypothesis, at finite N and K.

Each setting trains once and tests 400 fresh batches: validity holds given the training.
"""

import pytest
import torch
from configs import make_config
from scipy.stats import binom

from sbi_colt import CoLT, CoLTConfig, Draws
from sbi_colt.baselines import sbc

REPETITIONS = 400
# What holds with probability at least 0.95 occurs at least so often, but for 1 in 200.
LEAST = binom.ppf(0.005, REPETITIONS, 0.95)
UNTRAINED = CoLTConfig(
    probes=("mahalanobis", "random", "energy", "fine-density"), num_redraws=199
)
TRAINED = make_config(
    probes=("centre", "ball", "blend", "drift", "quadratic", "axes"),
    num_redraws=199,
    max_epochs=10,
    validation_fraction=0,  # the last state, however much it has overfitted
    learning_rate=3e-3,
    num_hidden=16,
)


def p_values(make, config, num_pairs, generator, repetitions=REPETITIONS):
    colt = CoLT(config, seed=1).fit(make(num_pairs), show_progress_bar=False)
    results = [colt.test(make(num_pairs)) for _ in range(repetitions)]
    return torch.tensor([result.p_value for result in results]), results


@pytest.mark.parametrize("config", [UNTRAINED, TRAINED], ids=["untrained", "trained"])
@pytest.mark.parametrize("dim", [1, 3, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("num_pairs", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("num_samples", [1, 5, 20, 100])
def test_false_alarms_are_at_the_level(
    make_draws, generator, within_binomial_band, num_samples, num_pairs, dim, config
):
    def make(n):
        return make_draws(n, num_samples, dim, generator)

    p, _ = p_values(make, config, num_pairs, generator)
    assert within_binomial_band(int((p <= 0.05).sum()), REPETITIONS, 0.05)


@pytest.mark.slow
def test_other_levels_hold_too(make_draws, generator, within_binomial_band):
    def make(n):
        return make_draws(n, 20, 3, generator)

    p, _ = p_values(make, TRAINED, 50, generator, repetitions=1000)
    for level in (0.01, 0.05, 0.2):
        assert within_binomial_band(int((p <= level).sum()), 1000, level)


def test_draws_may_come_by_component(generator, within_binomial_band):
    """Left in that order, a density's kernel centres would be of one component."""

    def make(n):
        xs = torch.randn(n, 2, generator=generator)
        side = 8 * (torch.rand(501, n, 1, generator=generator) < 0.5) - 4.0
        members = xs + side + torch.randn(501, n, 2, generator=generator)
        order = side[1:].argsort(dim=0).expand(500, n, 2)
        return Draws(members[0], xs, members[1:].gather(0, order))

    config = CoLTConfig(probes=("density", "fine-density"), num_redraws=199)
    p, _ = p_values(make, config, 60, generator, repetitions=100)
    assert within_binomial_band(int((p <= 0.05).sum()), 100, 0.05)


@pytest.mark.parametrize(
    "is_double", ["thetas", pytest.param("samples", marks=pytest.mark.slow)]
)
def test_discrete_parameters_of_mixed_precision_are_tested_exactly(
    generator, within_binomial_band, is_double
):
    """0.1 in single precision is not 0.1 in double; unrounded, most would reject."""
    values = torch.tensor([0.1, 0.2, 0.3, 0.7], dtype=torch.float64)

    def make(n):
        members = values[torch.randint(4, (101, n, 1), generator=generator)]
        thetas, samples = members[0], members[1:]
        if is_double == "thetas":
            samples = samples.float()
        else:
            thetas = thetas.float()
        return Draws(thetas, torch.rand(n, 1, generator=generator), samples)

    p, _ = p_values(make, UNTRAINED, 100, generator)
    assert within_binomial_band(int((p <= 0.05).sum()), REPETITIONS, 0.05)


@pytest.mark.parametrize("config", [UNTRAINED, TRAINED], ids=["untrained", "trained"])
@pytest.mark.parametrize(
    "num_samples", [1, 5, pytest.param(100, marks=pytest.mark.slow)]
)
def test_discrete_parameters_are_tested_exactly(
    generator, within_binomial_band, num_samples, config
):
    def make(n):
        xs = torch.randint(3, (n, 1), generator=generator)
        members = torch.randint(2, (num_samples + 1, n, 2), generator=generator) + xs
        return Draws(members[0], xs, members[1:])  # ties everywhere

    p, _ = p_values(make, config, 50, generator)
    assert within_binomial_band(int((p <= 0.05).sum()), REPETITIONS, 0.05)


@pytest.mark.parametrize(
    "probe",
    [
        "axes",
        "centre",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "mahalanobis",
                "energy",
                "density",
                "relief",
                "drift",
                "quadratic",
                "blend",
                "paper-full",
            )
        ),
    ],
)
def test_a_single_probe_is_exact_by_scipy(
    make_draws, generator, within_binomial_band, probe
):
    config = make_config(
        probes=(probe,), max_epochs=10, num_hidden=16, validation_fraction=0
    )

    def make(n):
        return make_draws(n, 10, 2, generator)

    p, _ = p_values(make, config, 40, generator, repetitions=2000)
    for level in (0.01, 0.05, 0.2):
        assert within_binomial_band(int((p <= level).sum()), 2000, level)


def test_the_null_gives_no_certificate(make_draws, generator):
    def make(n):
        return make_draws(n, 20, 3, generator)

    _, results = p_values(make, TRAINED, 100, generator)
    assert sum(r.distance_lower == 0 for r in results) >= LEAST


@pytest.mark.parametrize(
    ("width", "shift"),
    [
        (1.5, 0.0),
        pytest.param(1.0, 0.0, marks=pytest.mark.slow),
        pytest.param(0.5, 0.3, marks=pytest.mark.slow),
    ],
)
def test_the_certificate_is_below_the_true_deviation(
    make_draws, generator, width, shift
):
    def make(n):
        return make_draws(n, 20, 2, generator, width, shift)

    colt = CoLT(TRAINED, seed=1).fit(make(100), show_progress_bar=False)
    # 40,000 pairs give each probe's true deviation to within 0.01.
    truth = {p.name: p.statistic for p in colt.test(make(40000)).probes}
    results = [colt.test(make(60)) for _ in range(REPETITIONS)]
    covered = [
        all(p.distance_lower <= truth[p.name] for p in r.probes)
        and r.distance_lower <= max(truth.values())
        for r in results
    ]
    assert sum(covered) >= LEAST
    if width != 1:  # it is not empty either: it certifies real deviations
        assert max(r.distance_lower for r in results) > 0


def test_local_verdicts_are_exact(make_draws, generator, within_binomial_band):
    def make(n):
        return make_draws(n, 10, 2, generator)

    colt = CoLT(UNTRAINED, seed=1).fit(make(20), show_progress_bar=False)
    x_o = torch.tensor([2.0, -1.0])
    p = [colt.test(make(60)).at(x_o).p_value for _ in range(REPETITIONS)]
    assert within_binomial_band(sum(value <= 0.05 for value in p), REPETITIONS, 0.05)


def test_masses_under_p_are_covered(make_draws, generator):
    """Under the null the mass under p is that under q, everywhere."""

    def make(n):
        return make_draws(n, 20, 1, generator)

    colt = CoLT(TRAINED, seed=1).fit(make(60), show_progress_bar=False)
    x_o = torch.zeros(1, 1)
    covered = torch.zeros(2)
    for _ in range(REPETITIONS):
        ball = colt.test(make(60)).localize(x_o)
        near = ball.local_mass_p_interval[0]
        covered[0] += ball.mass_p_interval[0] <= ball.mass_q <= ball.mass_p_interval[1]
        covered[1] += bool(near[0] <= ball.mass_q <= near[1])
    assert (covered >= 0.94 * REPETITIONS).all()


@pytest.mark.parametrize(
    ("is_half", "dtype"),
    [
        ("thetas", torch.bfloat16),
        pytest.param("samples", torch.float16, marks=pytest.mark.slow),
    ],
)
def test_half_precision_is_tested_exactly(
    generator, within_binomial_band, dtype, is_half
):
    """Rounded on one side only, SBC rejected every exact posterior."""
    alarms = torch.zeros(2)
    for seed in range(120):
        xs = torch.randn(300, 1, generator=generator)
        members = 2 + xs.exp() * torch.randn(51, 300, 1, generator=generator).exp()
        thetas, samples = members[0], members[1:]
        if is_half == "thetas":
            thetas = thetas.to(dtype)
        else:
            samples = samples.to(dtype)
        draws = Draws(thetas, xs, samples)
        train, test = draws.split(0.2, seed=0)
        colt = CoLT(UNTRAINED, seed=seed).fit(train, show_progress_bar=False)
        alarms[0] += sbc(draws, seed=seed).p_value <= 0.05
        alarms[1] += colt.test(test).p_value <= 0.05
    for count in alarms.tolist():
        assert within_binomial_band(int(count), 120, 0.05)
