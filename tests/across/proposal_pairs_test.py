"""Pairs that were not simulated from the prior."""

from functools import partial

import pytest
import torch
from focus_helpers import (
    FIXED,
    PRIOR,
    X_O,
    SampledOnly,
    make_posterior,
    simulator,
)
from sbi.inference.posteriors.base_posterior import NeuralPosterior
from sbi.utils import BoxUniform, RestrictedPrior
from torch.distributions import MultivariateNormal

from sbi_colt import (
    Draws,
    compare,
    diagnose,
    draw,
    run_colt,
)
from sbi_colt.diagnose import diagnose_draws

BOX = BoxUniform(-3 * torch.ones(2), 3 * torch.ones(2))


def test_weights_need_a_prior_with_a_density():
    thetas, xs = pairs_from(PRIOR)
    with pytest.raises(ValueError, match="the prior is needed too, with log_prob"):
        diagnose(
            make_posterior(),
            SampledOnly(),
            thetas=thetas,
            xs=xs,
            proposal=PRIOR,
            show_progress_bar=False,
        )


def pairs_from(proposal, number=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    thetas = proposal.loc + proposal.stddev * torch.randn(
        number, 2, generator=generator
    )
    return thetas, thetas + 0.3 * torch.randn(number, 2, generator=generator)


@pytest.mark.parametrize("as_function", [False, True])
def test_pairs_from_a_proposal_need_their_weights(as_function):
    proposal = MultivariateNormal(2 * torch.ones(2), 0.04 * torch.eye(2))
    thetas, xs = pairs_from(proposal)

    def log_weight(thetas):
        return proposal.log_prob(thetas) - PRIOR.log_prob(thetas)

    common = {
        "thetas": thetas,
        "xs": xs,
        "methods": ("colt", "sbc"),
        "config": FIXED,
        "seed": 0,
        "show_progress_bar": False,
    }
    right, wrong = make_posterior(), make_posterior(1.6)
    given = {"proposal": log_weight if as_function else proposal, "prior": PRIOR}
    assert diagnose(right, **common).rejected  # taken for pairs from the prior
    assert not diagnose(right, **given, **common).rejected
    assert diagnose(wrong, **given, **common).rejected
    result = run_colt(
        thetas,
        xs,
        right,
        500,
        config=FIXED,
        seed=0,
        proposal=log_weight,
        show_progress_bar=False,
    )
    assert result.p_value > 0.05


def test_weights_in_a_file_count(tmp_path):
    proposal = MultivariateNormal(2 * torch.ones(2), 0.04 * torch.eye(2))
    thetas, xs = pairs_from(proposal)
    torch.manual_seed(0)
    samples = make_posterior()(xs, 1000)
    members = torch.cat([thetas.unsqueeze(0), samples])
    weights = proposal.log_prob(members) - PRIOR.log_prob(members)
    Draws(thetas, xs, samples, log_weights=weights).save(tmp_path / "draws.npz")
    draws = Draws.load(tmp_path / "draws.npz")
    report = diagnose_draws(draws, config=FIXED, seed=0, show_progress_bar=False)
    assert not report.rejected
    assert report.focus.num_draws == 1000


def test_pairs_that_are_not_from_the_prior_are_reported():
    """Every kind of proposal that is taken for the prior, and the prior itself."""
    common = {
        "methods": ("sbc",),
        "num_posterior_samples": 20,
        "seed": 0,
        "show_progress_bar": False,
    }
    exact = make_posterior()
    for proposal in (
        MultivariateNormal(torch.ones(2), 0.3 * torch.eye(2)),
        MultivariateNormal(torch.zeros(2), 3 * torch.eye(2)),
        MultivariateNormal(torch.zeros(2), torch.tensor([[1.0, 0.9], [0.9, 1.0]])),
        BoxUniform(-torch.ones(2), torch.ones(2)),
    ):
        thetas = proposal.sample((200,))
        with pytest.warns(UserWarning, match="do not look like draws from the prior"):
            diagnose(exact, PRIOR, thetas=thetas, xs=simulator(thetas), **common)
    torch.manual_seed(0)
    thetas = PRIOR.sample((200,))
    diagnose(exact, PRIOR, thetas=thetas, xs=simulator(thetas), **common)


@pytest.mark.parametrize("kind", ["restricted", "posterior"])
def test_no_front_door_takes_a_proposal_for_the_prior(kind):
    restricted = RestrictedPrior(BOX, lambda thetas: thetas[:, 0] > 0)
    wrong = restricted if kind == "restricted" else FakePosterior()
    quiet = {"show_progress_bar": False}
    for call in (
        partial(diagnose, make_posterior(), wrong, simulator, **quiet),
        partial(diagnose, make_posterior(), wrong, simulator, x_o=X_O, **quiet),
        partial(compare, dict.fromkeys("ab", make_posterior()), wrong, simulator),
        partial(draw, make_posterior(), wrong, simulator, 20, 20, **quiet),
    ):
        with pytest.raises(ValueError, match="prior: expected the prior that"):
            call()


class FakePosterior(NeuralPosterior):
    """A posterior of sbi, as far as its class tells."""

    def __init__(self):
        pass
