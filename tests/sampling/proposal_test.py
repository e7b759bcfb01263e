"""Proposals near one observation."""

import torch
from sbi.utils import BoxUniform

from sbi_colt.sampling.proposal import make_focus_proposal


def test_most_candidates_may_lie_outside_the_prior():
    """One parameter at a time is asked for, so that at times no candidate is inside."""
    torch.manual_seed(0)
    prior = BoxUniform(torch.zeros(3), torch.ones(3))
    samples = 0.1 * torch.randn(500, 3) - 0.1
    proposal = make_focus_proposal(prior, samples, torch.zeros(0, 3), 1.5)
    thetas = torch.cat([proposal.sample((1,)) for _ in range(200)])
    assert thetas.shape == (200, 3)
    assert ((thetas >= 0) & (thetas <= 1)).all()
    assert thetas.mean() < 0.25  # near the draws, but for the prior's share
    assert proposal.log_weight(torch.zeros(0, 3)).shape == (0,)
