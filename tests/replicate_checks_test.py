"""Checks of replicates: shapes, missing data, and simulators that seed themselves."""

import pytest
import torch

from sbi_colt.draws import make_predictive
from sbi_colt.replicate_checks import check_randomness


def test_some_identical_rounds_are_enough():
    """As of a simulator with the seed int(time.time()): a few rounds each second."""
    rounds = torch.randn(3, 50, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="2 of 4 simulations .* identical"):
        check_randomness(rounds[[0, 1, 1, 2]])
    counts = (rounds > 1).float()
    with pytest.raises(ValueError, match="2 of 4 simulations .* identical"):
        check_randomness(counts[[0, 1, 1, 2]])


def test_data_that_hardly_ever_differ_are_not_taken_for_a_fixed_seed():
    """The sign of θ, wrong in one of a hundred: many rounds are identical by chance."""
    generator = torch.Generator().manual_seed(0)
    identical = 0
    for _ in range(200):
        signs = torch.randn(1, 50, 1, generator=generator).sign()
        right = torch.rand(6, 50, 1, generator=generator) > 0.01
        rounds = torch.where(right, signs, -signs)
        identical += len(rounds.unique(dim=0)) < 6
        if len(rounds.unique(dim=0)) > 1:
            check_randomness(rounds)
    assert identical > 150


@pytest.mark.parametrize("rate", [0.003, 0.03, 0.3])
def test_counts_of_any_rate_are_not_taken_for_a_fixed_seed(rate):
    """With two rounds, the fewest, chance makes them identical most often."""

    def simulate():
        return torch.poisson(torch.full((20, 1), rate))

    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(2000):
            check_randomness([simulate(), simulate()])
            check_randomness([simulate() for _ in range(6)])


@pytest.mark.parametrize(
    ("replicates", "thetas", "words"),
    [
        ((4, 9, 2), (9, 1), "replicates: expected shape"),
        ((4, 10, 3), (10, 1), "replicates: expected shape"),
        ((0, 10, 2), (10, 1), "replicates: expected shape"),
        ((4, 10, 2), (9, 1), "thetas_of_posterior: expected shape"),
        ((4, 10, 2), (10,), "thetas_of_posterior: expected shape"),
    ],
)
def test_arrays_that_do_not_fit_are_named(replicates, thetas, words):
    with pytest.raises(ValueError, match=words):
        make_predictive(torch.zeros(10, 2), torch.zeros(thetas), torch.rand(replicates))


def test_dropping_pairs_with_a_nan_is_exact(within_binomial_band):
    """Large data are NaN in xs and replicates alike: ranks stay uniform."""
    low = 0
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        xs, *replicates = torch.randn(4, 40, 1, generator=generator)
        members = torch.stack([xs, *replicates])
        members[members > 1] = torch.nan
        thetas = torch.zeros(40, 1)
        with pytest.warns(UserWarning, match="dropped"):
            data = make_predictive(members[0], thetas, members[1:])
        low += int((data.thetas[0] < data.samples[:, 0]).all())
    assert within_binomial_band(low, 100, 1 / 4)
