"""Could the simulator have made x_o? Exactness on tensors, direction, features."""

import pytest
import torch

from sbi_colt.plausibility import nearness, plausibility
from sbi_colt.randomness import generator_from

NUM_REPETITIONS = 400


def gaussian(count, dim, generator):
    """Correlated numbers, different for each θ."""
    level = torch.randn(count, 1, generator=generator)
    return level + torch.randn(count, dim, generator=generator)


def skewed(count, dim, generator):
    return gaussian(count, dim, generator).exp()


def heavy(count, dim, generator):
    """Student's t with one degree of freedom."""
    below = torch.randn(count, dim, generator=generator)
    return gaussian(count, dim, generator) / below


def discrete(count, dim, generator):
    """Rare counts: most numbers are 0, and most xs have repeats if they are short."""
    level = torch.rand(count, 1, generator=generator).expand(count, dim)
    return torch.poisson(0.5 * level, generator=generator)


def p_values(make, dim, num, generator, num_fitting=60, with_replicates=True):
    """Return p-values of x_o from the null hypothesis, with a poor posterior."""
    xs = make(1 + num + num_fitting, dim, generator)
    replicates = None
    if with_replicates:  # of a wrong posterior, which depends on x
        own = xs[: num + 1]
        replicates = make(2 * len(own), dim, generator).reshape(2, *own.shape)
        replicates = 0.5 * replicates + 0.5 * own
    result = plausibility(
        xs[0], xs[1 : num + 1], xs[num + 1 :], generator, replicates=replicates
    )
    without = {"without": result.p_value_without_posterior}
    return {"all": result.p_value, **result.p_values, **without}


def check_levels(make, dim, num, within_binomial_band):
    generator = generator_from(0, make.__name__, dim, num)
    found = [p_values(make, dim, num, generator) for _ in range(NUM_REPETITIONS)]
    size = num + 1
    band = 1 - 0.01 / (3 * len(found[0]))  # 99% for all of a cell together
    for name in found[0]:
        own = [one[name] for one in found]
        for level in (0.05, 0.2, 0.5):
            exact = int(level * size + 1e-9) / size  # p-values are multiples of 1/size
            count = sum(p <= level + 1e-9 for p in own)
            assert within_binomial_band(count, len(own), exact, band), (name, count)


@pytest.mark.parametrize("make", [gaussian, heavy, discrete])
def test_p_values_are_exact(make, within_binomial_band):
    check_levels(make, 10, 20, within_binomial_band)


@pytest.mark.slow
@pytest.mark.parametrize("num", [20, 100, 1000])
@pytest.mark.parametrize("dim", [1, 10, 100])
@pytest.mark.parametrize("make", [gaussian, skewed, heavy, discrete])
def test_p_values_are_exact_everywhere(make, dim, num, within_binomial_band):
    check_levels(make, dim, num, within_binomial_band)


def test_missing_replicates_keep_the_level(within_binomial_band):
    """An x without replicates counts as the farthest, x_o and references alike."""
    generator = generator_from(0, "missing")
    rejected = 0
    for _ in range(NUM_REPETITIONS):
        xs = gaussian(121, 3, generator)
        replicates = xs[:100] + torch.randn(2, 100, 3, generator=generator)
        replicates[:, xs[:100, 0] > 1.5] = torch.nan  # about 15% of xs
        result = plausibility(
            xs[0], xs[1:100], xs[100:], generator, replicates=replicates
        )
        assert result.predictive_p_value is not None
        rejected += result.predictive_p_value <= 0.1 + 1e-9
    assert within_binomial_band(rejected, NUM_REPETITIONS, 0.1)


def test_one_far_number_among_a_hundred_is_found_and_named(generator):
    xs = gaussian(500, 100, generator)
    x_o = xs[0].clone()
    x_o[37] += 8
    result = plausibility(x_o, xs[1:200], xs[200:], generator)
    assert result.p_value <= 0.02
    first = result.standing_out[0]
    assert first.index == 37
    assert first.deviation > 4
    assert first.share_beyond == 0.0
    assert first.p_value == result.resolution


