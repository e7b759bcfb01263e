"""Which of two posteriors is closer: level for equally wrong ones, and power."""

import pytest
import torch
from scipy.stats import norm, ttest_rel

from sbi_colt.stats.paired import Regions, closer_p_value
from sbi_colt.stats.uniformity import ks_statistic, worst_ball

NORMAL = torch.distributions.Normal(0.0, 1.0)
NUM_TRAIN, NUM_TEST, NUM_DRAWS = 150, 350, 100


# Each probe is the distance from a point; the first, far away, sees one side only.
POINTS = torch.tensor([-20.0, 0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0])


def probe_ranks(truths, shift, width, generator):
    """Ranks of truths among draws of N(shift, width²) under ten probes, (10, n).

    The draws are finite: their number nearer to the point than the truth is binomial,
    and independent between posteriors.
    """
    points = POINTS.unsqueeze(1)
    reach = (truths - points).abs()  # (10, n)
    low, high = ((points + side * reach - shift) / width for side in (-1, 1))
    masses = (NORMAL.cdf(high) - NORMAL.cdf(low)).clamp(0, 1)
    draws = torch.full_like(masses, NUM_DRAWS)
    counts = torch.binomial(draws, masses, generator=generator)
    return (counts + torch.rand(masses.shape, generator=generator)) / (NUM_DRAWS + 1)


def gaussian(n, generator):
    return torch.randn(n, generator=generator)


def skewed(n, generator):
    return -torch.rand(n, generator=generator).log() - 1


def regions(truths, posterior, generator, probes=slice(None)):
    """Ranks of test pairs, and the regions that the training pairs choose."""
    ranks = probe_ranks(truths, *posterior, generator)[probes]
    shares, signs = zip(*map(worst_ball, ranks[:, :NUM_TRAIN]), strict=True)
    return Regions(ranks[:, NUM_TRAIN:], shares, signs)


def claims(first, second, law, num_repetitions, probes=slice(None)):
    """How often "first is closer" and "second is closer" are claimed at 0.05."""
    generator = torch.Generator().manual_seed(1)
    counts = [0, 0]
    for _ in range(num_repetitions):
        truths = law(NUM_TRAIN + NUM_TEST, generator)
        a, b = (regions(truths, q, generator, probes) for q in (first, second))
        counts[0] += closer_p_value(a, b) <= 0.05
        counts[1] += closer_p_value(b, a) <= 0.05
    return counts


def distance(shift, width):
    """The largest deviation over the probes, from very many truths."""
    generator = torch.Generator().manual_seed(0)
    truths = torch.randn(100_000, generator=generator)
    return float(ks_statistic(probe_ranks(truths, shift, width, generator)).max())


# A width below 1 with the same distance as the width 1.5.
NARROW = 0.671


@pytest.mark.parametrize(
    ("first", "second", "law"),
    [
        pytest.param((0, 1.5), (0, 1.5), gaussian, marks=pytest.mark.slow),
        pytest.param((0.5, 1.0), (0.5, 1.0), gaussian, marks=pytest.mark.slow),
        ((0, 1.5), (0, NARROW), gaussian),
        ((0, 1.1), (0, 1.1), gaussian),
        pytest.param((0, 1.0), (0, 1.0), gaussian, marks=pytest.mark.slow),
        pytest.param((0, 1.0), (0, 1.0), skewed, marks=pytest.mark.slow),
        ((0.3, 1.5), (0.3, 1.5), skewed),
    ],
    ids=["wide", "shift", "wide-narrow", "mild", "exact", "skewed", "skewed wide"],
)
def test_equally_wrong_posteriors_are_not_told_apart(first, second, law):
    # The upper end of the 99% band of 0.05 over 300; the test is conservative.
    assert max(claims(first, second, law, 300)) <= 25


@pytest.mark.parametrize("law", [gaussian, skewed])
def test_one_probe_is_enough_for_the_level(law):
    assert max(claims((0.3, 1.5), (0.3, 1.5), law, 300, slice(1))) <= 25


def test_opposite_shifts_of_the_same_size_are_not_told_apart():
    assert max(claims((0.4, 1.0), (-0.4, 1.0), gaussian, 300)) <= 25


@pytest.mark.parametrize(
    ("first", "second"),
    [((0.2, 1.0), (0.56, 1.0)), ((0.2, 1.0), (0, 1.6)), ((0, 1.18), (-0.56, 1.0))],
)
def test_distances_of_8_and_22_per_cent_are_told_apart(first, second):
    assert distance(*first) == pytest.approx(0.08, abs=0.01)
    assert distance(*second) == pytest.approx(0.22, abs=0.01)
    told, wrong = claims(first, second, gaussian, 200)
    assert told >= 174  # 185 are expected for errors of different kinds
    assert wrong == 0


def test_one_region_that_is_as_bad_prevents_the_claim(generator):
    """The largest deviation decides, not the mean over the regions."""
    uniform = torch.rand(3, 400, generator=generator)
    bad = torch.rand(3, 400, generator=generator) ** 3
    second = Regions(bad, [0.4] * 3, [1] * 3)
    first = Regions(uniform, [0.4] * 3, [1] * 3)
    assert closer_p_value(first, second) < 1e-6
    one_bad = torch.cat([uniform[:2], bad[2:].flip(-1)])
    assert closer_p_value(Regions(one_bad, [0.4] * 3, [1] * 3), second) > 0.01


def test_a_region_that_training_did_not_choose_counts(generator):
    """The first deviates at 0.4; training chose 0.9, where it is nearly right."""
    ranks = torch.rand(2, 1, 400, generator=generator) ** 3
    second = Regions(ranks[1], [0.4], [1])
    assert closer_p_value(Regions(ranks[0], [0.99], [-1]), second) > 0.01


def test_the_p_value_is_the_largest_of_scipys_paired_t_tests(generator):
    ranks = torch.rand(2, 1, 90, generator=generator, dtype=torch.float64)
    first, second = (Regions(ranks[i] ** (1.2 + i), [0.35], [1]) for i in range(2))
    worst = second.excesses[0]
    others = [first.excesses[0]] + [
        sign * ((first.ranks[0] <= u / 10).double() - u / 10)
        for u in range(1, 10)
        for sign in (1, -1)
    ]
    tests = [ttest_rel(worst, other, alternative="greater") for other in others]
    expected = max(test.pvalue for test in tests)
    assert closer_p_value(first, second) == pytest.approx(expected)


def test_a_correct_posterior_has_mean_excess_zero(generator):
    ranks = torch.rand(2, 10_000, generator=generator)
    table = Regions(ranks, [0.2, 0.7], [1, -1]).excesses
    score = table.mean(dim=1) / table.std(dim=1) * 100
    assert score.abs().max() < norm.isf(0.001)
