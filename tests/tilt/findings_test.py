"""What is named for known errors, and what is not."""

import pytest
import torch
from tilt_helpers import found_in, named_in, noise

from sbi_colt import Draws
from sbi_colt.benchmark.tasks.errors import ERRORS, ErrorTask
from sbi_colt.diagnose import diagnose_draws
from sbi_colt.tilt.bags import choose_members
from sbi_colt.tilt.findings import find_errors


def families(found):
    return list(dict.fromkeys(finding.family for finding in found))


@pytest.mark.parametrize(
    ("kind", "dim"),
    [
        pytest.param(kind, dim, marks=pytest.mark.slow if dim > error.least_dim else ())
        for dim in (1, 3)
        for kind, error in ERRORS.items()
        if error.least_dim <= dim <= error.most_dim
    ],
)
def test_a_large_error_is_named_first(kind, dim):
    error = ERRORS[kind]
    generator = torch.Generator().manual_seed(3)
    draws = ErrorTask(kind, error.sizes[1], dim, 1).draws(1000, 100, generator)
    found = found_in(draws.thetas, draws.xs, draws.samples, generator)
    assert found[0].family in error.right
    assert found[0].gain > 0


@pytest.mark.parametrize(("width", "sign"), [(1.5, 1), (0.7, -1)])
def test_a_wrong_width_is_named_with_its_ratio(generator, width, sign):
    xs, members = noise(generator)
    (found,) = found_in(members[0], xs, width * members[1:], generator)
    assert (found.family, found.sign, found.parameters) == ("width", sign, (0, 1, 2))
    assert found.interval[0] <= width <= found.interval[1]
    assert found.unit == "ratio"


@pytest.mark.parametrize("sign", [1, -1])
def test_a_shifted_parameter_is_named_with_its_direction(generator, sign):
    xs, members = noise(generator)
    samples = xs + 3 * members[1:]
    samples[..., 1] += 1.5 * sign
    (found,) = found_in(xs + 3 * members[0], xs, samples, generator)
    assert (found.family, found.sign, found.parameters) == ("shift", sign, (1,))
    assert found.size == pytest.approx(0.5 * sign, abs=0.15)
    assert found.own_units == pytest.approx(1.5 * sign, abs=0.45)


def test_parameters_with_different_errors_have_statements_of_their_own(generator):
    xs, members = noise(generator, dim=2)
    found = found_in(members[0], xs, members[1:] * torch.tensor([0.6, 1.6]), generator)
    assert {(f.family, f.sign, f.parameters) for f in found} == {
        ("width", -1, (0,)),
        ("width", 1, (1,)),
    }
    assert found[0].gain >= found[1].gain


def test_all_parameters_are_wrong_only_if_no_other_is_right(generator):
    xs, members = noise(generator, num_pairs=600)
    samples = members[1:] * torch.tensor([1.8, 1.0, 1.8])
    (found,) = found_in(members[0], xs, samples, generator)
    assert (found.family, found.parameters) == ("width", (0, 2))
    assert found.interval[0] <= 1.8 <= found.interval[1]


def test_two_errors_are_both_named(generator):
    xs, members = noise(generator, num_pairs=800)
    samples = members[1:].clone()
    samples[..., 0] += 0.6
    samples[..., 2] *= 1.7
    found = found_in(members[0], xs, samples, generator)
    assert {(f.family, f.parameters) for f in found} == {
        ("shift", (0,)),
        ("width", (2,)),
    }


def test_a_posterior_that_ignores_x_is_blind(generator):
    xs, members = noise(generator)
    found = found_in(xs + members[0], xs, 2**0.5 * members[1:], generator)
    assert [(f.family, f.pattern) for f in found] == [("shift with x", "blind")]
    assert found[0].gain > 0.5


