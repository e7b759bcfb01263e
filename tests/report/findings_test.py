import pytest
import torch
from configs import make_config

from sbi_colt import CoLT, Draws
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.diagnose import diagnose_draws
from sbi_colt.report.findings import find
from sbi_colt.report.trends import find_trend
from sbi_colt.report.truths import Truths


def found_in(draws, colt=None, trend=None):
    return find(draws, Truths.of(draws, 0), colt, 0.05, 0, trend)


def trend_in(draws):
    return find_trend(Truths.of(draws, 0), draws.xs, 0)


def kinds(draws):
    found = found_in(draws)
    return [(f.kind, f.sign, f.parameter) for f in found]


def noise(generator, num_samples=100, num_pairs=400, dim=3):
    xs = torch.randn(num_pairs, dim, generator=generator)
    return xs, torch.randn(num_samples + 1, num_pairs, dim, generator=generator)


def test_false_findings_are_at_the_level(generator, within_binomial_band):
    """The normal approximations hold for means over a hundred pairs."""
    false = 0
    for _ in range(200):
        xs, members = noise(generator, 10, 100, 2)
        false += bool(kinds(Draws(xs + members[0], xs, xs + members[1:])))
    # Bonferroni's adjustment is conservative, so only too many count.
    assert false <= 20  # the upper end of the 99% band of 0.05 over 200


@pytest.mark.parametrize(("width", "sign"), [(1.5, 1), (0.7, -1)])
def test_a_wrong_width_is_named(generator, width, sign):
    xs, members = noise(generator)
    found = kinds(Draws(xs + members[0], xs, xs + width * members[1:]))
    assert ("width", sign, None) in found
    assert not [f for f in found if f[0] in ("shift", "ignores_x")]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_shifted_parameter_is_named_with_its_direction(generator, sign):
    xs, members = noise(generator)
    samples = xs + members[1:]
    samples[..., 1] += 0.5 * sign
    found = kinds(Draws(xs + members[0], xs, samples))
    assert ("shift", sign, 1) in found
    assert not [f for f in found if f[0] == "shift" and f[2] != 1]


def test_heavy_tails_are_named():
    draws = GaussianTask("t", 0.3).draws(500, 300, torch.Generator().manual_seed(1))
    found = kinds(draws)
    assert ("tails", 1, None) in found
    assert ("width", 1, None) in found  # its variance is larger too


def test_light_tails_are_named():
    generator = torch.Generator().manual_seed(1)
    draws = GaussianTask("t", 0.3).draws(500, 300, generator)
    # Exchange the roles: a draw of the t plays the truth, Gaussian draws the estimate.
    gaussian = GaussianTask("t", 0.0).estimates(draws.xs, (300, 500), generator)
    # The same scale, so that the tails alone differ.
    centre = gaussian.mean(dim=0)
    wide = centre + (gaussian - centre) * 1.25
    found = kinds(Draws(draws.samples[0], draws.xs, wide))
    assert ("tails", -1, None) in found


def test_a_posterior_that_ignores_x_is_named(generator):
    xs, members = noise(generator)
    prior = 2**0.5 * members[1:]  # θ = x + noise has variance 2
    found = kinds(Draws(xs + members[0], xs, prior))
    assert [f[0] for f in found] == ["ignores_x"]


def test_an_error_that_changes_with_x_is_named(generator):
    xs, members = noise(generator)
    wrong = xs.clone()
    wrong[:, 2] += 0.6 * xs[:, 0]
    (finding, *_) = [
        f
        for f in found_in(Draws(xs + members[0], xs, wrong + members[1:]))
        if f.kind == "x_error"
    ]
    assert (finding.parameter, finding.feature, finding.sign) == (2, 0, -1)


def test_constant_columns_are_no_finding(generator):
    xs, members = noise(generator, dim=2)
    xs = torch.cat([xs, torch.ones(400, 1)], dim=1)
    members = torch.cat([members, torch.ones(101, 400, 1)], dim=2)
    assert kinds(Draws(xs + members[0], xs, xs + members[1:])) == []


def one(generator, truth, draws, num_pairs=1000, num_samples=200):
    """Findings for errors of a given law, in one dimension; q follows x."""
    xs = torch.randn(num_pairs, 1, generator=generator)
    return kinds(
        Draws(xs + truth(num_pairs, 1), xs, xs + draws(num_samples, num_pairs, 1))
    )


