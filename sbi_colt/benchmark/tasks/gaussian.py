r"""Perturbed Gaussian posteriors (Chen, Bansal and Scott 2025, Appendix C.2).

.. math:: x \sim N(1, I_m), \quad p(θ | x) = N(W_1 x, |w_2^T x| Σ), \quad
          Σ_{ij} = 0.9^{|i - j|}

with W_1 and w_2 of standard normal entries, fixed by the task's seed. q is p with one
of seven perturbations of size α; at α = 0 it is p exactly. The paper gives w_2 the
length of θ; the product needs that of x, which is used here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from sbi_colt.benchmark.tasks.task import Setting, Task
from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from

__all__ = ["PERTURBATIONS", "SETTINGS", "GaussianTask", "family_settings"]

# Sizes of each perturbation in the paper.
_ALPHAS: dict[str, tuple[float, ...]] = {
    "mean": (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
    "covariance": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4),
    "anisotropic": (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0),
    "t": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    "modes": (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4),
    "collapse": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    "blind": (0.0, 1.0),
}
# Where the paper trains with other settings than elsewhere.
_CHANGES: dict[str, dict[str, Any]] = {
    "mean": {"epochs": 25},
    "modes": {"learning_rate": 5e-5, "c2st_learning_rate": 5e-5},
    "blind": {"learning_rate": 1e-3},
}
PERTURBATIONS = tuple(_ALPHAS)
_CORRELATION = 0.9
Shape = tuple[int, int]  # numbers of draws and of pairs, (S, N)


@dataclass(frozen=True)
class GaussianTask:
    """A Gaussian posterior and one of its perturbations.

    Args:
        perturbation: ``"mean"`` (mean times 1 + α), ``"covariance"`` (times 1 + α),
            ``"anisotropic"`` (α v vᵀ added along the direction of least variance),
            ``"t"`` (Student t with 1/α degrees of freedom), ``"modes"`` (q has a share
            α at minus the mean), ``"collapse"`` (p has it, q has not) or ``"blind"`` (q
            ignores x: it is the prior).
        alpha: Size of the perturbation. ``"blind"`` has no size: 0 is the null, any
            other value the blind prior.

    Example:
        >>> task = GaussianTask("covariance", 0.6)
        >>> task.draws(10, 5, torch.Generator())
        Draws(num_pairs=10, num_posterior_samples=5, dim=3, x_shape=(3,))
    """

    perturbation: str
    alpha: float
    dim_x: int = 3  # m
    dim: int = 3  # of θ, s
    seed: int = 0  # of W_1 and w_2

    def __post_init__(self):
        if self.perturbation not in PERTURBATIONS:
            raise ValueError(
                f"perturbation: expected one of {', '.join(PERTURBATIONS)}, "
                f"got {self.perturbation!r}."
            )
        most = 1 if self.perturbation in ("modes", "collapse") else math.inf
        if not 0 <= self.alpha <= most or self.alpha == math.inf:
            bound = " and <= 1" if most == 1 else ""
            raise ValueError(f"alpha: expected a number >= 0{bound}, got {self.alpha}.")

    def draws(
        self, num_pairs: int, num_posterior_samples: int, generator: Generator
    ) -> Draws:
        """Return pairs from p and draws from q; see `Task.draws`."""
        xs = 1 + torch.randn(num_pairs, self.dim_x, generator=generator)
        thetas = self.truths(xs, generator)[0]
        samples = self.estimates(xs, (num_posterior_samples, num_pairs), generator)
        return Draws(thetas, xs, samples, shuffle=False)

    def truths(self, xs: Tensor, generator: Generator, size: int = 1) -> Tensor:
        """Return draws from p(θ | x), with shape ``(size, N, s)``."""
        is_mixture = self.perturbation == "collapse"
        sample = self._mixture if is_mixture else self._gaussian
        return sample(xs, (size, len(xs)), generator)

    def estimates(self, xs: Tensor, shape: Shape, generator: Generator) -> Tensor:
        """Return draws from q(θ | x), with shape ``(S, N, s)``."""
        at = (xs, shape, generator)
        kind = "collapse" if self.alpha == 0 else self.perturbation
        if kind == "mean":
            return self._gaussian(*at) + self.alpha * self._mean(xs)
        if kind == "covariance":
            return self._mean(xs) + (1 + self.alpha) ** 0.5 * self._noise(*at)
        if kind == "anisotropic":
            direction = torch.linalg.eigh(self._weights()[2]).eigenvectors[:, 0]  # (s,)
            along = torch.randn(*shape, 1, generator=generator)
            return self._gaussian(*at) + self.alpha**0.5 * along * direction
        if kind == "t":
            freedom = 1 / self.alpha
            rng = np.random.default_rng(
                int(torch.randint(2**62, (1,), generator=generator))
            )
            stretch = (freedom / rng.chisquare(freedom, size=(*shape, 1))) ** 0.5
            noise = self._noise(*at)
            return self._mean(xs) + torch.from_numpy(stretch).float() * noise
        if kind == "modes":
            return self._mixture(*at)
        if kind == "blind":
            num = shape[0] * shape[1]
            others = 1 + torch.randn(num, self.dim_x, generator=generator)
            return self._gaussian(others, (1, num), generator).reshape(*shape, self.dim)
        return self._gaussian(*at)

    def _weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return W_1 ``(s, m)``, w_2 ``(m,)`` and Σ ``(s, s)``."""
        generator = generator_from(self.seed, "gaussian task", self.dim_x, self.dim)
        steps = torch.arange(self.dim, dtype=torch.float32)
        toeplitz = _CORRELATION ** (steps.unsqueeze(0) - steps.unsqueeze(1)).abs()
        matrix = torch.randn(self.dim, self.dim_x, generator=generator)
        return matrix, torch.randn(self.dim_x, generator=generator), toeplitz

    def _mean(self, xs: Tensor) -> Tensor:
        return xs @ self._weights()[0].T  # (N, s)

    def _noise(self, xs: Tensor, shape: Shape, generator: Generator) -> Tensor:
        _, vector, toeplitz = self._weights()
        factor = torch.linalg.cholesky(toeplitz)
        noise = torch.randn(*shape, self.dim, generator=generator) @ factor.T
        return (xs @ vector).abs().sqrt().unsqueeze(1) * noise  # (S, N, s)

    def _gaussian(self, xs: Tensor, shape: Shape, generator: Generator) -> Tensor:
        return self._mean(xs) + self._noise(xs, shape, generator)

    def _mixture(self, xs: Tensor, shape: Shape, generator: Generator) -> Tensor:
        second = torch.rand((*shape, 1), generator=generator) < self.alpha
        sign = torch.where(second, -1.0, 1.0)
        return sign * self._mean(xs) + self._noise(xs, shape, generator)


def family_settings(wrap: Callable[[GaussianTask], Task]) -> dict[str, Setting]:
    """Return the settings of a family by perturbation; ``wrap`` makes its tasks."""

    def setting(name: str) -> Setting:
        def make(alpha: float, dims: tuple[int, int], seed: int) -> Task:
            return wrap(GaussianTask(name, alpha, *dims, seed))

        return Setting(make, _ALPHAS[name], **_CHANGES.get(name, {}))

    return {name: setting(name) for name in PERTURBATIONS}


SETTINGS = family_settings(lambda task: task)