def test_an_error_that_changes_with_x_is_named_with_its_feature(generator):
    xs, members = noise(generator)
    samples = xs + members[1:]
    samples[..., 2] += 0.6 * xs[:, 0]
    (found,) = found_in(xs + members[0], xs, samples, generator)
    assert (found.family, found.parameters, found.feature) == ("shift with x", (2,), 0)
    assert found.where in ("low", "high")
    assert found.sign == (1 if found.where == "high" else -1)
    assert found.pattern == ""


@pytest.mark.parametrize("dim", [1, 4])
def test_a_shift_whose_sign_two_features_decide_is_a_shift_with_x(generator, dim):
    """At each value of either feature the mean over the other feature is right."""
    xs, members = noise(generator, dim=dim)
    xs = torch.cat([xs, torch.randn(400, 1, generator=generator)], dim=1)
    samples = members[1:].clone()
    samples[..., 0] += 0.8 * xs[:, 0] * xs[:, -1]
    found = found_in(members[0], xs, samples, generator)
    assert (found[0].family, found[0].parameters) == ("shift with x", (0,))
    assert found[0].feature in (0, dim)


@pytest.mark.slow
def test_a_shift_in_a_corner_of_x_is_no_wrong_width(generator):
    """For a sixth of the xs the mean is wrong by three standard deviations."""
    xs, members = noise(generator, num_pairs=1000, dim=4)
    samples = members[1:].clone()
    samples[..., 2] += 3 * ((xs[:, 0] > 0.3) & (xs[:, 1] < -0.2))
    found = found_in(members[0], xs, samples, generator)
    assert (found[0].family, found[0].parameters) == ("shift with x", (2,))


@pytest.mark.parametrize("width", [0.75, 1.3])
def test_wrong_widths_of_correlated_parameters_are_wrong_widths(generator, width):
    """Neighbours have correlations of 0.9, which t² alone would change."""
    xs, members = noise(generator, dim=5)
    for j in range(1, 5):
        members[..., j] = 0.9 * members[..., j - 1] + 0.19**0.5 * members[..., j]
    found = found_in(members[0], xs, width * members[1:], generator)
    assert [(f.family, f.parameters) for f in found] == [("width", (0, 1, 2, 3, 4))]
    assert found[0].interval[0] <= width <= found[0].interval[1]


@pytest.mark.parametrize("law", ["lognormal", "cauchy"])
def test_an_error_where_x_is_large_is_found_for_any_law_of_x(generator, law):
    right = 0
    for _ in range(10):
        xs = torch.randn(300, 2, generator=generator)
        wrong = xs[:, 1:] > 0
        if law == "lognormal":
            xs = xs.mul(2).exp()
        else:
            xs = xs / torch.randn(300, 1, generator=generator).abs()
        members = torch.randn(51, 300, 1, generator=generator)
        samples = torch.where(wrong, 2.5, 1.0) * members[1:]
        found = found_in(members[0], xs, samples, generator)
        right += (found[0].family, found[0].feature) == ("width with x", 1)
    assert right >= 8


@pytest.mark.parametrize(("width", "shift"), [(2.5, 0.0), (1.0, 0.9)])
def test_an_error_that_is_the_same_at_every_x_does_not_depend_on_x(
    generator, within_binomial_band, width, shift
):
    """Lognormal x: "with x" is named at the level only."""
    with_x = 0
    for _ in range(100):
        xs = torch.randn(60, 2, generator=generator).mul(1.5).exp()
        members = torch.randn(21, 60, 2, generator=generator)
        samples = width * members[1:] + shift
        _, names = named_in(members[0], xs, samples, generator)
        assert names
        with_x += any("with x" in name for name in names)
    assert with_x <= 5 or within_binomial_band(with_x, 100, 0.05)


def test_a_skewed_law_that_is_the_same_everywhere_depends_on_nothing(generator):
    xs = torch.randn(1000, 1, generator=generator)
    skewed = torch.rand(1000, 1, generator=generator).log().neg() - 1
    samples = torch.randn(100, 1000, 1, generator=generator)
    assert families(found_in(skewed, xs, samples, generator)) == ["shape"]


