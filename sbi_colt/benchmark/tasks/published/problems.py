"""Problems of the sbi benchmark whose simulators draw numbers and solve no equations.

The numbers T.1 to T.8 are the sections of Lueckmann et al. (2021), Appendix T. The
methods of all problems are documented in `Problem`.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from sbi.utils import BoxUniform
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.nn.functional import softplus

from sbi_colt.benchmark.tasks.published.smc import sample_tempered
from sbi_colt.randomness import generator_from, isolated_rng

__all__ = [
    "SLCP",
    "BernoulliGLM",
    "GaussianLinear",
    "GaussianMixture",
    "Problem",
    "TwoMoons",
]

_NUM_PARTICLES = 20000  # of SLCP, whose likelihood can be very narrow


class Problem(Protocol):
    """A simulator whose posterior can be sampled without any network."""

    dim: int

    def prior(self) -> Any:
        """Return the prior, a distribution over vectors with ``dim`` entries."""
        ...

    def simulate(self, thetas: Tensor) -> Tensor:
        """Return xs with shape ``(N, …)`` for thetas with shape ``(N, dim)``.

        Random numbers come from torch's global state, as in any simulator for sbi.
        """
        ...

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        """Return draws of the true posterior at one x, with shape ``(num, dim)``."""
        ...


class GaussianLinear:
    """T.1: θ ~ N(0, 0.1 I), x ~ N(θ, 0.1 I), so the posterior is N(x / 2, 0.05 I)."""

    dim = 10
    _variance = 0.1  # of the prior, and of the noise

    def prior(self) -> Any:
        return MultivariateNormal(torch.zeros(10), self._variance * torch.eye(10))

    def simulate(self, thetas: Tensor) -> Tensor:  # (N, 10) -> (N, 10)
        return thetas + math.sqrt(self._variance) * torch.randn_like(thetas)

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        noise = torch.randn(num, 10, generator=generator)
        return x / 2 + math.sqrt(self._variance / 2) * noise


class GaussianMixture:
    r"""T.7: θ ~ U(−10, 10)² and x ~ N(θ, I) / 2 + N(θ, 0.01 I) / 2.

    The likelihood is symmetric in x and θ, so the posterior is the same mixture around
    x, cut off by the prior's box.
    """

    dim = 2
    _edge = 10.0
    _widths = torch.tensor([1.0, 0.1])

    def prior(self) -> Any:
        return BoxUniform(-self._edge * torch.ones(2), self._edge * torch.ones(2))

    def simulate(self, thetas: Tensor) -> Tensor:  # (N, 2) -> (N, 2)
        widths = self._widths[torch.randint(2, (len(thetas), 1))]  # (N, 1)
        return thetas + widths * torch.randn_like(thetas)

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        found = torch.empty(0, 2)
        while len(found) < num:
            widths = self._widths[torch.randint(2, (4 * num, 1), generator=generator)]
            thetas = x + widths * torch.randn(4 * num, 2, generator=generator)
            found = torch.cat([found, thetas[(thetas.abs() <= self._edge).all(dim=1)]])
        return found[:num]


class TwoMoons:
    r"""T.8: a posterior of two crescents in a box (Greenberg et al. 2019).

    θ ~ U(−1, 1)², a crescent p = (r cos a + 1/4, r sin a) with a ~ U(−π/2, π/2) and
    r ~ N(0.1, 0.01²), and

    .. math:: x = p + (-|θ_1 + θ_2|, -θ_1 + θ_2) / \sqrt 2 .

    Given x, each p leaves two θ of equal density, and the prior's box cuts some off.
    """

    dim = 2

    def prior(self) -> Any:
        return BoxUniform(-torch.ones(2), torch.ones(2))

    def simulate(self, thetas: Tensor) -> Tensor:  # (N, 2) -> (N, 2)
        across = thetas.sum(dim=1).abs()
        along = thetas[:, 1] - thetas[:, 0]
        shift = torch.stack([-across, along], dim=1) / math.sqrt(2)
        return _crescent(len(thetas)) + shift

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        with isolated_rng(generator):
            return self.exact(x, num)

    def exact(self, x: Tensor, count: int) -> Tensor:
        """Return exact draws ``(count, 2)`` at one x, from torch's global state."""
        found = torch.empty(0, 2)
        while len(found) < count:
            shift = math.sqrt(2) * (x - _crescent(2 * count))
            sign = torch.randint(2, (len(shift),)) * 2 - 1
            across, along = -sign * shift[:, 0], shift[:, 1]
            thetas = torch.stack([across - along, across + along], dim=1) / 2
            good = (shift[:, 0] <= 0) & (thetas.abs() <= 1).all(dim=1)
            found = torch.cat([found, thetas[good]])
        return found[:count]


def _crescent(count: int) -> Tensor:
    angle = math.pi * (torch.rand(count) - 0.5)
    radius = 0.1 + 0.01 * torch.randn(count)
    return torch.stack([radius * angle.cos() + 0.25, radius * angle.sin()], dim=1)


