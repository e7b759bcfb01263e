"""`run_colt` on posteriors trained with sbi."""

import pytest
import torch
from configs import make_config
from sbi.inference import NPE
from sbi.utils import BoxUniform

from sbi_colt import check_colt, draw_posterior_samples, run_colt

QUICK = make_config(max_epochs=30, num_redraws=199)


def simulate(num, generator):
    thetas = 4 * torch.rand(num, 2, generator=generator) - 2
    return thetas, thetas + 0.5 * torch.randn(num, 2, generator=generator)


def train(thetas, xs, max_epochs):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        inference = NPE(BoxUniform(-2 * torch.ones(2), 2 * torch.ones(2)), "maf")
        inference.append_simulations(thetas, xs)
        inference.train(max_num_epochs=max_epochs, show_train_summary=False)
        return inference.build_posterior()


@pytest.fixture(scope="module")
def good():
    return train(*simulate(2000, torch.Generator().manual_seed(1)), max_epochs=60)


@pytest.fixture(scope="module")
def blind():
    thetas, xs = simulate(1000, torch.Generator().manual_seed(1))
    return train(thetas, torch.randn_like(xs), max_epochs=20)


def test_a_well_trained_npe_is_far_closer_than_a_blind_one(good, blind, generator):
    thetas, xs = simulate(400, generator)
    results = [
        run_colt(thetas, xs, q, 100, show_progress_bar=False, config=QUICK, seed=0)
        for q in (good, blind)
    ]
    assert results[0].distance < 0.15
    assert results[1].distance_lower > 0.15
    assert check_colt(results[1])["verdict"] == "rejected"
    assert (results[0].num_train, results[0].num_test) == (120, 280)


@pytest.mark.usefixtures("unchanged_random_state")
def test_run_colt_is_reproducible_and_leaves_the_random_state(good, generator):
    thetas, xs = simulate(100, generator)
    first, second, other = (
        run_colt(thetas, xs, good, 20, 1, False, config=QUICK, seed=seed)
        for seed in (3, 3, 4)
    )
    assert torch.equal(first.ranks, second.ranks)
    assert first.p_value == second.p_value
    assert repr(first) == repr(second)
    assert len(repr(first)) < 400  # a notebook shows it: no tensors, no probes
    assert not torch.equal(first.ranks, other.ranks)


def test_nan_xs_are_dropped_before_sampling(good, generator):
    thetas, xs = simulate(60, generator)
    xs[7, 1] = torch.nan
    with pytest.warns(UserWarning, match="dropped 1 of 60 pairs"):
        result = run_colt(thetas, xs, good, 20, 1, False, config=QUICK, seed=0)
    assert result.mask.tolist() == [i != 7 for i in range(60)]
    assert result.num_train + result.num_test == 59
    assert 7 not in result.index.tolist()


def test_too_few_pairs_are_named(good, generator):
    with pytest.raises(ValueError, match="8 pairs are too few to split"):
        run_colt(*simulate(8, generator), good, 20, seed=0)


@pytest.mark.parametrize("number", [0, -3])
def test_no_draws_are_named(good, generator, number):
    with pytest.raises(ValueError, match="num_posterior_samples: expected an"):
        run_colt(*simulate(50, generator), good, number, seed=0)


def test_a_posterior_of_the_wrong_shape_is_named(generator):
    class Wrong:
        def sample_batched(self, shape, x, show_progress_bars):
            return torch.zeros(len(x), *shape, 2)

    with pytest.raises(
        ValueError, match=r"posterior: expected draws of shape \(20, 50"
    ):
        run_colt(*simulate(50, generator), Wrong(), 20, seed=0)


def test_a_posterior_of_another_dimension_is_named(generator):
    class Wrong:
        def sample_batched(self, shape, x, show_progress_bars):
            return torch.zeros(*shape, len(x), 3)

    with pytest.raises(ValueError, match="posterior: expected draws of dimension 2"):
        run_colt(*simulate(50, generator), Wrong(), 20, seed=0)


def test_repeated_pairs_are_refused(good, generator):
    thetas, xs = simulate(50, generator)
    with pytest.raises(ValueError, match="50 of 100 pairs are repeats"):
        run_colt(thetas.repeat(2, 1), xs.repeat(2, 1), good, 20, seed=0)


def test_numpy_doubles_are_fine(good, generator):
    thetas, xs = (t.double().numpy() for t in simulate(50, generator))
    result = run_colt(thetas, xs, good, 20, 1, False, config=QUICK, seed=0)
    ranks = torch.full((50,), torch.nan, dtype=result.ranks.dtype)
    ranks[result.index] = result.ranks
    assert int(ranks.isfinite().sum()) == result.num_test == 35


@pytest.mark.parametrize("posterior", [None, 3])
def test_what_is_no_posterior_is_named(generator, posterior):
    with pytest.raises(TypeError, match="posterior: expected a posterior of sbi"):
        run_colt(*simulate(50, generator), posterior, 20, seed=0)


def test_xs_of_another_width_are_named(good, generator):
    thetas, xs = simulate(50, generator)
    with pytest.raises(ValueError, match=r"xs: expected observations of shape \(2,\)"):
        run_colt(thetas, xs[:, :1], good, 20, seed=0)


def test_draws_follow_the_posterior(good):
    x = torch.tensor([[0.3, -0.4]])
    samples = draw_posterior_samples(
        good, x.expand(3, 2), 4000, seed=0, show_progress_bar=False
    )
    assert samples.shape == (4000, 3, 2)
    # A flat prior, far from its edges: the posterior is N(x, 0.25 I).
    torch.testing.assert_close(samples.mean(0), x.expand(3, 2), atol=0.15, rtol=0)
    torch.testing.assert_close(
        samples.std(0), torch.full((3, 2), 0.5), atol=0.12, rtol=0
    )
