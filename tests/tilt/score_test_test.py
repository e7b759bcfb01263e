"""The score test is exact under q = p, whatever the law, and finds what is wrong."""

import pytest
import torch
from tilt_helpers import evidence_of, named_in, noise

from sbi_colt.tilt.score_test import adjusted_p_values, family_p_values


def heavy(generator, *shape):
    normal = torch.randn(*shape, generator=generator)
    return normal / torch.randn(*shape, generator=generator)


def correct(law, generator, num_pairs=60, num_samples=15):
    """Truths, xs and draws of a posterior that is exact."""
    xs, members = noise(generator, num_samples, num_pairs, 2)
    if law == "heavy":
        xs, members = heavy(generator, *xs.shape), heavy(generator, *members.shape)
    if law == "clamped":
        members = members.clamp(-0.5, 1.0)
    if law == "skewed x":
        xs = xs.mul(1.5).exp()
        members = members * (1 + xs)
    return members[0], xs, members[1:]


@pytest.mark.parametrize("law", ["gaussian", "heavy", "clamped", "skewed x"])
def test_nothing_is_named_beyond_the_level(generator, within_binomial_band, law):
    runs = 200
    p_values, named = [], 0
    for _ in range(runs):
        p_value, names = named_in(*correct(law, generator), generator, 99)
        p_values.append(p_value)
        named += bool(names)
    # Ties make it conservative, so only too many count.
    for level in (0.05, 0.2):
        count = sum(p <= level for p in p_values)
        expected = int(level * runs)
        assert count <= expected or within_binomial_band(count, runs, level)
    assert named <= sum(p <= 0.05 for p in p_values)


def test_each_family_has_uniform_p_values(generator, within_binomial_band):
    runs, counts = 200, 0
    for _ in range(runs):
        truths, xs, samples = correct("gaussian", generator)
        evidence = evidence_of(truths, xs, samples, generator)
        families = list(evidence.features.families.values())
        p_values, _ = family_p_values(evidence, families, 49, generator)
        counts = counts + (p_values[:, 0] <= 0.1).int()
    for family, count in zip(families, counts.tolist(), strict=True):
        assert count <= 0.1 * runs or within_binomial_band(count, runs, 0.1), family


@pytest.mark.slow
def test_weighted_truths_are_no_error(generator, within_binomial_band):
    """Truths in proportion to w; without the weights they look shifted."""
    runs, rejected, blunder = 200, 0, 0
    for _ in range(runs):
        xs, members = noise(generator, 30, 60, 1)
        log_weights = 1.5 * members[..., 0]  # (S + 1, N)
        chosen = log_weights.T.softmax(dim=1).multinomial(1, generator=generator)[:, 0]
        rows = torch.arange(60)
        first = members[0].clone()
        members[0] = members[chosen, rows]
        members[chosen, rows] = torch.where(
            (chosen == 0).unsqueeze(1), members[0], first
        )
        weights = 1.5 * members[..., 0]
        arguments = (members[0], xs, members[1:], generator, 49)
        rejected += named_in(*arguments, log_weights=weights)[0] <= 0.1
        blunder += named_in(*arguments)[0] <= 0.1
    assert within_binomial_band(rejected, runs, 0.1) or rejected < 0.1 * runs
    assert blunder > 0.9 * runs


@pytest.mark.parametrize(
    ("change", "family"),
    [
        (lambda t, x, s: (t + 0.4, x, s), "shift"),
        (lambda t, x, s: (t, x, 1.4 * s), "width"),
        (lambda t, x, s: (t + 0.5 * x, x, s), "shift with x"),
        (lambda t, x, s: (t, x, s * torch.where(x > 0, 1.0, 0.6)), "width with x"),
    ],
)
def test_the_family_of_an_error_is_found(generator, change, family):
    xs, members = noise(generator, 60, 300, 2)
    evidence = evidence_of(*change(members[0], xs, members[1:]), generator)
    families = list(evidence.features.families.values())
    p_values, excess = family_p_values(evidence, families, 999, generator)
    names = [family.name for family in families]
    assert adjusted_p_values(p_values)[names.index(family)] <= 0.02
    # "scaling" is another form of width, which nobody tests.
    first = names[int(excess.argmax())].replace("scaling", "width")
    assert first.startswith(family.split()[0])


def test_the_adjustment_is_that_of_the_smallest_p_value():
    p_values = torch.tensor([[0.2, 0.6, 0.4, 0.8, 1.0], [0.8, 0.2, 1.0, 0.4, 0.6]])
    adjusted = adjusted_p_values(p_values)
    # The smallest of each column: 0.2, 0.2, 0.4, 0.4, 0.6; two are at most 0.2.
    torch.testing.assert_close(adjusted, torch.tensor([0.4, 0.8], dtype=torch.float64))
