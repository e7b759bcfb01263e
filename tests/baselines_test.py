import pytest
import torch
from sbi.diagnostics.sbc import _run_sbc
from sbi.diagnostics.tarp import _run_tarp
from sbi.utils.metrics import l2

from sbi_colt import Draws
from sbi_colt.baselines import C2ST, c2st, coverage, sbc, tarp
from sbi_colt.stats.combine import holm


@pytest.mark.parametrize("method", [sbc, tarp, coverage])
@pytest.mark.parametrize("num_samples", [1, 30])
def test_false_alarms_are_at_the_level(
    make_draws, generator, within_binomial_band, method, num_samples
):
    p_values = [
        method(make_draws(50, num_samples, 2, generator), seed=0).p_value
        for _ in range(400)
    ]
    assert within_binomial_band(sum(p <= 0.05 for p in p_values), 400, 0.05)


@pytest.mark.parametrize("method", [sbc, tarp, coverage])
def test_a_wrong_posterior_is_rejected(make_draws, generator, method):
    draws = make_draws(300, 100, 2, generator, width=2.0)
    assert method(draws, seed=0).p_value < 0.01


def test_sbc_ranks_are_sbis_before_randomisation(make_draws, generator):
    draws = make_draws(40, 25, 3, generator)
    expected = _run_sbc(
        draws.thetas, draws.xs, draws.samples, "marginals", show_progress_bar=False
    )
    assert torch.equal((26 * sbc(draws, seed=0).ranks).floor().float(), expected)


def test_tarp_ranks_are_sbis_before_randomisation(make_draws, generator):
    """Same references, and draws inside the box of the true parameters (sbi's box)."""
    draws = make_draws(40, 25, 2, generator)
    low, high = draws.thetas.amin(dim=0), draws.thetas.amax(dim=0)
    samples = low + (high - low) * torch.rand(25, 40, 2, generator=generator)
    references = low + (high - low) * torch.rand(40, 2, generator=generator)
    expected = _run_tarp(samples, draws.thetas, references, l2, 10, z_score_theta=True)
    draws = Draws(draws.thetas, draws.xs, samples)
    ranks = (26 * tarp(draws, references=references, seed=0).ranks).floor() / 25
    # sbi hands out the cumulated histogram of its ranks only.
    histogram, grid = torch.histogram(ranks.float(), bins=10, density=True)
    ours = torch.cat([torch.zeros(1), histogram.cumsum(dim=0) / histogram.sum()])
    torch.testing.assert_close(ours, expected[0])
    torch.testing.assert_close(grid, expected[1])


def test_bad_references_are_named(make_draws, generator):
    with pytest.raises(ValueError, match="references: expected shape"):
        tarp(make_draws(40, 25, 2, generator), references=torch.zeros(3, 2))


def test_coverage_tells_too_wide_from_too_narrow(make_draws, generator):
    wide = coverage(make_draws(300, 50, 2, generator, width=1.6), seed=0)
    narrow = coverage(make_draws(300, 50, 2, generator, width=0.6), seed=0)
    assert wide.ranks.mean() < 0.4
    assert narrow.ranks.mean() > 0.6


def test_sbc_names_the_parameter_that_is_wrong(make_draws, generator):
    draws = make_draws(200, 50, 3, generator)
    shifted = draws.samples.clone()
    shifted[..., 1] += 1.0
    result = sbc(Draws(draws.thetas, draws.xs, shifted), seed=0)
    adjusted = result.details["adjusted_p_values"]
    assert adjusted[1] < 0.001
    assert min(adjusted[0], adjusted[2]) > 0.01


@pytest.mark.parametrize("num_draws", [1, 30])
@pytest.mark.parametrize("level", [0.05, 0.2])
def test_c2st_false_alarms_are_at_the_level(
    make_draws, generator, within_binomial_band, num_draws, level
):
    classifier = C2ST(seed=0, epochs=20, num_hidden=32)
    classifier.fit(make_draws(60, num_draws, 2, generator))
    alarms = sum(
        classifier.test(make_draws(40, num_draws, 2, generator)).p_value <= level
        for _ in range(400)
    )
    assert within_binomial_band(alarms, 400, level)


def test_c2st_sees_a_posterior_that_ignores_x(generator):
    thetas = torch.randn(400, 2, generator=generator)
    xs = thetas + 0.1 * torch.randn(400, 2, generator=generator)
    draws = Draws(thetas, xs, torch.randn(5, 400, 2, generator=generator))
    result = c2st(draws, seed=0)
    assert result.p_value < 0.001
    assert result.statistic > 0.7


def test_c2st_is_seeded_and_leaves_the_random_state(make_draws, generator):
    draws = make_draws(60, 3, 2, generator)
    before = torch.get_rng_state()
    first, second = (c2st(draws, seed=3, epochs=5).statistic for _ in range(2))
    assert first == second
    assert torch.equal(torch.get_rng_state(), before)


def test_c2st_tests_after_fitting_only(make_draws, generator):
    with pytest.raises(RuntimeError, match="call fit"):
        C2ST().test(make_draws(60, 3, 2, generator))


def test_holm_is_scipys_order_free_step_down():
    assert holm([0.04]) == [0.04]
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert holm([0.01, 0.02, 0.03]) == pytest.approx([0.03, 0.04, 0.04])


def test_both_are_blind_to_a_posterior_that_ignores_x(generator):
    """The prior as posterior: the failure that CoLT is made for."""
    thetas = torch.randn(2000, 2, generator=generator)
    samples = torch.randn(50, 2000, 2, generator=generator)
    draws = Draws(thetas, thetas.clone(), samples)
    assert sbc(draws, seed=0).p_value > 0.01
    assert tarp(draws, seed=0).p_value > 0.01


@pytest.mark.parametrize("method", [sbc, tarp, coverage])
def test_seeded(make_draws, generator, method):
    draws = make_draws(40, 25, 3, generator)
    first, second, other = (method(draws, seed=seed).ranks for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