def test_wrong_noise_with_right_marginals_is_found(generator):
    """A series of correlated noise, and one of white noise with the same variance."""

    def series(count, memory):
        noise = torch.randn(count, 60, generator=generator)
        rows = [noise[:, 0]]
        for step in noise.T[1:]:
            rows.append(memory * rows[-1] + (1 - memory**2) ** 0.5 * step)
        return torch.stack(rows, dim=1)

    xs = series(500, 0.7)
    for memory in (0.0, 0.97):
        x_o = series(1, memory)[0]
        result = plausibility(x_o, xs[:199], xs[199:], generator)
        assert result.p_value <= 0.02
        kinds = {one.kind for one in result.standing_out}
        assert kinds & {"summary", "given the others"}


def test_numbers_off_a_curve_are_found(generator):
    """Each number is common, but both together are not."""
    first = torch.rand(500, generator=generator) * 4 - 2
    noise = 0.05 * torch.randn(500, generator=generator)
    xs = torch.stack([first, first.square() + noise], dim=1)
    x_o = torch.tensor([0.0, 2.0])
    result = plausibility(x_o, xs[:199], xs[199:], generator)
    assert result.p_values["neighbours"] == result.resolution
    assert result.p_value <= 0.02


def test_what_only_replicates_show_is_found(generator):
    """x_o lies between prior simulations, but far from what its posterior makes."""
    levels = 10 * torch.randn(500, 1, generator=generator)
    xs = levels + 0.1 * torch.randn(500, 2, generator=generator)
    x_o = torch.tensor([1.0, 3.0])
    own = torch.cat([x_o.unsqueeze(0), xs[:199]])
    replicates = own.mean(dim=1, keepdim=True) + 0.1 * torch.randn(
        5, 200, 2, generator=generator
    )
    result = plausibility(x_o, xs[:199], xs[199:], generator, replicates=replicates)
    assert result.predictive_p_value == result.resolution
    assert result.replicates is not None
    assert result.replicates.shape == (5, 2)


def test_a_number_that_never_changes(generator):
    xs = torch.randn(300, 3, generator=generator)
    xs[:, 1] = 7.0
    same, other = xs[0].clone(), xs[0].clone()
    other[1] = 7.5
    rest = (xs[1:100], xs[100:], generator)
    assert plausibility(same, *rest).p_values["extreme"] > 0.02
    result = plausibility(other, *rest)
    assert result.p_value <= 0.04
    assert result.standing_out[0].index == 1


def test_images_and_single_numbers(generator):
    images = torch.randn(300, 8, 8, generator=generator)
    x_o = images[0].clone()
    x_o[2, 3] = 30.0
    result = plausibility(x_o, images[1:100], images[100:], generator)
    assert result.standing_out[0].index == 2 * 8 + 3
    single = torch.randn(300, 1, generator=generator)
    far = plausibility(torch.tensor([9.0]), single[:99], single[99:], generator)
    assert far.p_value <= 0.04


def test_nearness_is_small_far_from_simulations_only(generator):
    xs = torch.randn(200, 4, generator=generator)
    assert nearness(torch.full((4,), 8.0), xs, generator) == 1 / 201
    assert nearness(torch.zeros(4), xs, generator) > 0.2


def test_nearness_is_exact(within_binomial_band):
    generator = generator_from(0, "nearness")
    found = []
    for _ in range(NUM_REPETITIONS):
        xs = heavy(40, 3, generator)
        found.append(nearness(xs[0], xs[1:], generator) <= 0.1 + 1e-9)
    assert within_binomial_band(sum(found), NUM_REPETITIONS, 0.1)


@pytest.mark.parametrize("dim", [1, 3, 5])
def test_a_few_numbers_at_their_middle_are_no_reason_for_doubt(dim, generator):
    """The most probable data of all, which parameters explain as well as can be."""
    xs = 2 * torch.randn(500, dim, generator=generator)
    found = [
        plausibility(torch.zeros(dim), part[:99], part[99:], generator).p_value
        for part in xs.split(250)
    ]
    assert min(found) > 0.1
