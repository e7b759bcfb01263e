"""Posteriors of several rounds, at their observation."""

from functools import partial

import pytest
import torch
from focus_helpers import FIXED, X_O, focused, simulator
from sbi.inference import NLE, NPE, simulate_for_sbi
from sbi.inference.posteriors.posterior_parameters import MCMCPosteriorParameters
from sbi.utils import BoxUniform, RestrictedPrior, get_density_thresholder

from sbi_colt import diagnose, draw_posterior_samples


def check_at_x_o(posterior, box, **options):
    """A good posterior passes at X_O; with draws too wide or shifted it is rejected."""

    def spoilt(xs, num, width=1.0, shift=0.0):
        draws = draw_posterior_samples(posterior, xs, num, show_progress_bar=False)
        mean, scale = draws.mean(dim=0), draws.std(dim=0)
        return mean + width * (draws - mean) + shift * scale

    options = {"methods": ("colt",), "config": FIXED, "num_replicates": 0, **options}
    good = focused(posterior, 0, box, **options)
    assert not good.rejected
    assert "all is well at x_o" in " ".join(str(good).split())
    for error in ({"width": 1.6}, {"shift": 0.6}):
        bad = focused(partial(spoilt, **error), 0, box, **options)
        assert bad.rejected, error


def check_warnings(posterior, box, thetas):
    """Without x_o there is a warning, whether pairs are simulated or handed in."""
    quick = {
        "num_posterior_samples": 20,
        "methods": ("sbc",),
        "seed": 0,
        "show_progress_bar": False,
    }
    with pytest.warns(UserWarning, match=r"use diagnose\(…, x_o=posterior.default_x"):
        diagnose(posterior, box, simulator, num_simulations=30, **quick)
    with pytest.warns(UserWarning, match="thetas|posterior") as found:
        diagnose(posterior, thetas=thetas, xs=simulator(thetas), **quick)
    messages = " ".join(str(warning.message) for warning in found)
    assert "has a default observation" in messages
    assert "do not look like draws from the prior" in messages  # sbi keeps the prior

    def unmarked(xs, num):
        return posterior.sample_batched((num,), xs, show_progress_bars=False)

    with pytest.warns(UserWarning, match="do not look like draws from the prior"):
        diagnose(unmarked, box, thetas=thetas, xs=simulator(thetas), **quick)


BOX = BoxUniform(-3 * torch.ones(2), 3 * torch.ones(2))


@pytest.mark.slow
def test_npe_over_three_rounds_is_diagnosed_at_its_observation():
    torch.manual_seed(0)
    inference, proposal = NPE(BOX, show_progress_bars=False), BOX
    for _ in range(3):
        thetas, xs = simulate_for_sbi(simulator, proposal, 700, show_progress_bar=False)
        inference.append_simulations(thetas, xs, proposal=proposal)
        inference.train(max_num_epochs=100)
        posterior = inference.build_posterior().set_default_x(X_O)
        proposal = posterior
    check_at_x_o(posterior, BOX, num_simulations=200)
    check_warnings(posterior, BOX, thetas[:200])


@pytest.mark.slow
@pytest.mark.long
def test_nle_over_two_rounds_is_diagnosed_at_its_observation():
    torch.manual_seed(0)
    inference, proposal = NLE(BOX, show_progress_bars=False), BOX
    for _ in range(2):
        thetas, xs = simulate_for_sbi(simulator, proposal, 800, show_progress_bar=False)
        inference.append_simulations(thetas, xs)
        inference.train(max_num_epochs=100)
        chains = MCMCPosteriorParameters(
            num_chains=2,
            thin=1,
            warmup_steps=15,
            init_strategy_parameters={"num_candidate_samples": 200},
        )
        posterior = inference.build_posterior(posterior_parameters=chains)
        proposal = posterior.set_default_x(X_O)
    check_at_x_o(posterior, BOX, num_simulations=100, num_posterior_samples=80)


@pytest.mark.slow
def test_truncated_proposals_are_diagnosed_at_their_observation():
    """TSNPE: each round is simulated from the prior, cut to where q has density."""
    torch.manual_seed(0)
    inference, proposal = NPE(BOX, show_progress_bars=False), BOX
    for _ in range(2):
        thetas = proposal.sample((800,))
        inference.append_simulations(thetas, simulator(thetas))
        inference.train(force_first_round_loss=True, max_num_epochs=100)
        posterior = inference.build_posterior().set_default_x(X_O)
        inside = get_density_thresholder(
            posterior, quantile=1e-4, num_samples_to_estimate_support=5000
        )
        proposal = RestrictedPrior(BOX, inside, sample_with="rejection")
    check_at_x_o(posterior, BOX, num_simulations=200)
    thetas = proposal.sample((250,))
    check_warnings(posterior, BOX, thetas)
    # Pairs from the truncated prior are good for a test, with their weights, 0 or 1.
    report = diagnose(
        posterior,
        BOX,
        thetas=thetas,
        xs=simulator(thetas),
        proposal=proposal,
        methods=("colt",),
        config=FIXED,
        seed=0,
        show_progress_bar=False,
    )
    assert report.focus.num_pairs == 250
    assert report.focus.share_outside > 0
