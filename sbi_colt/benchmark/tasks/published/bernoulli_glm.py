r"""Bernoulli GLM (Lueckmann et al. 2021, T.5): spikes of a neuron and their filter.

θ = (β, f) with an offset β ~ N(0, 2) and a filter f of nine entries,

.. math::
    f ~ N(0, (F^T F)^{-1}), \quad F_{i,i} = 1 + \sqrt{(i - 1) / 9}, \;
    F_{i,i-1} = -2, \; F_{i,i-2} = 1,

which makes f smooth. In each of 100 time bins a spike z_t ~ Bernoulli(logistic(β +
v_t · f)), where v_t holds the last nine values of a stimulus of white noise, fixed by a
seed. x holds the sufficient statistics: the number of spikes, and Σ_t z_t v_t.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.nn.functional import softplus

from sbi_colt.benchmark.tasks.published.smc import sample_tempered
from sbi_colt.randomness import generator_from

__all__ = ["BernoulliGLM"]

_NUM_BINS = 100
_NUM_TAPS = 9


class BernoulliGLM:
    """A neuron that spikes or not in each of 100 bins."""

    dim = 1 + _NUM_TAPS

    def __init__(self):
        stimulus = torch.randn(_NUM_BINS, generator=generator_from(0, "stimulus"))
        before = torch.zeros(_NUM_TAPS - 1)  # silence before the first bin
        windows = torch.cat([before, stimulus]).unfold(0, _NUM_TAPS, 1).flip(1)
        self.design = torch.cat([torch.ones(_NUM_BINS, 1), windows], dim=1)  # (100, 10)

    def prior(self) -> Any:
        """Return the prior."""
        places = torch.arange(_NUM_TAPS)
        smooth = torch.diag(1 + (places / 9).sqrt())
        smooth += torch.diag(-2 * torch.ones(_NUM_TAPS - 1), -1)
        smooth += torch.diag(torch.ones(_NUM_TAPS - 2), -2)
        covariance = torch.zeros(self.dim, self.dim)
        covariance[0, 0] = 2.0
        covariance[1:, 1:] = torch.linalg.inv(smooth.T @ smooth)
        covariance = (covariance + covariance.T) / 2
        return MultivariateNormal(torch.zeros(self.dim), covariance)

    def simulate(self, thetas: Tensor) -> Tensor:
        """Return xs ``(N, 10)`` for thetas ``(N, 10)``."""
        chances = (thetas @ self.design.T).sigmoid()  # (N, 100)
        return torch.bernoulli(chances) @ self.design

    def log_likelihood(self, thetas: Tensor, x: Tensor) -> Tensor:
        """Return log p(x | θ), up to a constant, at one x for thetas ``(N, 10)``."""
        logits = thetas @ self.design.to(thetas).T  # (N, 100)
        return thetas @ x.to(thetas) - softplus(logits).sum(dim=1)

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        """Return draws of the posterior at one x; see `Problem.reference`."""
        return sample_tempered(
            self.prior(), lambda thetas: self.log_likelihood(thetas, x), num, generator
        ).float()
