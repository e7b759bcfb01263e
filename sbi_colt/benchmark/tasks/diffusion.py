r"""A diffusion posterior cut short: fewer reverse steps as the error.

x ~ U(1.5π, 4.5π) and θ = (x cos x, x sin x), a spiral (Chen, Bansal and Scott 2025,
Appendix C.3). A denoiser D(θ; σ, x) is trained and sampled as in Karras et al. (2022,
"EDM"): their preconditioning with σ_data the data's own, log-normal noise levels with
P_mean = −1.2 and P_std = 1.2, weights 1 / c_out², 20 noise levels from 80 to 0.002 with
ρ = 7, and Heun's method (their Algorithm 1, no churn). p is the law of θ after all 20
steps, q that after 20 − α.

Where the paper is silent: the denoiser is given x, as a posterior is, through sines and
cosines of several frequencies; it is a perceptron with three hidden layers of 64
units, trained for 4000 steps of 1024 pairs (half a minute on one core) with
exponentially averaged weights. The law after 20 steps is narrow but no point: what the
network has not learned remains as spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor, nn

from sbi_colt.benchmark.tasks.task import Setting
from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from, isolated_rng

__all__ = ["SETTING", "DiffusionTask", "noise_levels", "reverse", "spiral", "train"]

_NUM_STEPS = 20
_SIGMA_MIN, _SIGMA_MAX, _RHO = 0.002, 80.0, 7.0
_LOG_MEAN, _LOG_SPREAD = -1.2, 1.2
_LOW, _HIGH = 1.5 * math.pi, 4.5 * math.pi
_SIGMA_DATA = 7.0  # root mean square of a coordinate of the spiral
_NUM_HIDDEN = 64
_NUM_STEPS_TRAINING = 4000
_BATCH = 1024
_MEMORY = 1 / 8  # of the averaged weights, as a share of the training


def spiral(xs: Tensor) -> Tensor:
    """Return θ = (x cos x, x sin x) for xs ``(N, 1)``, with shape ``(N, 2)``."""
    return torch.cat([xs * xs.cos(), xs * xs.sin()], dim=1)


def noise_levels() -> Tensor:
    """Return the noise levels σ_0 > … > σ_20 = 0 (Karras et al. 2022, equation 5)."""
    share = torch.arange(_NUM_STEPS, dtype=torch.float64) / (_NUM_STEPS - 1)
    top, bottom = _SIGMA_MAX ** (1 / _RHO), _SIGMA_MIN ** (1 / _RHO)
    levels = (top + share * (bottom - top)) ** _RHO
    return torch.cat([levels, levels.new_zeros(1)]).float()


class Denoiser(nn.Module):
    """D(θ; σ, x) with the preconditioning of Karras et al. (2022, Table 1)."""

    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", 2.0 ** torch.arange(-2, 4))
        num_inputs = 2 + 1 + 1 + 2 * 6
        layers: list[nn.Module] = []
        for _ in range(3):
            layers += [nn.Linear(num_inputs, _NUM_HIDDEN), nn.SiLU()]
            num_inputs = _NUM_HIDDEN
        self.network = nn.Sequential(*layers, nn.Linear(num_inputs, 2))

    def forward(self, thetas: Tensor, sigma: Tensor, xs: Tensor) -> Tensor:
        """Return the denoised θ of noisy thetas ``(N, 2)``, at σ and x ``(N, 1)``."""
        total = (sigma.square() + _SIGMA_DATA**2).sqrt()
        skip = (_SIGMA_DATA / total).square()
        out = sigma * _SIGMA_DATA / total
        waves = xs * torch.as_tensor(self.frequencies)  # (N, 6)
        centred = (xs - (_LOW + _HIGH) / 2) / (_HIGH - _LOW)
        inputs = [thetas / total, sigma.log() / 4, centred, waves.sin(), waves.cos()]
        return skip * thetas + out * self.network(torch.cat(inputs, dim=1))


@lru_cache(maxsize=4)
def train(seed: int = 0, num_steps: int = _NUM_STEPS_TRAINING) -> Denoiser:
    """Return a denoiser trained on the spiral, the learning rate falling to zero."""
    generator = generator_from(seed, "diffusion")
    with isolated_rng(generator):
        denoiser = Denoiser()
    averaged = [p.detach().clone() for p in denoiser.parameters()]
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    for _ in range(num_steps):
        xs = _observe(_BATCH, generator)
        thetas = spiral(xs)
        normal = torch.randn(_BATCH, 1, generator=generator)
        sigma = (_LOG_MEAN + _LOG_SPREAD * normal).exp()
        noisy = thetas + sigma * torch.randn(_BATCH, 2, generator=generator)
        weight = (sigma.square() + _SIGMA_DATA**2) / (sigma * _SIGMA_DATA).square()
        loss = (weight * (denoiser(noisy, sigma, xs) - thetas).square()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        for mean, now in zip(averaged, denoiser.parameters(), strict=True):
            mean.lerp_(now.detach(), 1 / (_MEMORY * num_steps))
    with torch.no_grad():
        for mean, now in zip(averaged, denoiser.parameters(), strict=True):
            now.copy_(mean)
    return denoiser.eval().requires_grad_(False)


def reverse(
    denoiser: Denoiser, xs: Tensor, num_steps: int, generator: torch.Generator
) -> Tensor:
    """Return one θ for each x after the first ``num_steps`` of 20 reverse steps.

    Heun's method on dθ/dσ = (θ − D(θ; σ, x)) / σ, for xs with shape ``(N, 1)``; the
    last step, to σ = 0, is Euler's.
    """
    levels = noise_levels()
    thetas = levels[0] * torch.randn(len(xs), 2, generator=generator)
    for now, later in pairwise(levels[: num_steps + 1]):
        slope = _slope(denoiser, thetas, now, xs)
        euler = thetas + (later - now) * slope
        if later > 0:
            slope = (slope + _slope(denoiser, euler, later, xs)) / 2
        thetas = thetas + (later - now) * slope
    return thetas


@dataclass(frozen=True)
class DiffusionTask:
    """p after 20 reverse steps, q after 20 − α."""

    alpha: float  # an integer from 0 to 20
    seed: int = 0  # of the denoiser's training
    training_steps: int = _NUM_STEPS_TRAINING

    def __post_init__(self):
        if self.alpha != int(self.alpha) or not 0 <= self.alpha <= _NUM_STEPS:
            raise ValueError(
                f"alpha: expected a number of steps from 0 to {_NUM_STEPS}, got "
                f"{self.alpha}."
            )

    def draws(
        self, num_pairs: int, num_posterior_samples: int, generator: torch.Generator
    ) -> Draws:
        """Return pairs from p and draws from q; see `Task.draws`."""
        denoiser = train(self.seed, self.training_steps)
        xs = _observe(num_pairs, generator)
        repeated = xs.repeat(num_posterior_samples, 1)  # (S N, 1)
        steps = _NUM_STEPS - int(self.alpha)
        with torch.no_grad():
            samples = reverse(denoiser, repeated, steps, generator)
            thetas = reverse(denoiser, xs, _NUM_STEPS, generator)
        samples = samples.reshape(num_posterior_samples, num_pairs, 2)
        return Draws(thetas, xs, samples, shuffle=False)


def _slope(denoiser: Denoiser, thetas: Tensor, level: Tensor, xs: Tensor) -> Tensor:
    sigma = level.expand(len(xs), 1)
    return (thetas - denoiser(thetas, sigma, xs)) / level


def _observe(count: int, generator: torch.Generator) -> Tensor:
    return _LOW + (_HIGH - _LOW) * torch.rand(count, 1, generator=generator)


SETTING = Setting(
    lambda alpha, dims, seed: DiffusionTask(alpha, seed),
    (0, 1, 2, 3, 4, 5),
    num_pairs=1000,
    num_posterior_samples=200,
    dims=((1, 2),),
)
