"""A problem with an exact posterior, and draws of it with a data side."""

import torch
from stand_ins import PRIOR

from sbi_colt import CoLTConfig
from sbi_colt.sampling.draw import make_draws
from sbi_colt.sampling.pairs import PairSource

QUIET = {"show_progress_bar": False}
QUICK = CoLTConfig(probes=("mahalanobis",), data_probes=("mahalanobis",))


def simulator(thetas):
    return thetas + torch.randn_like(thetas)


def posterior(xs, num):
    return xs / 2 + 0.5**0.5 * torch.randn(num, *xs.shape)


def made(function=simulator, num_simulations=60, num_posterior_samples=10, **options):
    """The draws of a whole run, with a data side."""
    settings = {
        "seed": 1,
        "device": "cpu",
        "num_workers": 1,
        "num_replicates": 4,
        **QUIET,
        **options,
    }
    return make_draws(
        posterior,
        PairSource(PRIOR, function, num_simulations=num_simulations),
        num_posterior_samples,
        **settings,
    )[0]