def test_rules_do_not_speak_for_each_other(generator):
    """Errors of one kind that move the ranks of another."""

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    def modes(*shape):
        side = torch.randint(2, shape, generator=generator) * 2 - 1
        return 0.95 * side + (1 - 0.95**2) ** 0.5 * normal(*shape)

    def skewed(*shape):
        return torch.rand(*shape, generator=generator).log().neg() - 1

    def heavy(*shape):
        squares = sum(normal(*shape).square() for _ in range(3))
        return normal(*shape) / squares.sqrt()  # t with 3 degrees, unit variance

    for truth in (modes, skewed, heavy):  # each of mean 0 and variance 1
        found = {kind for kind, *_ in one(generator, truth, normal)}
        assert not found & {"width", "shift", "ignores_x"}, truth
    assert ("tails", -1, None) in one(generator, heavy, normal)
    assert ("tails", 1, None) not in one(generator, skewed, normal)


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_missing_mode_is_named_and_no_width(generator, share):
    def truth(*shape):
        second = torch.rand(*shape, generator=generator) < share
        return torch.randn(*shape, generator=generator) + 8.0 * second

    def draws(*shape):
        return torch.randn(*shape, generator=generator)

    found = {kind for kind, *_ in one(generator, truth, draws)}
    assert "missing_mass" in found
    assert not found & {"width", "tails", "ignores_x"}


@pytest.mark.parametrize("width", [0.3, 0.5, 0.7, 0.85])
def test_a_narrow_posterior_misses_no_mode(generator, width):
    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    found = one(generator, normal, lambda *shape: width * normal(*shape))
    assert [kind[:2] for kind in found] == [("width", -1)]


def test_a_wrong_correlation_is_named(generator):
    xs, members = noise(generator, num_samples=200, num_pairs=1000, dim=2)
    truths = members[0] @ torch.tensor([[1.0, 0.8], [0.0, 0.6]])
    found = kinds(Draws(xs + truths, xs, xs + members[1:]))
    assert found == [("correlation", -1, 0)]


def test_a_scale_that_follows_x_is_no_blindness(generator):
    xs = 0.5 + 2 * torch.rand(1000, 1, generator=generator)
    members = xs * torch.randn(201, 1000, 1, generator=generator)
    found = kinds(Draws(members[0], xs, members[1:] + 0.35 * (xs - 1.5)))
    assert "ignores_x" not in {kind for kind, *_ in found}


def test_where_names_any_shape_of_dependence(generator):
    """Wrong at both ends; too wide here and too narrow there; shifted on one side."""

    def trend(width, shift):
        xs = torch.randn(1000, 2, generator=generator)
        noise = torch.randn(101, 1000, 2, generator=generator)
        samples = xs + width(xs) * noise[1:]
        samples[..., 0] += shift(xs)
        return trend_in(Draws(xs + noise[0], xs, samples))

    ends = trend(lambda xs: torch.where(xs[:, 1:].abs() > 1, 3.0, 1.0), lambda xs: 0)
    assert (ends.feature, ends.kind, ends.p_value) == (1, "central", 0.001)
    assert min(ends.shares[0], ends.shares[2]) > 0.1 + ends.shares[1]
    sides = trend(lambda xs: torch.where(xs[:, 1:] < 0, 1.8, 1 / 1.8), lambda xs: 0)
    assert (sides.feature, sides.kind, sides.p_value) == (1, "central", 0.001)
    assert sides.shares[0] > 0.6 > 0.4 > sides.shares[2]
    shifted = trend(lambda xs: 1.0, lambda xs: 0.7 * (xs[:, 1] > 0))
    assert (shifted.feature, shifted.kind, shifted.parameter) == (1, "below", 0)
    assert shifted.shares[0] < 0.6 < shifted.shares[2]


def test_an_error_that_is_alike_everywhere_depends_on_nothing(generator):
    """Skewed truths under Gaussian draws, at every x."""
    xs = torch.randn(1000, 1, generator=generator)
    skewed = torch.rand(1000, 1, generator=generator).log().neg() - 1
    samples = xs + torch.randn(200, 1000, 1, generator=generator)
    assert trend_in(Draws(xs + skewed, xs, samples)).p_value > 0.01


def test_a_width_that_changes_with_x_is_not_called_tails(generator):
    xs = torch.randn(1000, 1, generator=generator)
    noise = torch.randn(101, 1000, 1, generator=generator)
    width = torch.where(xs < 0, 1.8, 1 / 1.8)
    draws = Draws(xs + noise[0], xs, xs + width * noise[1:])
    found = found_in(draws, None, trend_in(draws))
    assert "tails" not in {finding.kind for finding in found}


def test_false_trends_are_at_the_level(generator, within_binomial_band):
    false = 0
    for _ in range(200):
        xs, members = noise(generator, 10, 60, 2)
        draws = Draws(xs + members[0], xs, xs + members[1:])
        false += trend_in(draws).p_value <= 0.05
    assert within_binomial_band(false, 200, 0.05)


