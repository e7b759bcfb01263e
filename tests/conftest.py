"""Fixtures and yardsticks that several test files share."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch
from scipy.stats import binom

from sbi_colt import Draws

# One thread for each of the processes that share the cores.
torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _scratch_directory(tmp_path_factory):
    """Run in a directory of its own: sbi writes its training logs where it stands."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("scratch"))
    yield
    os.chdir(before)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20251)


@pytest.fixture
def within_binomial_band():
    """Whether a count of events of a stated probability is within its 99% band."""

    def check(count: int, trials: int, probability: float, band: float = 0.99) -> bool:
        tail = (1 - band) / 2
        low = binom.ppf(tail, trials, probability)
        high = binom.ppf(1 - tail, trials, probability)
        return bool(low <= count <= high)

    return check


@pytest.fixture
def make_draws():
    """Pairs θ = x + noise with skewed, correlated noise, and draws of a chosen width.

    ``width=1`` is the exact posterior (under a flat prior), so the null hypothesis.
    """

    def make(num_pairs, num_samples, dim, generator, width=1.0, shift=0.0) -> Draws:
        mix = torch.eye(dim) + 0.5 * torch.ones(dim, dim).tril(-1) / dim

        def noise(*shape):
            gaussian = torch.randn(*shape, dim, generator=generator) @ mix.T
            return gaussian + 0.3 * gaussian.square()  # asymmetric on purpose

        xs = 2 * torch.randn(num_pairs, dim, generator=generator) + 1
        return Draws(
            xs + noise(num_pairs),
            xs,
            xs + width * noise(num_samples, num_pairs) + shift,
        )

    return make


@pytest.fixture
def unchanged_random_state():
    """Fail a test that moves the caller's global random state."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    assert random.getstate() == before[0]
    assert all(
        np.array_equal(a, b)
        for a, b in zip(np.random.get_state(), before[1], strict=True)
    )
    assert torch.equal(torch.get_rng_state(), before[2])
