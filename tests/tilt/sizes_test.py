"""Sizes of errors: right on average, and in their intervals as often as they say."""

import math

import pytest
import torch
from scipy.stats import binomtest
from tilt_helpers import noise

from sbi_colt.tilt.bags import choose_members
from sbi_colt.tilt.sizes import Errors, measure


def errors_of(truths, samples, generator):
    return Errors.of(choose_members(truths, samples, generator))


def changed(kind, generator, num_pairs=300, num_samples=50):
    """Truths and draws with an error, its family, its parameters, its true size."""
    _, members = noise(generator, num_samples, num_pairs, 2)
    truth, draws = members[0], members[1:]
    if kind == "shift":
        return truth, draws - torch.tensor([0.0, 0.5]), "shift", (1,), -0.5
    if kind == "wide":
        return truth, 1.5 * draws, "width", (), 1.5
    if kind == "narrow":
        return truth, draws * torch.tensor([0.6, 1.0]), "width", (0,), 0.6
    mixed = truth @ torch.tensor([[1.0, 0.8], [0.0, 0.6]])
    return mixed, draws, "correlation", (0, 1), -0.8


@pytest.mark.parametrize("kind", ["shift", "wide", "narrow", "correlation"])
def test_intervals_cover(generator, within_binomial_band, kind):
    covered, runs = 0, 200
    for _ in range(runs):
        truth, draws, base, who, value = changed(kind, generator)
        size = measure(errors_of(truth, draws, generator), base, who)
        covered += size.low <= value <= size.high
    # Of two parameters or both together; there is one pair.
    nominal = 0.945 if kind == "correlation" else 1 - 0.055 / 3
    assert within_binomial_band(covered, runs, nominal)
    assert size.sign == (1 if kind == "wide" else -1)


def _pairs_with(correlation, generator, *shape):
    first, other = torch.randn(2, *shape, generator=generator)
    second = correlation * first + (1 - correlation**2) ** 0.5 * other
    return torch.stack([first, second], dim=-1)


@pytest.mark.parametrize("num_samples", [10, 20, 98])
@pytest.mark.parametrize(
    ("right", "wrong"), [(0.5, 0.5), (0.9, 0.9), (-0.9, -0.9), (0.0, 0.9), (0.9, 0.0)]
)
def test_correlations_of_few_draws_have_no_bias(
    generator, within_binomial_band, num_samples, right, wrong
):
    found = []
    for _ in range(100):
        truths = _pairs_with(right, generator, 300)
        draws = _pairs_with(wrong, generator, num_samples, 300)
        errors = errors_of(truths, draws, generator)
        found.append(measure(errors, "correlation", (0, 1)))
    values = torch.tensor([one.value for one in found])
    error = float(values.std()) / 10
    assert float(values.mean()) == pytest.approx(wrong - right, abs=4 * error + 0.005)
    covered = sum(one.low <= wrong - right <= one.high for one in found)
    assert within_binomial_band(covered, 100, 0.94)


@pytest.mark.parametrize(("third", "value"), [(0, -2.18), (1, 0.0), (2, 2.18)])
def test_intervals_of_thirds_cover(generator, within_binomial_band, third, value):
    """q's mean is wrong by 2 x; the mean of x in its upper third is 1.09."""
    covered, runs = 0, 200
    for _ in range(runs):
        _, members = noise(generator, 50, 300, 1)
        x = torch.randn(300, generator=generator)
        draws = members[1:] + 2 * x.unsqueeze(1)
        errors = errors_of(members[0], draws, generator).thirds(x)[third]
        size = measure(errors, "shift", (0,))
        covered += size.low <= value <= size.high
    assert within_binomial_band(covered, runs, 0.95)


@pytest.mark.parametrize("base", ["shift", "width", "shape"])
def test_intervals_of_all_parameters_hold_together(generator, base):
    together, runs = 0, 100
    for _ in range(runs):
        _, members = noise(generator, 50, 200, 4)
        errors = errors_of(members[0], members[1:], generator)
        sizes = [measure(errors, base, (j,)) for j in range(4)]
        together += all(one.low <= one.expected <= one.high for one in sizes)
    assert together >= 0.885 * runs  # three standard errors below 0.95