def test_constant_columns_are_no_finding(generator):
    xs, members = noise(generator, dim=2)
    xs = torch.cat([xs, torch.ones(400, 1)], dim=1)
    members = torch.cat([members, torch.ones(101, 400, 1)], dim=2)
    assert found_in(members[0], xs, members[1:], generator) == ()


@pytest.mark.parametrize("dim", [2, 5])
def test_a_region_that_many_truths_are_in_is_missing_and_q_not_too_narrow(
    generator, dim
):
    """Draws stretched to where a third of the truths are would be no worse by much."""
    xs, members = noise(generator, num_pairs=300, dim=dim)
    truths, samples = members[0], members[1:]
    truths[:, 0] += 6.0 * (torch.rand(300, generator=generator) < 0.35)
    (found,) = found_in(truths, xs, samples, generator)
    assert found.family == "missing"
    assert found.interval[0] <= 0.35 <= found.interval[1]


@pytest.mark.parametrize("width", [0.3, 0.5, 0.7, 0.85])
def test_a_narrow_posterior_misses_no_mode(generator, width):
    xs, members = noise(generator, num_pairs=1000, dim=1)
    found = found_in(members[0], xs, width * members[1:], generator)
    assert [(f.family, f.sign) for f in found] == [("width", -1)]


@pytest.mark.parametrize("num_samples", [5, 9])
def test_nothing_is_named_for_few_draws(generator, num_samples):
    xs, members = noise(generator, num_samples=num_samples)
    assert found_in(members[0], xs, members[1:] + 3, generator) == ()


@pytest.mark.parametrize("dim", [20, 30])
def test_many_parameters(generator, dim):
    xs, members = noise(generator, 60, 200, dim)
    samples = members[1:].clone()
    samples[..., 7] += 0.8
    found = found_in(members[0], xs, samples, generator)
    assert (found[0].family, found[0].parameters) == ("shift", (7,))


def test_a_long_x_is_reduced(generator):
    """A wave of 300 points whose height decides the width."""
    height = torch.randn(400, 1, generator=generator)
    xs = height * torch.linspace(1, 2, 300) + 0.1
    members = torch.randn(61, 400, 1, generator=generator)
    samples = members[1:] * torch.where(height > 0, 2.0, 1.0)
    found = found_in(members[0], xs, samples, generator)
    assert found[0].family == "width with x"


def test_nothing_is_named_unless_the_verdict_rejects(generator):
    """A method that never rejects, on draws that are wrong."""
    xs, members = noise(generator, num_pairs=100, dim=1)
    draws = Draws(members[0], xs, members[1:] + 2)

    def never(own):
        return 0.9

    report = diagnose_draws(draws, methods=(never,), seed=0, show_progress_bar=False)
    assert report.findings == ()
    report = diagnose_draws(draws, methods=("sbc",), seed=0, show_progress_bar=False)
    assert families(report.findings) == ["shift"]


def test_weights_that_explain_the_error_leave_nothing(generator):
    """q·w is shifted by a half, and so are the truths."""
    found = 0
    for _ in range(10):
        xs, members = noise(generator, 99, 300, 1)
        truths = members[0] + 0.5
        weights = 0.5 * torch.cat([truths.unsqueeze(0), members[1:]])[..., 0]
        bags = choose_members(truths, members[1:], generator, log_weights=weights)
        found += bool(find_errors(bags, xs.double(), 0.05, generator))
        assert found_in(truths, xs, members[1:], generator)
    assert found <= 2


def in_modes(generator, places, width, *shape):
    """Draws from modes at ± places, with shape ``(*shape, 1)``."""
    sign = torch.randint(2, (*shape, 1), generator=generator) * 2.0 - 1
    return sign * places + width * torch.randn(*shape, 1, generator=generator)