class SLCP:
    r"""T.3: simple likelihood, complex posterior.

    θ ~ U(−3, 3)⁵, and x holds four independent points from N(m, S) with

    .. math::
        m = (θ_1, θ_2), \quad S = \begin{pmatrix} s_1^2 & ρ s_1 s_2 \\
        ρ s_1 s_2 & s_2^2 \end{pmatrix}, \quad
        s_1 = θ_3^2, \; s_2 = θ_4^2, \; ρ = \tanh θ_5 .

    The signs of θ_3 and θ_4 do not matter, so the posterior has four modes of equal
    mass.
    """

    dim = 5

    def prior(self) -> Any:
        return BoxUniform(-3 * torch.ones(5), 3 * torch.ones(5))

    def simulate(self, thetas: Tensor) -> Tensor:  # (N, 5) -> (N, 8)
        mean, s1, s2, rho = _parts(thetas)
        noise = torch.randn(4, len(thetas), 2)
        first = s1 * noise[..., 0]  # (4, N)
        second = s2 * (rho * noise[..., 0] + (1 - rho.square()).sqrt() * noise[..., 1])
        points = mean + torch.stack([first, second], dim=-1)  # (4, N, 2)
        return points.transpose(0, 1).flatten(1)

    def log_likelihood(self, thetas: Tensor, x: Tensor) -> Tensor:
        """Return log p(x | θ) at one x, with shape ``(N,)``."""
        mean, s1, s2, rho = _parts(thetas)
        points = x.to(thetas).reshape(4, 1, 2)
        first, second = ((points - mean) / torch.stack([s1, s2], dim=-1)).unbind(-1)
        left = 1 - rho.square()  # variance of the second given the first, in units
        squares = (first.square() - 2 * rho * first * second + second.square()) / left
        volume = math.log(2 * math.pi) + s1.log() + s2.log() + left.log() / 2
        return -(squares / 2 + volume).sum(dim=0)

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        # Sampled where θ_3 and θ_4 are positive, and then given random signs.
        lowest = -3 * torch.ones(5)
        lowest[2:4] = 0
        particles = sample_tempered(
            BoxUniform(lowest, 3 * torch.ones(5)),
            lambda thetas: self.log_likelihood(thetas, x),
            max(num, _NUM_PARTICLES),
            generator,
        )[:num]
        particles[:, 2:4] *= 2 * torch.randint(2, (num, 2), generator=generator) - 1
        return particles.float()


def _parts(thetas: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return m ``(N, 2)``, s_1, s_2 and ρ ``(N,)``."""
    # Widths have a smallest value, so that the density is finite.
    s1, s2 = thetas[:, 2:4].square().clamp(min=1e-6).unbind(1)
    return thetas[:, :2], s1, s2, thetas[:, 4].tanh()


class BernoulliGLM:
    r"""T.5: spikes of a neuron and their filter.

    θ = (β, f) with an offset β ~ N(0, 2) and a filter f of nine entries,

    .. math::
        f ~ N(0, (F^T F)^{-1}), \quad F_{i,i} = 1 + \sqrt{(i - 1) / 9}, \;
        F_{i,i-1} = -2, \; F_{i,i-2} = 1,

    which makes f smooth. In each of 100 time bins a spike z_t ~ Bernoulli(logistic(β +
    v_t · f)), where v_t holds the last nine values of a stimulus of white noise, fixed
    by a seed. x has the sufficient statistics: the number of spikes, and Σ_t z_t v_t.
    """

    dim = 10

    def __init__(self):
        stimulus = torch.randn(100, generator=generator_from(0, "stimulus"))
        before = torch.zeros(8)  # silence before the first bin
        windows = torch.cat([before, stimulus]).unfold(0, 9, 1).flip(1)
        self.design = torch.cat([torch.ones(100, 1), windows], dim=1)  # (100, 10)

    def prior(self) -> Any:
        places = torch.arange(9)
        smooth = torch.diag(1 + (places / 9).sqrt())
        smooth += torch.diag(-2 * torch.ones(8), -1)
        smooth += torch.diag(torch.ones(7), -2)
        covariance = torch.zeros(self.dim, self.dim)
        covariance[0, 0] = 2.0
        covariance[1:, 1:] = torch.linalg.inv(smooth.T @ smooth)
        covariance = (covariance + covariance.T) / 2
        return MultivariateNormal(torch.zeros(self.dim), covariance)

    def simulate(self, thetas: Tensor) -> Tensor:  # (N, 10) -> (N, 10)
        chances = (thetas @ self.design.T).sigmoid()  # (N, 100)
        return torch.bernoulli(chances) @ self.design

    def log_likelihood(self, thetas: Tensor, x: Tensor) -> Tensor:
        """Return log p(x | θ) at one x, up to a constant, with shape ``(N,)``."""
        logits = thetas @ self.design.to(thetas).T  # (N, 100)
        return thetas @ x.to(thetas) - softplus(logits).sum(dim=1)

    def reference(self, x: Tensor, num: int, generator: torch.Generator) -> Tensor:
        return sample_tempered(
            self.prior(), lambda thetas: self.log_likelihood(thetas, x), num, generator
        ).float()
