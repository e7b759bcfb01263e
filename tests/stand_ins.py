"""Posteriors that sbi did not make, and simulators, for other processes too."""

import os
import time
from pathlib import Path

import numpy as np
import torch

from sbi_colt import draw_posterior_samples
from sbi_colt.sampling.pairs import simulate_pairs

PRIOR = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))


def simulate(simulator, num=60, prior=PRIOR, **options):
    """Simulate pairs with a seed and in silence."""
    options = {"seed": 0, "show_progress_bar": False} | options
    return simulate_pairs(prior, simulator, num, **options)


def torch_batch(thetas):
    return thetas[:, :1] + 0.1 * torch.randn(len(thetas), 1)


def torch_single(theta):
    assert theta.ndim == 1
    return theta[:1] + 0.1 * torch.randn(1)


def sample(posterior, xs, num, **options):
    """Draw with a seed and in silence."""
    options = {"seed": 0, "show_progress_bar": False} | options
    return draw_posterior_samples(posterior, xs, num, **options)


def numpy_posterior(xs, num_samples):
    return np.asarray(xs) + np.random.normal(size=(num_samples, *xs.shape))


class Gaussian:
    """N(x, I), one x at a time, through `sample` only."""

    def __init__(self, seconds=0.0, scale=1.0):
        self.seconds = seconds
        self.scale = scale
        self.calls = 0

    def sample(self, shape, x):
        self.calls += 1
        time.sleep(self.seconds)
        return x + self.scale * torch.randn(*shape, x.shape[-1])

    def batched(self, xs, num):
        self.calls += 1
        time.sleep(self.seconds)
        return xs + self.scale * torch.randn(num, *xs.shape)


class Deadly(Gaussian):
    """Kills its process the first few times that it meets an x."""

    def __init__(self, path: Path, deaths: int, at: float = 2.0):
        super().__init__()
        self.path = Path(path)
        self.deaths = deaths
        self.at = at

    def sample(self, shape, x):
        if float(x[0, 0]) == self.at:
            died = len(self.path.read_text()) if self.path.exists() else 0
            if died < self.deaths:
                self.path.write_text("x" * (died + 1))
                os._exit(1)
        return super().sample(shape, x)
