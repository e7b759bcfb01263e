"""Verdicts near one observation, and the balls in which p and q differ."""

import numpy as np
import pytest
import torch
from configs import make_config

from sbi_colt import CoLT, Draws

QUICK = make_config(max_epochs=8, num_redraws=199, num_hidden=16)


def fitted(draws, config=QUICK):
    return CoLT(config, seed=0).fit(draws, show_progress_bar=False)


@pytest.fixture
def result(make_draws, generator):
    train, test = (make_draws(40, 10, 2, generator) for _ in range(2))
    return fitted(train).test(test)


def test_localize_finds_the_excess_mode(generator):
    """q puts a third of its mass at θ = x + 5, where p has none."""

    def make(n):
        xs = torch.randn(n, 1, generator=generator)
        mode = 5 * (torch.rand(200, n, 1, generator=generator) < 1 / 3)
        noise = 0.5 * torch.randn(201, n, 1, generator=generator)
        return Draws(xs + noise[0], xs, xs + noise[1:] + mode)

    config = make_config(probes=("centre",), learning_rate=5e-3)
    result = fitted(make(300), config).test(make(300))
    assert result.distance_lower > 0.1
    xs = torch.tensor([[-1.0], [1.0]])
    samples = make(2).samples - make(2).xs + xs
    where = result.localize(xs, samples)
    assert where.sign * (where.mass_p - where.mass_q) > 0.25
    low, high = where.mass_p_interval
    assert low <= where.mass_p <= high
    assert where.centres.shape == (2, 1)
    assert not where.borrowed.any()


def test_localize_borrows_moments_only_for_new_xs(result):
    xs = result.evidence.xs
    own = result.localize()
    again = result.localize(xs)
    torch.testing.assert_close(again.centres, own.centres)
    assert not again.borrowed.any()
    assert result.localize(xs[:3] + 0.01).borrowed.all()


def test_the_ball_holds_its_share_of_the_draws(make_draws, generator):
    test = make_draws(40, 400, 2, generator)
    result = fitted(
        make_draws(40, 10, 2, generator),
        make_config(probes=("paper-id",), max_epochs=3),
    ).test(test)
    where = result.localize()
    gaps = (test.samples - where.centres).norm(dim=-1)  # (S, N)
    inside = (gaps <= where.radii).float().mean(dim=0)
    assert (
        where.contains(test.samples).float().mean(dim=0) - inside
    ).abs().max() < 0.01
    torch.testing.assert_close(
        inside, torch.full((40,), where.mass_q), atol=0.01, rtol=0
    )


def test_bad_observations_are_named(result):
    with pytest.raises(ValueError, match=r"x_o: expected \(1, 2\)"):
        result.at(torch.zeros(3))
    with pytest.raises(ValueError, match=r"xs: expected \(n, 2\)"):
        result.localize(torch.zeros(3, 3))
    with pytest.raises(ValueError, match="samples: expected"):
        result.localize(torch.zeros(3, 2), torch.zeros(5, 2, 2))
    with pytest.raises(ValueError, match="x_o: expected finite"):
        result.at(torch.tensor([torch.nan, 0]))
    with pytest.raises(TypeError, match="x_o: expected an array of numbers"):
        result.at("here")
    with pytest.raises(ValueError, match="samples: expected finite"):
        result.localize(torch.zeros(1, 2), torch.full((5, 1, 2), torch.nan))
    with pytest.raises(ValueError, match="samples: expected xs"):
        result.localize(samples=torch.zeros(5, 1, 2))
    with pytest.raises(ValueError, match=r"xs: expected \(n, 2\)"):
        result.localize(torch.zeros(0, 2))


def test_a_far_observation_warns(result):
    with pytest.warns(UserWarning, match="x_o: it is far from every test x"):
        local = result.at([1e20, 0.0])
    assert local.num_neighbours == 30
    assert local.num_effective > 10


@pytest.mark.parametrize("dim_x", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_local_verdicts_are_local(generator, within_binomial_band, dim_x):
    """q is exact for x_1 < 0 and far too wide for x_1 > 0."""

    def make(n):
        xs = torch.randn(n, dim_x, generator=generator)
        noise = torch.randn(31, n, 2, generator=generator)
        width = torch.where(xs[:, :1] > 0, 2.5, 1.0)
        return Draws(noise[0], xs, width * noise[1:])

    probes = ("mahalanobis", "random", "centre")
    config = make_config(probes=probes, max_epochs=30, num_redraws=199)
    colt = fitted(make(200), config)
    x_o = torch.zeros(dim_x)
    x_o[0] = 1.0 if dim_x == 1 else 1.5  # in five dimensions neighbours are far
    results = [colt.test(make(400)) for _ in range(200)]
    wrong = [result.at(x_o).p_value <= 0.05 for result in results]
    right = [result.at(-x_o).p_value <= 0.05 for result in results]
    assert sum(wrong) >= 0.95 * 200
    # The exact side is tested at the level: not more often rejected, nor less.
    if dim_x == 1:
        assert within_binomial_band(sum(right), 200, 0.05)
    # Masses near x_o tell the same: that of q where q is exact, more where too wide.
    balls = [result.localize(torch.stack([x_o, -x_o])) for result in results[:100]]
    low = torch.stack([ball.local_mass_p_interval[:, 0] for ball in balls])
    high = torch.stack([ball.local_mass_p_interval[:, 1] for ball in balls])
    mass_q = torch.tensor([ball.mass_q for ball in balls])
    assert (low[:, 0] > mass_q).float().mean() >= 0.9
    if dim_x == 1:
        covered = (low[:, 1] <= mass_q) & (mass_q <= high[:, 1])
        assert covered.float().mean() >= 0.9


def test_any_kind_of_integer_is_a_number_of_neighbours(result):
    x_o = result.evidence.xs[0]
    assert result.at(x_o, np.int64(35)) == result.at(x_o, 35)
    with pytest.raises(ValueError, match="num_neighbours: expected an integer >= 1"):
        result.at(x_o, 0)


def test_centres_keep_large_offsets(generator):
    noise = torch.randn(21, 80, 1, generator=generator, dtype=torch.float64)
    draws = Draws(1e9 + noise[0], noise[0], 1e9 + noise[1:])
    train, test = draws.split(0.5, seed=0)
    centres = fitted(train).test(test).localize().centres
    assert (centres - 1e9).std() > 1e-3
