r"""The curved family: the Gaussian family behind a fixed nonlinear map.

The Gaussian family is latent, and a fixed random network bends it (Chen, Bansal and
Scott 2025, Appendix C.5): θ = A sin(B θ̃ + b) + a, from s to 128 to s units, with
torch's default initialisation of `torch.nn.Linear`. Perturbations act on θ̃.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from sbi_colt.benchmark.tasks.gaussian import GaussianTask, family_settings
from sbi_colt.draws import Draws
from sbi_colt.randomness import generator_from, isolated_rng

__all__ = ["SETTINGS", "CurvedTask", "bend"]

_NUM_HIDDEN = 128


@dataclass(frozen=True)
class CurvedTask:
    """A perturbed Gaussian behind a fixed nonlinear map."""

    latent: GaussianTask  # its seed is that of the map too

    def draws(
        self, num_pairs: int, num_posterior_samples: int, generator: torch.Generator
    ) -> Draws:
        """Return pairs from p and draws from q; see `Task.draws`."""
        flat = self.latent.draws(num_pairs, num_posterior_samples, generator)
        seed = self.latent.seed
        thetas, samples = bend(flat.thetas, seed), bend(flat.samples, seed)
        return Draws(thetas, flat.xs, samples, shuffle=False)


def bend(thetas: Tensor, seed: int = 0) -> Tensor:
    """Map latent parameters ``(..., s)`` to curved ones of the same shape."""
    with torch.no_grad():
        return _network(thetas.shape[-1], seed)(thetas)


@lru_cache(maxsize=16)
def _network(dim: int, seed: int) -> nn.Module:
    with isolated_rng(generator_from(seed, "curved task", dim)):
        return nn.Sequential(
            nn.Linear(dim, _NUM_HIDDEN), _Sine(), nn.Linear(_NUM_HIDDEN, dim)
        ).requires_grad_(False)


class _Sine(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return values.sin()


SETTINGS = {
    f"curved-{name}": setting for name, setting in family_settings(CurvedTask).items()
}