@pytest.mark.parametrize(("width", "shift"), [(2.5, 0.0), (1.0, 0.9)])
def test_an_error_that_is_the_same_at_every_x_has_no_trend(
    generator, within_binomial_band, width, shift
):
    """Lognormal x: reports that reject print "depends on x" at the level only."""
    rejected, printed = 0, 0
    for i in range(200):
        xs = torch.randn(60, 2, generator=generator).mul(1.5).exp()
        members = torch.randn(21, 60, 2, generator=generator)
        draws = Draws(members[0], xs, width * members[1:] + shift)
        report = diagnose_draws(
            draws, methods=("sbc",), seed=i, show_progress_bar=False
        )
        rejected += report.rejected
        printed += "the error depends on" in str(report).replace("\n", " ")
    assert rejected >= 180
    assert within_binomial_band(printed, rejected, 0.05)


@pytest.mark.parametrize("law", ["lognormal", "cauchy"])
def test_an_error_where_x_is_large_is_found_for_any_law_of_x(generator, law):
    found = 0
    for _ in range(20):
        xs = torch.randn(300, 2, generator=generator)
        wrong = xs[:, 1:] > 0
        if law == "lognormal":
            xs = xs.mul(2).exp()
        else:
            xs = xs / torch.randn(300, 1, generator=generator).abs()
        members = torch.randn(51, 300, 1, generator=generator)
        samples = torch.where(wrong, 2.5, 1.0) * members[1:]
        trend = trend_in(Draws(members[0], xs, samples))
        found += trend.p_value <= 0.01 and trend.feature == 1
    assert found >= 18


@pytest.mark.parametrize("law", ["lognormal", "cauchy"])
def test_false_findings_are_rare_for_heavy_tails(generator, law):
    """Lognormal xs, or Cauchy xs and parameters; the posterior is exact."""

    def heavy(*shape):
        normal = torch.randn(*shape, generator=generator)
        if law == "lognormal":
            return normal.mul(2).exp()
        return normal / torch.randn(*shape, generator=generator)

    false = 0
    for _ in range(200):
        xs = heavy(100, 5)
        members = torch.randn(11, 100, 2, generator=generator)
        if law == "cauchy":
            members = heavy(11, 100, 2)
        false += bool(kinds(Draws(members[0], xs, members[1:])))
    # Bonferroni's adjustment is conservative, so only too many count.
    assert false <= 20  # the upper end of the 99% band of 0.05 over 200


def linear(generator, shift, width, num_pairs=500, num_samples=60):
    """θ ~ N(0, I), x = θ + N(0, I), and q with errors of its own; exact at (0, 1)."""
    dim = len(shift)
    thetas = torch.randn(num_pairs, dim, generator=generator)
    xs = thetas + torch.randn(num_pairs, dim, generator=generator)
    noise = torch.randn(num_samples, num_pairs, dim, generator=generator)
    errors = torch.tensor(shift) + torch.tensor(width) * noise
    return Draws(thetas, xs, xs / 2 + 0.5**0.5 * errors)


@pytest.mark.parametrize("shift", [[1.0], [2.0], [0.7, 0.7, 0.0], [0.7, -0.7, 0.0]])
def test_a_shift_is_nothing_else(generator, shift):
    found = kinds(linear(generator, shift, [1.0] * len(shift)))
    expected = [("shift", 1 if s > 0 else -1, j) for j, s in enumerate(shift) if s]
    assert sorted(found) == sorted(expected)


def test_a_shift_that_follows_x_is_no_width(generator):
    xs = torch.randn(500, 1, generator=generator)
    members = torch.randn(101, 500, 1, generator=generator)
    samples = xs + 0.7 * xs.sign() + members[1:]
    assert kinds(Draws(xs + members[0], xs, samples)) == [("x_error", -1, 0)]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        ([0.6, 1.6], [("width", -1, 0), ("width", 1, 1)]),
        ([1.6, 1.0, 1.0], [("width", 1, 0)]),
        ([1.5, 1.6], [("width", 1, None)]),
    ],
)
def test_widths_are_those_of_parameters(generator, width, expected):
    found = kinds(linear(generator, [0.0] * len(width), width))
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_narrow_posteriors_with_few_draws_have_no_wrong_tails(generator):
    for _ in range(10):
        found = kinds(linear(generator, [0.0], [0.5], num_pairs=300, num_samples=30))
        assert ("width", -1, None) in found
        assert "tails" not in {kind for kind, *_ in found}


def test_x_that_says_nothing_may_be_ignored(generator):
    """θ does not depend on x; q is right to ignore it, and wrong in its shape."""
    for _ in range(5):
        xs = torch.randn(500, 1, generator=generator)
        skewed = torch.rand(500, 1, generator=generator).log().neg() - 1
        draws = Draws(skewed, xs, torch.randn(100, 500, 1, generator=generator))
        result = CoLT(make_config(max_epochs=2), seed=0)
        train, test = draws.split(0.5, seed=0)
        colt = result.fit(train, show_progress_bar=False).test(test)
        found = found_in(draws, colt, trend_in(draws))
        assert "ignores_x" not in {finding.kind for finding in found}
