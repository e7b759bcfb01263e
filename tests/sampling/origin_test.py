"""Warnings where parameters do not come from where they should."""

import warnings

import pytest
import torch
from sbi.inference import NPE
from torch.distributions import MultivariateNormal

from sbi_colt import diagnose, run_colt
from sbi_colt.sampling.sbi_internals import train_quietly

PRIOR = MultivariateNormal(torch.zeros(2), torch.eye(2))
PROPOSAL = MultivariateNormal(0.7 * torch.ones(2), 1.5 * torch.eye(2))
QUICK = {"seed": 0, "show_progress_bar": False}


def simulator(thetas):
    return thetas + 0.3 * torch.randn_like(thetas)


def exact(xs, num):
    return xs / 1.09 + (0.09 / 1.09) ** 0.5 * torch.randn(num, *xs.shape)


def log_ratio(thetas):
    return PROPOSAL.log_prob(thetas) - PRIOR.log_prob(thetas)


def colt_of_pairs(**options):
    torch.manual_seed(0)
    thetas = PROPOSAL.sample((200,))
    return run_colt(thetas, simulator(thetas), exact, 200, **options, **QUICK)


@pytest.mark.parametrize(
    "wrong",
    [
        PRIOR,
        lambda thetas: torch.zeros(len(thetas)),
        lambda thetas: PROPOSAL.log_prob(thetas).exp(),
    ],
    ids=["the prior", "no weights", "no logarithm"],
)
def test_a_proposal_that_pairs_do_not_come_from_gives_a_warning(wrong):
    with pytest.warns(UserWarning, match="do not look like draws from the proposal"):
        colt_of_pairs(prior=PRIOR, proposal=wrong)


@pytest.mark.parametrize("right", [PROPOSAL, log_ratio], ids=["density", "function"])
def test_the_right_proposal_is_taken_without_a_word(right):
    assert colt_of_pairs(prior=PRIOR, proposal=right).p_value > 0.05


@pytest.fixture(scope="module")
def trained():
    thetas = PRIOR.sample((200,))
    few = {"max_num_epochs": 2}
    return train_quietly(NPE, PRIOR, thetas, simulator(thetas), **few)


def test_another_prior_than_that_of_the_training_gives_a_warning(trained):
    options = {"num_simulations": 30, "num_posterior_samples": 20, "methods": ("tarp",)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        diagnose(trained, PRIOR, simulator, **options, **QUICK)
    with pytest.warns(UserWarning, match="prior: its draws do not look like those"):
        diagnose(trained, PROPOSAL, simulator, **options, **QUICK)


def test_the_prior_of_a_proposal_is_that_of_the_posterior(trained):
    """sbi keeps the prior, so that weights can be computed without another one."""
    narrow = MultivariateNormal(0.3 * torch.ones(2), 0.7 * torch.eye(2))
    thetas = narrow.sample((100,))
    result = run_colt(thetas, simulator(thetas), trained, 600, proposal=narrow, **QUICK)
    assert result.num_posterior_samples < 600  # thinned
