"""Pairs that were used twice, and pairs that may repeat."""

import pytest
import torch

from sbi_colt import Draws
from sbi_colt.pair_keys import make_pair_keys


def test_pair_keys_refuse_repeats_of_continuous_pairs(generator):
    thetas = torch.randn(20, 2, generator=generator)
    xs = torch.randn(20, 3, generator=generator)
    keys = make_pair_keys(thetas, xs)
    assert keys is not None
    assert len(keys.unique(dim=0)) == 20
    with pytest.raises(ValueError, match="1 of 21 pairs are repeats"):
        make_pair_keys(torch.cat([thetas, thetas[:1]]), torch.cat([xs, xs[:1]]))
    with pytest.raises(ValueError, match="20 of 40 pairs are repeats"):
        make_pair_keys(thetas.repeat(2, 1), xs.repeat(2, 1))


def test_pair_keys_let_discrete_pairs_repeat(generator):
    thetas = torch.randint(20, (40, 1), generator=generator).float()
    xs = torch.randint(20, (40, 1), generator=generator).float()
    assert make_pair_keys(thetas, xs) is None


def test_truths_from_a_table_may_repeat_with_discrete_data(generator):
    """Each θ has one x here, so that its values look like those of a density."""
    table = torch.randn(300, 1, generator=generator)
    rows = torch.randint(300, (60,), generator=generator)
    xs = (table[rows] > 0).float()
    samples = torch.randn(5, 60, 1, generator=generator)
    with pytest.warns(UserWarning, match="pairs are repeats of others. That is right"):
        draws = Draws(table[rows], xs, samples)
    assert len(draws) == 60
    unique = torch.randn(60, 1, generator=generator)
    with pytest.raises(ValueError, match="60 of 120 pairs are repeats"):
        make_pair_keys(unique.repeat(2, 1), (unique > 0).float().repeat(2, 1))


def test_functions_of_counts_may_repeat(generator):
    """x looks continuous, and tells θ, so that only pairs as a whole repeat."""
    thetas = torch.randint(2, (200, 1), generator=generator).float()
    xs = torch.poisson(2 + 58 * thetas, generator=generator).log1p()
    samples = torch.randint(2, (5, 200, 1), generator=generator).float()
    with pytest.warns(UserWarning, match="pairs are repeats of others"):
        assert len(Draws(thetas, xs, samples)) == 200
