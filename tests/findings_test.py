import pytest
import torch

from sbi_colt import Draws
from sbi_colt.benchmark.gaussian import GaussianTask
from sbi_colt.findings import find


def kinds(draws, **options):
    found = find(draws, None, 0.05, seed=0, **options)
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
    # Holm is conservative, so only too many count.
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
    assert kinds(draws)[0][:2] == ("tails", 1)


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
        for f in find(Draws(xs + members[0], xs, wrong + members[1:]), None, 0.05, 0)
        if f.kind == "x_error"
    ]
    assert (finding.parameter, finding.feature, finding.sign) == (2, 0, -1)


def test_constant_columns_are_no_finding(generator):
    xs, members = noise(generator, dim=2)
    xs = torch.cat([xs, torch.ones(400, 1)], dim=1)
    members = torch.cat([members, torch.ones(101, 400, 1)], dim=2)
    assert kinds(Draws(xs + members[0], xs, xs + members[1:])) == []
