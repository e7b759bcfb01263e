r"""Real posteriors: NPE and FMPE of sbi, trained on more and more simulations.

Two problems whose posteriors can be sampled exactly:

*Two moons* (Greenberg et al. 2019): θ ~ U(−1, 1)², a crescent p = (r cos a + 1/4,
r sin a) with a ~ U(−π/2, π/2) and r ~ N(0.1, 0.01²), and

.. math:: x = p + (-|θ_1 + θ_2|, -θ_1 + θ_2) / \sqrt 2 .

Given x, each p leaves two θ of equal density, and the prior's box cuts some off.

*Outliers*, d = 5: θ ~ N(0, I), x = A θ + σ ε with A fixed, ε ~ N(0, I), and σ = 0.3 or,
one time in four, 1.5 for the whole of x. The posterior is a mixture of two Gaussians
whose weights depend on x.

α is the number of training simulations: more mean a smaller error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from sbi.inference import FMPE, NPE
from sbi.utils import BoxUniform
from sbi.utils.metrics import c2st
from torch import Tensor
from torch.distributions import MultivariateNormal

from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.sampling.draw import draw_posterior_samples
from sbi_colt.sampling.quiet import train_quietly

__all__ = ["PROBLEMS", "Outliers", "TrainedTask", "TwoMoons"]

_NUM_EXACT = 1000  # draws of either kind for the accuracy at one x


class TwoMoons:
    """Two crescents in a box."""

    dim = 2

    def prior(self) -> Any:
        """Return the prior."""
        return BoxUniform(-torch.ones(2), torch.ones(2))

    def simulate(self, thetas: Tensor) -> Tensor:
        """Return xs ``(N, 2)`` for thetas ``(N, 2)``."""
        across = thetas.sum(dim=1).abs()
        along = thetas[:, 1] - thetas[:, 0]
        shift = torch.stack([-across, along], dim=1) / math.sqrt(2)
        return _crescent(len(thetas)) + shift

    def exact(self, x: Tensor, count: int) -> Tensor:
        """Return draws ``(count, 2)`` from the posterior at one x ``(2,)``."""
        found = torch.empty(0, 2)
        while len(found) < count:
            shift = math.sqrt(2) * (x - _crescent(2 * count))
            sign = torch.randint(2, (len(shift),)) * 2 - 1
            across, along = -sign * shift[:, 0], shift[:, 1]
            thetas = torch.stack([across - along, across + along], dim=1) / 2
            good = (shift[:, 0] <= 0) & (thetas.abs() <= 1).all(dim=1)
            found = torch.cat([found, thetas[good]])
        return found[:count]


class Outliers:
    """A linear model whose noise is sometimes five times as large."""

    dim = 5
    _sigmas = torch.tensor([0.3, 1.5])
    _shares = torch.tensor([0.75, 0.25])

    def __init__(self):
        normal = torch.randn(5, 5, generator=generator_from(0, "outliers"))
        self.mixing = torch.eye(5) + 0.3 * normal

    def prior(self) -> Any:
        """Return the prior."""
        return MultivariateNormal(torch.zeros(5), torch.eye(5))

    def simulate(self, thetas: Tensor) -> Tensor:
        """Return xs ``(N, 5)`` for thetas ``(N, 5)``."""
        kinds = torch.multinomial(self._shares, len(thetas), replacement=True)
        noise = self._sigmas[kinds].unsqueeze(1) * torch.randn_like(thetas)
        return thetas @ self.mixing.T + noise

    def exact(self, x: Tensor, count: int) -> Tensor:
        """Return draws ``(count, 5)`` from the posterior at one x ``(5,)``."""
        evidence, parts = [], []
        for sigma, share in zip(self._sigmas, self._shares, strict=True):
            covariance = self.mixing @ self.mixing.T + sigma**2 * torch.eye(5)
            marginal = MultivariateNormal(torch.zeros(5), covariance)
            evidence.append(share.log() + marginal.log_prob(x))
            gain = torch.linalg.solve(covariance, self.mixing).T  # (5, 5)
            spread = torch.eye(5) - gain @ self.mixing
            spread = (spread + spread.T) / 2
            parts.append(MultivariateNormal(gain @ x, spread).sample((count,)))
        weights = torch.stack(evidence).softmax(dim=0)
        chosen = torch.multinomial(weights, count, replacement=True)
        return torch.stack(parts)[chosen, torch.arange(count)]


PROBLEMS = {"two-moons": TwoMoons(), "outliers": Outliers()}
_TRAINERS = {"npe": NPE, "fmpe": FMPE}


@dataclass(frozen=True)
class TrainedTask:
    """A posterior that sbi trained on a number of simulations.

    Args:
        problem: ``"two-moons"`` or ``"outliers"``.
        estimator: ``"npe"`` (a masked autoregressive flow) or ``"fmpe"``.
        alpha: Simulations that it is trained on; 0 is the exact posterior.
        seed: Seed of simulation and training.
        max_epochs: Most epochs of training.
    """

    problem: str
    estimator: str
    alpha: float
    seed: int = 0
    max_epochs: int = 300

    def __post_init__(self):
        for name, value, known in (
            ("problem", self.problem, PROBLEMS),
            ("estimator", self.estimator, _TRAINERS),
        ):
            if value not in known:
                raise ValueError(
                    f"{name}: expected one of {', '.join(known)}, got {value!r}."
                )
        if self.alpha != int(self.alpha) or self.alpha < 0:
            raise ValueError(f"alpha: expected simulations >= 0, got {self.alpha}.")

    def draws(
        self, num_pairs: int, num_posterior_samples: int, generator: torch.Generator
    ) -> Draws:
        """Return fresh pairs and draws from the trained posterior.

        Args:
            num_pairs: Pairs, N.
            num_posterior_samples: Draws per pair, S.
            generator: CPU generator.
        """
        problem = PROBLEMS[self.problem]
        with isolated_rng(generator):
            thetas = problem.prior().sample((num_pairs,))
            xs = problem.simulate(thetas)
        samples = self._sample(xs, num_posterior_samples, generator)
        return Draws(thetas, xs, samples, shuffle=False)

    def accuracy(self, num_xs: int, generator: torch.Generator) -> float:
        """Return the mean accuracy of a classifier against exact draws (C2ST).

        1/2 means that the posterior cannot be told from the exact one.

        Args:
            num_xs: Observations to average over.
            generator: CPU generator.
        """
        problem = PROBLEMS[self.problem]
        with isolated_rng(generator):
            xs = problem.simulate(problem.prior().sample((num_xs,)))
            exact = [problem.exact(x, _NUM_EXACT) for x in xs]
        samples = self._sample(xs, _NUM_EXACT, generator).transpose(0, 1)
        with isolated_rng(generator):
            scores = [c2st(a, b) for a, b in zip(exact, samples, strict=True)]
        return float(torch.stack(scores).mean())

    def _sample(self, xs: Tensor, count: int, generator: torch.Generator) -> Tensor:
        if self.alpha == 0:
            problem = PROBLEMS[self.problem]
            with isolated_rng(generator):
                return torch.stack([problem.exact(x, count) for x in xs], dim=1)
        posterior = _posterior(
            self.problem, self.estimator, int(self.alpha), self.seed, self.max_epochs
        )
        seed = int(torch.randint(2**31, (1,), generator=generator))
        return draw_posterior_samples(
            posterior, xs, count, seed=seed, show_progress_bar=False
        )


@lru_cache(maxsize=8)
def _posterior(
    problem: str, estimator: str, num_simulations: int, seed: int, max_epochs: int
) -> Any:
    task = PROBLEMS[problem]
    generator = generator_from(seed, "trained task", problem, num_simulations)
    with isolated_rng(generator):
        thetas = task.prior().sample((num_simulations,))
        return train_quietly(
            _TRAINERS[estimator],
            task.prior(),
            thetas,
            task.simulate(thetas),
            training_batch_size=min(200, max(20, num_simulations // 20)),
            max_num_epochs=max_epochs,
        )


def _crescent(count: int) -> Tensor:
    angle = math.pi * (torch.rand(count) - 0.5)
    radius = 0.1 + 0.01 * torch.randn(count)
    return torch.stack([radius * angle.cos() + 0.25, radius * angle.sin()], dim=1)