def test_a_share_has_its_exact_interval(generator):
    """Clopper and Pearson (1934), as SciPy has it."""
    _, members = noise(generator, 99, 80, 2)  # half of a hundred is a number of ranks
    size = measure(errors_of(members[0], members[1:], generator), "radial", ())
    exact = binomtest(round(size.value * 80), 80).proportion_ci(0.95)
    assert (size.low, size.high) == pytest.approx((exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize("num_samples", [11, 100])
def test_a_correct_posterior_has_a_ratio_of_one(generator, num_samples):
    """Few draws make errors larger, which must not look like a wrong width."""
    _, members = noise(generator, num_samples, 20_000, 1)
    size = measure(errors_of(members[0], members[1:], generator), "width", (0,))
    assert size.value == pytest.approx(1.0, abs=0.025)


def test_a_shift_is_also_in_the_units_of_the_parameter(generator):
    _, members = noise(generator, 50, 4000, 1)
    size = measure(
        errors_of(10 * members[0], 10 * members[1:] + 5, generator), "shift", (0,)
    )
    assert size.value == pytest.approx(0.5, abs=0.06)
    assert size.own_units == pytest.approx(5.0, abs=0.6)


def test_patterns_of_shapes(generator):
    _, members = noise(generator, 100, 4000, 1)
    sides = torch.randint(2, (4000, 1), generator=generator) * 2 - 1
    modes = 0.95 * sides + (1 - 0.95**2) ** 0.5 * members[0]
    skewed = torch.rand(4000, 1, generator=generator).log().neg() - 1
    found = measure(errors_of(modes, members[1:], generator), "shape", (0,))
    assert found.pattern == "modes"
    assert found.value < 0.1
    found = measure(errors_of(skewed, members[1:], generator), "shape", (0,))
    assert found.pattern == "skew"
    assert found.value == pytest.approx(0.63, abs=0.03)


def test_weights_move_the_reference(generator):
    """Truths from q·w have no error once the draws are weighted by w."""
    _, members = noise(generator, 400, 2000, 1)
    weights = members[..., 0].clone()  # q·w is shifted by one
    weights[0] += 1
    bags = choose_members(
        members[0] + 1, members[1:], generator, log_weights=weights, max_members=401
    )
    assert abs(measure(Errors.of(bags), "shift", (0,)).value) < 0.08


BASES = ("shift", "width", "correlation", "shape", "radial", "missing")


@pytest.mark.parametrize("num_samples", [10, 100])
@pytest.mark.parametrize(
    "change",
    [
        lambda draws, noise: 1e6 * draws,
        lambda draws, noise: 1e-6 * draws,
        lambda draws, noise: 0 * draws,
        lambda draws, noise: draws * (10 * noise).exp(),
        lambda draws, noise: draws / noise**3,
        lambda draws, noise: draws[..., :1].expand_as(draws),
    ],
    ids=["wide", "narrow", "a point", "many scales", "heavy tails", "a line"],
)
def test_sizes_of_any_posterior_are_numbers(generator, num_samples, change):
    xs, members = noise(generator, num_samples, 150, 2)
    more = torch.randn(num_samples, 150, 1, generator=generator)
    errors = errors_of(members[0], change(members[1:], more), generator)
    for own in (errors, *errors.thirds(xs[:, 0])):
        for base in BASES:
            size = measure(own, base, (0, 1) if base == "correlation" else ())
            numbers = (size.low, size.value, size.high, size.z_score)
            assert all(map(math.isfinite, numbers)), base
            assert size.low <= size.value <= size.high


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_sizes_do_not_depend_on_the_unit_of_a_parameter(generator, unit):
    _, members = noise(generator, 50, 200, 1)
    members = members.double()
    plain = measure(errors_of(members[0], 2 * members[1:], generator), "width", ())
    members *= unit
    other = measure(errors_of(members[0], 2 * members[1:], generator), "width", ())
    assert other.value == pytest.approx(plain.value)


@pytest.mark.parametrize("width", [100.0, 1e-5])
def test_the_interval_of_a_ratio_that_cannot_be_told_has_no_end(generator, width):
    """The mean of fifty draws of a much too wide q is noisier than the truths."""
    _, members = noise(generator, 50, 200, 1)
    size = measure(errors_of(members[0], width * members[1:], generator), "width", ())
    if width > 1:
        assert 3 < size.low < width < size.high == pytest.approx(1e3)
    else:
        assert size.low == pytest.approx(1e-3)


def _shares(members, generator, base="shape"):
    """Shares of truths below the median, in the central third or the central half."""
    bags = choose_members(members[0], members[1:], generator)
    return measure(Errors.of(bags), base, (0,))


@pytest.mark.parametrize("law", ["normal", "coin", "clamped", "rounded"])
@pytest.mark.parametrize("num_samples", [10, 30])
def test_shares_of_a_correct_posterior_are_right_for_few_draws_and_ties(
    generator, num_samples, law
):
    _, members = noise(generator, num_samples, 20_000, 2)
    if law == "coin":
        members = (members > 0.8).float()
    elif law == "clamped":
        members = members.clamp(-0.5, 0.3)
    elif law == "rounded":
        members = members.round()
    size = _shares(members, generator)
    assert size.value == pytest.approx(size.expected, abs=0.012)
    size = _shares(members, generator, "radial")
    assert size.value == pytest.approx(size.expected, abs=0.012)


@pytest.mark.parametrize(
    ("shares", "sizes"),
    [
        ((0.5, 0.5), (1, 0, 1)),
        ((0.8, 0.2), (1, 0, 1)),
        ((0.2, 0.8), (1, 0, 1)),
        ((0.2, 0.4, 0.4), (1, 1, 1)),
        ((1.0,), (0, 0, 0)),
    ],
)
def test_pairs_with_the_same_x_are_in_the_same_third(generator, shares, sizes):
    counts = [round(300 * share) for share in shares]
    x = torch.arange(len(shares)).repeat_interleave(torch.tensor(counts)).double()
    x = x[torch.randperm(300, generator=generator)]
    _, members = noise(generator, 20, 300, 1)
    draws = members[1:] * 0.01 - x.reshape(1, -1, 1)  # the errors tell x
    thirds = errors_of(members[0] * 0.001, draws, generator).thirds(x)
    assert tuple(int(len(own.errors) > 0) for own in thirds) == sizes
    found = [own.own_units.round().unique().tolist() for own in thirds]
    values = [-value for own in found for value in own]
    assert values == (sorted(values) if len(shares) > 1 else [])
    assert len(values) == len(set(values)) == (len(shares) if len(shares) > 1 else 0)
