"""The blend: what no blended probe shows by itself."""

import torch
from probe_helpers import bags, scores_of, solved


def test_a_blend_turns_the_middle_into_near(generator):
    """Truths between the heart and the tails of q: no blended probe ranks them low."""
    members, xs = bags(generator, num_pairs=200, size=101)
    truths = torch.nn.functional.normalize(members[:, 0], dim=-1)
    members[:, 0] = 1.2 * truths
    probe = solved("blend", generator, members, xs)
    scores = scores_of(probe, members, xs)
    ranks = (scores[:, 1:] < scores[:, :1]).double().mean(dim=1)
    distances = members.norm(dim=-1)
    alone = (distances[:, 1:] < distances[:, :1]).double().mean(dim=1)
    assert float(ranks.mean()) < 0.3
    assert float(alone.mean()) > 0.4
