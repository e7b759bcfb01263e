import pytest
import torch
from sbi.diagnostics.sbc import _run_sbc

from sbi_colt import Draws
from sbi_colt.baselines import sbc, tarp


@pytest.mark.parametrize("method", [sbc, tarp])
@pytest.mark.parametrize("num_samples", [1, 30])
def test_false_alarms_are_at_the_level(
    make_draws, generator, within_binomial_band, method, num_samples
):
    p_values = [
        method(make_draws(50, num_samples, 1, generator), seed=0).p_value
        for _ in range(400)
    ]
    assert within_binomial_band(sum(p <= 0.05 for p in p_values), 400, 0.05)


@pytest.mark.parametrize("method", [sbc, tarp])
def test_a_wrong_posterior_is_rejected(make_draws, generator, method):
    draws = make_draws(300, 100, 2, generator, width=2.0)
    assert method(draws, seed=0).p_value < 0.01


def test_sbc_ranks_are_sbis_before_randomisation(make_draws, generator):
    draws = make_draws(40, 25, 3, generator)
    expected = _run_sbc(
        draws.thetas, draws.xs, draws.samples, "marginals", show_progress_bar=False
    )
    assert torch.equal((26 * sbc(draws, seed=0).ranks).floor().float(), expected)


def test_both_are_blind_to_a_posterior_that_ignores_x(generator):
    """The prior as posterior: the failure that CoLT is made for."""
    thetas = torch.randn(2000, 2, generator=generator)
    samples = torch.randn(50, 2000, 2, generator=generator)
    draws = Draws(thetas, thetas.clone(), samples)
    assert sbc(draws, seed=0).p_value > 0.01
    assert tarp(draws, seed=0).p_value > 0.01


@pytest.mark.parametrize("method", [sbc, tarp])
def test_seeded(make_draws, generator, method):
    draws = make_draws(40, 25, 3, generator)
    first, second, other = (method(draws, seed=seed).ranks for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