def test_filling_the_gap_between_modes_is_not_too_narrow(generator):
    """Modes whose distance follows x, in draws from a box that holds them all."""
    xs = torch.randn(600, 1, generator=generator)
    places = 2 + 0.5 * xs.tanh()
    samples = 6 * torch.rand(100, 600, 1, generator=generator) - 3
    (first, *_) = found_in(
        in_modes(generator, places, 0.2, 600), xs, samples, generator
    )
    assert (first.family.removesuffix(" with x"), first.pattern) == ("shape", "modes")


@pytest.mark.parametrize(("family", "change"), [("width", 0.6), ("shift", 0.0)])
def test_modes_that_q_knows_are_not_merged(generator, family, change):
    """Narrower modes, or shifted ones: the gap is in the draws too."""
    xs = torch.randn(600, 1, generator=generator)
    truths = in_modes(generator, 1.0, 0.5, 600)
    samples = in_modes(generator, 1.0, 0.5, 100, 600)
    samples = samples * change if change else samples + 0.4
    found = found_in(truths, xs, samples, generator)
    assert found[0].family == family
    assert "modes" not in {one.pattern for one in found}


@pytest.mark.parametrize("spread", [5.0, 50.0])
@pytest.mark.parametrize("num_samples", [10, 100])
def test_weights_that_leave_few_draws_name_nothing(generator, num_samples, spread):
    xs, members = noise(generator, num_samples, 150, 2)
    weights = spread * torch.randn(num_samples + 1, 150, generator=generator)
    bags = choose_members(members[0], members[1:], generator, log_weights=weights)
    assert find_errors(bags, xs.double(), 0.05, generator) == ()


@pytest.mark.parametrize("num_pairs", [2, 4, 9])
def test_nothing_is_named_for_few_pairs(generator, num_pairs):
    xs, members = noise(generator, num_pairs=num_pairs)
    assert found_in(members[0], xs, members[1:] + 3, generator) == ()


@pytest.mark.parametrize("num_samples", [10, 100])
@pytest.mark.parametrize("dim", [1, 8])
def test_a_posterior_that_ignores_x_in_all_but_one_parameter_is_not_blind(
    generator, num_samples, dim
):
    xs, members = noise(generator, num_samples, 300, dim)
    truths, samples = xs + members[0], 2**0.5 * members[1:]
    (found, *_) = found_in(truths, xs, samples, generator)
    assert found.pattern == "blind"
    if dim > 1:  # the first uses what little x knows
        truths[:, 0] = 0.35 * xs[:, 0] + members[0, :, 0]
        samples[..., 0] = 0.35 * xs[:, 0] + members[1:, :, 0]
        found, *_ = found_in(truths, xs, samples, generator)
        assert (found.family, found.pattern) == ("shift with x", "")
        assert 0 not in found.parameters


def test_a_shift_is_named_beside_an_error_that_gains_much_more(generator):
    """Three of eight parameters are much too narrow, and another one is shifted."""
    xs, members = noise(generator, num_pairs=500, dim=8)
    samples = members[1:].clone()
    samples[..., [1, 3, 5]] *= 0.5
    samples[..., 7] += 0.5
    found = found_in(members[0], xs, samples, generator)
    assert families(found) == ["width", "shift"]
    assert found[-1].parameters == (7,)


@pytest.mark.parametrize("width", [0.0, 1e-3])
@pytest.mark.parametrize("num_samples", [20, 99])
@pytest.mark.parametrize("dim", [1, 2])
def test_draws_at_one_point_are_too_narrow(generator, dim, num_samples, width):
    """Such as those of a stuck chain: no modes are merged, and no region is missed."""
    xs, members = noise(generator, num_samples, 300, dim)
    (found,) = found_in(members[0], xs, width * members[1:], generator)
    assert (found.family, found.sign) == ("width", -1)
    assert found.interval[0] == pytest.approx(1e-3)
