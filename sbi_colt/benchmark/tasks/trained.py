"""Posteriors that sbi trained, NPE and FMPE, on more and more simulations.

The two problems, two moons and outliers, can be sampled exactly. α is the number of
training simulations, so a larger α means a smaller error, except that α = 0 is the
exact posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from sbi.inference import FMPE, NPE
from sbi.utils.metrics import c2st
from torch import Tensor
from torch.distributions import MultivariateNormal

from sbi_colt.benchmark.tasks.published.problems import TwoMoons
from sbi_colt.benchmark.tasks.task import Setting
from sbi_colt.draws import Draws, make_predictive
from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.sampling.at_xs import draw_posterior_samples
from sbi_colt.sampling.sbi_internals import train_quietly

__all__ = ["PROBLEMS", "SETTINGS", "Outliers", "TrainedTask"]

_NUM_EXACT = 1000  # draws of either kind for the accuracy at one x
_NUM_REPLICATES = 9  # on the data side


class Outliers:
    """A linear model with five parameters and noise of two sizes.

    θ ~ N(0, I), x = A θ + σ ε with A fixed, ε ~ N(0, I), and σ = 0.3 or, with
    probability 1/4, 1.5 for the whole of x. The posterior is a mixture of two Gaussians
    whose weights depend on x.
    """

    dim = 5
    _sigmas = torch.tensor([0.3, 1.5])
    _shares = torch.tensor([0.75, 0.25])

    def __init__(self):
        normal = torch.randn(5, 5, generator=generator_from(0, "outliers"))
        self.mixing = torch.eye(5) + 0.3 * normal

    def prior(self) -> Any:
        return MultivariateNormal(torch.zeros(5), torch.eye(5))

    def simulate(self, thetas: Tensor) -> Tensor:  # (N, 5) -> (N, 5)
        kinds = torch.multinomial(self._shares, len(thetas), replacement=True)
        noise = self._sigmas[kinds].unsqueeze(1) * torch.randn_like(thetas)
        return thetas @ self.mixing.T + noise

    def exact(self, x: Tensor, count: int) -> Tensor:
        """Return exact draws ``(count, 5)`` at one x, from torch's global state."""
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
    """A posterior that sbi trained on a number of simulations."""

    problem: str  # "two-moons" or "outliers"
    estimator: str  # "npe" (a masked autoregressive flow) or "fmpe"
    alpha: float  # number of simulations; 0 is the exact posterior
    seed: int = 0  # of simulation and training
    max_epochs: int = 300

    def __post_init__(self):
        for name, known in (("problem", PROBLEMS), ("estimator", _TRAINERS)):
            if (value := getattr(self, name)) not in known:
                names = ", ".join(known)
                raise ValueError(f"{name}: expected one of {names}, got {value!r}.")
        if self.alpha != int(self.alpha) or self.alpha < 0:
            raise ValueError(f"alpha: expected simulations >= 0, got {self.alpha}.")

    def draws(
        self, num_pairs: int, num_posterior_samples: int, generator: torch.Generator
    ) -> Draws:
        """Return pairs from p and draws from q; see `Task.draws`."""
        problem = PROBLEMS[self.problem]
        with isolated_rng(generator):
            thetas = problem.prior().sample((num_pairs,))
            xs = problem.simulate(thetas)
        samples = self._sample(xs, num_posterior_samples, generator)
        other = self._sample(xs, 1, generator)[0]  # one further draw at each x
        with isolated_rng(generator):
            replicates = [problem.simulate(other) for _ in range(_NUM_REPLICATES)]
        draws = Draws(thetas, xs, samples, shuffle=False)
        return draws.with_predictive(
            make_predictive(xs, other, torch.stack(replicates))
        )

    def accuracy(self, num_xs: int, generator: torch.Generator) -> float:
        """Return the mean accuracy of a classifier against exact draws (C2ST)."""
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
        seed = int(torch.randint(2**31, (1,), generator=generator))
        return draw_posterior_samples(
            _posterior(self), xs, count, seed=seed, show_progress_bar=False
        )


@lru_cache(maxsize=8)
def _posterior(task: TrainedTask) -> Any:
    problem, num = PROBLEMS[task.problem], int(task.alpha)
    with isolated_rng(generator_from(task.seed, "trained task", task.problem, num)):
        thetas = problem.prior().sample((num,))
        return train_quietly(
            _TRAINERS[task.estimator],
            problem.prior(),
            thetas,
            problem.simulate(thetas),
            training_batch_size=min(200, max(20, num // 20)),
            max_num_epochs=task.max_epochs,
        )


def _setting(problem: str, estimator: str) -> Setting:
    dim = PROBLEMS[problem].dim
    return Setting(
        lambda alpha, dims, seed: TrainedTask(problem, estimator, alpha, seed),
        (0, 200, 2000, 20000),
        num_pairs=500,
        num_posterior_samples=200,
        dims=((dim, dim),),
        in_paper=False,
        is_trained=True,
    )


SETTINGS = {
    f"{problem}-{estimator}": _setting(problem, estimator)
    for problem in PROBLEMS
    for estimator in _TRAINERS
}
