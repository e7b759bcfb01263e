r"""Parameters from a proposal instead of the prior: near one observation, or a user's.

With x_o the proposal is a mixture, truncated as a whole to the support of the prior π:

.. math:: π̃(θ) \propto (1 - s) \min(g(θ), c\, π(θ)) + s\, π(θ), \quad
          w(θ) = π̃(θ) / π(θ) ,

where g is a mixture of Student t densities. Four fifths of it have the mean and the
covariance of draws from q(· | x_o), wider by a factor that a few pilot simulations
choose. One fifth has the same shape around the parameters of those simulations from the
prior whose xs are nearest to x_o, so that g also reaches places that q(· | x_o) misses,
such as a second mode. These xs are no farther from x_o than half of the data that draws
from q(· | x_o) make: farther away, a posterior that was trained near x_o need not be
right.

The cap c is reached by nine tenths of the draws at x_o: weights are equal where the
posterior at x_o is, and fall with the distance from it. Without it g / π would grow
without bound where the prior falls faster than g, as a Gaussian prior does, and a few
draws far away would have all the weight of a bag. s makes a share ε of the parameters
come from the whole prior. The draws and simulations behind g enter no bag, so the test
is exact whatever q(· | x_o) is. The normaliser cancels in every bag.

Draws of q outside the prior have the weight c. The true posterior has none there, so
that any weight keeps the test exact, and a posterior that leaks is found.

A mixture needs a prior density that is normalised. Where that is not known, s = 0, and
all constants cancel. Where the prior has no density in the space of parameters (it can
only be sampled, or its draws are discrete or lie on a surface), parameters are drawn
from it and kept with a probability k(θ) ≤ 1 that falls with the distance from the
centres of g, a window: π̃ ∝ π k, and w = k. The widest window is the whole prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from sbi_colt.draws import Draws
from sbi_colt.sampling.sbi_internals import (
    SampledPrior,
    is_normalised,
    within_support,
)
from sbi_colt.stats.thinning import thin

__all__ = [
    "FocusProposal",
    "WindowProposal",
    "check_prior",
    "make_focus_proposal",
    "user_log_weight",
    "with_log_weights",
]

_SHARE_OF_PRIOR = 0.1  # ε
_SHARE_OF_NEIGHBOURS = 0.2  # of g, around simulations near x_o
_SHARE_BELOW_CAP = 0.1  # of the draws at x_o
_NUM_OF_KERNEL = 2**12  # draws from g, which tell the share of it below the cap
_FREEDOM = 5.0  # degrees of freedom of the t density
_MAX_ROUNDS = 1000  # of proposals, before the support of the prior counts as missed
_BLOCK = 2**16  # members that are weighted at once, and draws of a window at once
_MAX_WINDOW_ROUNDS = 50  # of draws from a prior without a density
_NUM_LOOKED_AT = 500  # draws that tell whether a prior fills the space


def make_focus_proposal(
    prior: Any, samples: Tensor, neighbours: Tensor, widening: float
) -> FocusProposal | WindowProposal:
    """Return the proposal near x_o that suits the prior.

    Args:
        prior: The prior, as sbi processed it.
        samples: Draws from q(· | x_o), with shape ``(S, d)``.
        neighbours: Parameters of simulations near x_o, with shape ``(m, d)``.
        widening: How much wider than these draws the proposal is; infinity for the
            whole prior.
    """
    has_density = math.isfinite(widening) and _fills_space(prior)
    kind = FocusProposal if has_density else WindowProposal
    return kind(prior, samples, neighbours, widening)


def _fills_space(prior: Any) -> bool:
    """Return whether a prior has a density, by its draws: none is on a surface."""
    if isinstance(prior, SampledPrior):
        return False
    drawn = _drawn(prior, _NUM_LOOKED_AT).double()
    if any(len(column.unique()) < _NUM_LOOKED_AT / 2 for column in drawn.T):
        return False  # discrete
    scale = drawn.std(dim=0).clamp_min(1e-300)
    points = (drawn - drawn.mean(dim=0)) / scale
    return float(torch.linalg.eigvalsh(points.T @ points / len(points))[0]) > 1e-9


class _NearDraws(Distribution):
    """What both proposals share: centres and a scale from draws at x_o.

    Args:
        prior: The prior, as sbi processed it.
        samples: Draws from q(· | x_o), with shape ``(S, d)``.
        neighbours: Parameters of simulations near x_o, with shape ``(m, d)``.
        widening: How much wider than these draws the proposal is.
    """

    def __init__(
        self, prior: Any, samples: Tensor, neighbours: Tensor, widening: float
    ):
        samples = samples.double().cpu()
        dim = samples.shape[1]
        self.prior, self.widening = prior, widening
        self.centre = samples.mean(dim=0)
        self.centres = torch.cat([self.centre.unsqueeze(0), neighbours.double().cpu()])
        share = _SHARE_OF_NEIGHBOURS if len(neighbours) else 0.0
        self.shares = torch.full((len(self.centres),), share / max(1, len(neighbours)))
        self.shares[0] = 1 - share  # of the centres in g, (m + 1,)
        scale = samples.std(dim=0).clamp_min(1e-12)
        points = (samples - self.centre) / scale
        correlation = points.T @ points / max(len(points) - 1, 1)
        correlation.diagonal().add_(1e-6)
        factor = torch.linalg.cholesky(correlation)
        # Of the infinite width the kernel is constant: its factor is not used.
        width = widening if math.isfinite(widening) else 1.0
        self.factor = width * scale.unsqueeze(1) * factor  # (d, d)
        super().__init__(event_shape=torch.Size([dim]), validate_args=False)

    @property
    def arg_constraints(self) -> dict[str, Any]:
        """There are no parameters to check."""
        return {}

    @property
    def support(self) -> Any:
        """All vectors; those outside the prior have the density 0."""
        return constraints.independent(constraints.real, 1)

    def log_weight(self, thetas: Tensor) -> Tensor:
        """Return log w of parameters ``(n, d)``, up to a constant."""
        raise NotImplementedError

    def is_near(self, thetas: Tensor) -> Tensor:
        """Return which parameters rather belong to the draws at x_o than elsewhere.

        The others belong to the prior's share, or to the simulations nearest to x_o.
        """
        own, *others = self._log_parts(thetas).T
        return own > torch.stack([*others, self._log_floor(thetas)]).logsumexp(dim=0)

    def _log_floor(self, thetas: Tensor) -> Tensor:
        """Return the log of the prior's share, in the units of `log_kernel`, (n,)."""
        raise NotImplementedError

    def is_outside(self, thetas: Tensor) -> Tensor:
        """Return which parameters lie outside the support of the prior, ``(n,)``."""
        thetas = thetas.detach().cpu().float()
        return ~torch.as_tensor(within_support(self.prior, thetas)).bool().cpu()

    def log_kernel(self, thetas: Tensor) -> Tensor:
        """Return log g over the largest value of one t density, ``(n,)``."""
        return self._log_parts(thetas).logsumexp(dim=1)

    def _log_parts(self, thetas: Tensor) -> Tensor:
        """Return the log of what each centre adds to `log_kernel`, ``(n, m + 1)``."""
        if not math.isfinite(self.widening):
            return torch.zeros(len(thetas), 1, dtype=torch.float64)
        points, centres = (
            torch.linalg.solve_triangular(
                self.factor, (own.double().cpu() - self.centre).T, upper=False
            ).T
            for own in (thetas, self.centres)
        )
        power = -(_FREEDOM + len(self.centre)) / 2
        parts = power * (torch.cdist(points, centres).square() / _FREEDOM).log1p()
        return parts + self.shares.double().log()


class FocusProposal(_NearDraws):
    """The mixture of t densities around posterior draws and of the prior.

    A prior whose density may not be normalised has no share in the mixture.

    Args:
        prior: The prior, as sbi processed it; with ``sample`` and ``log_prob``.
        samples: Draws from q(· | x_o), with shape ``(S, d)``.
        neighbours: Parameters of simulations near x_o, with shape ``(m, d)``.
        widening: How much wider than these draws the t densities are.
    """

    def __init__(
        self, prior: Any, samples: Tensor, neighbours: Tensor, widening: float
    ):
        super().__init__(prior, samples, neighbours, widening)
        dim = len(self.centre)
        self.log_peak = float(  # of the t density
            math.lgamma((_FREEDOM + dim) / 2)
            - math.lgamma(_FREEDOM / 2)
            - dim / 2 * math.log(_FREEDOM * math.pi)
            - self.factor.diagonal().log().sum()
        )
        self.log_cap = math.inf
        for own in (samples, self.centres):  # draws at x_o may all be outside
            ratio = self._log_ratio(own)
            inside = ratio > -torch.inf
            if inside.any():
                self.log_cap = float(ratio[inside].quantile(_SHARE_BELOW_CAP))
                break
        self.share, self._starts_at_prior = 0.0, False  # s
        if is_normalised(prior):
            ratio = self._log_ratio(self._of_kernel(_NUM_OF_KERNEL), is_capped=False)
            below = (self.log_cap - ratio).clamp_max(0).exp() * (ratio > -torch.inf)
            kept = float(below.mean())
            self.share = _share(kept)
            # Wide kernels are sampled faster from the prior: π̃ is kept more often.
            self._starts_at_prior = self.log_cap < 0

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Return parameters in the support of the prior."""
        number = math.prod(sample_shape)
        found: list[Tensor] = []
        for _ in range(_MAX_ROUNDS):
            missing = number - sum(map(len, found))
            if missing <= 0:
                break
            wanted = 2 * missing + 16
            thetas, most = self._candidates(wanted)
            chance = torch.rand(len(thetas), dtype=torch.float64).log()
            found.append(thetas[chance < self.log_weight(thetas) - most])
        thetas = torch.cat(found)[:number]
        if len(thetas) < number:
            raise ValueError(
                "posterior: its draws at x_o lie outside the prior, so that no true "
                "parameters can be simulated near them. Check that the prior is the "
                "one that the posterior was trained with."
            )
        return thetas.reshape(*sample_shape, len(self.centre))

    def log_weight(self, thetas: Tensor) -> Tensor:
        """Return log w of parameters ``(n, d)``; outside the prior the largest one."""
        ratio = self._log_ratio(thetas)
        return self._mixed(ratio.where(ratio > -torch.inf, self.log_cap))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density up to a constant."""
        return self.log_weight(value) + _log_prior(self.prior, value)

    def _log_floor(self, thetas: Tensor) -> Tensor:
        if not self.share:
            return torch.full((len(thetas),), -torch.inf, dtype=torch.float64)
        floor = math.log(self.share / (1 - self.share)) - self.log_peak
        return floor + _log_prior(self.prior, thetas)

    def _candidates(self, number: int) -> tuple[Tensor, Tensor]:
        """Return parameters of which π̃ is a part, and the log of their own weights.

        They come from the mixture without a cap, or from the prior.
        """
        thetas = _drawn(self.prior, number)
        if self._starts_at_prior:
            return thetas, self._mixed(torch.full((number,), self.log_cap).double())
        of_prior = torch.rand(number, 1) < self.share
        thetas = torch.where(of_prior, thetas, self._of_kernel(number))
        thetas = thetas[within_support(self.prior, thetas)]
        return thetas, self._mixed(self._log_ratio(thetas, is_capped=False))

    def _of_kernel(self, number: int) -> Tensor:
        """Return draws from g, ``(number, d)``."""
        noise = torch.randn(number, len(self.centre), dtype=torch.float64)
        centres = self.centres[torch.multinomial(self.shares, number, replacement=True)]
        chi = torch.distributions.Chi2(_FREEDOM).sample((number, 1)).double()
        spread = (_FREEDOM / chi).sqrt()
        return (centres + (noise @ self.factor.T) * spread).float()

    def _log_ratio(self, thetas: Tensor, is_capped: bool = True) -> Tensor:
        """Return log of g / π, at most c if it is capped; −∞ outside the prior."""
        log_prior = _log_prior(self.prior, thetas)
        ratio = self.log_peak + self.log_kernel(thetas) - log_prior
        ratio = torch.where(log_prior > -torch.inf, ratio, -torch.inf)
        return ratio.clamp_max(self.log_cap) if is_capped else ratio

    def _mixed(self, ratio: Tensor) -> Tensor:
        """Return log ((1 − s) ratio + s), given log ratio; −∞ outside the prior."""
        if not self.share:
            return ratio
        floor = torch.full_like(ratio, math.log(self.share))
        near = math.log(1 - self.share) + ratio
        return torch.where(ratio > -torch.inf, near.logaddexp(floor), ratio)


class WindowProposal(_NearDraws):
    """The prior times a bounded window, for a prior that has no density.

    The window is k = (1 − s) κ + s, κ the mixture g in units of the largest value of a
    t density, with s such that a share ε of the parameters comes from the whole prior.

    Args:
        prior: The prior, with ``sample``.
        samples: Draws from q(· | x_o), with shape ``(S, d)``.
        neighbours: Parameters of simulations near x_o, with shape ``(m, d)``.
        widening: How much wider than these draws the window is; infinity for none.
    """

    lacks_density = True

    def __init__(
        self, prior: Any, samples: Tensor, neighbours: Tensor, widening: float
    ):
        super().__init__(prior, samples, neighbours, widening)
        kept = float(self.log_kernel(_drawn(prior, _BLOCK)).exp().mean())
        self.floor = _share(kept)  # s

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Return parameters from the prior, kept with the probability k."""
        number = math.prod(sample_shape)
        found: list[Tensor] = []
        for _ in range(_MAX_WINDOW_ROUNDS):
            thetas = _drawn(self.prior, _BLOCK)
            keep = torch.rand(_BLOCK, dtype=torch.float64).log()
            found.append(thetas[keep < self.log_weight(thetas)])
            if sum(map(len, found)) >= number:
                thetas = torch.cat(found)[:number]
                return thetas.reshape(*sample_shape, len(self.centre))
        raise ValueError(
            "prior: it has no density, so parameters near the posterior at x_o must "
            f"be found among draws from the prior, and of {_BLOCK * _MAX_WINDOW_ROUNDS}"
            f" draws only {sum(map(len, found))} are near; {number} are needed. Hand "
            "in a prior with log_prob if there is one, or use fewer simulations."
        )

    def log_weight(self, thetas: Tensor) -> Tensor:
        """Return log k of parameters ``(n, d)``."""
        kernel = self.log_kernel(thetas)
        floor = torch.full_like(kernel, self.floor).log()
        return (math.log1p(-self.floor) + kernel).logaddexp(floor)

    def _log_floor(self, thetas: Tensor) -> Tensor:
        floor = math.log(self.floor / (1 - self.floor))
        return torch.full((len(thetas),), floor, dtype=torch.float64)


def _share(kept: float) -> float:
    """Return s for a share ε of the prior, if a share of the other part is kept."""
    return _SHARE_OF_PRIOR * kept / (1 - _SHARE_OF_PRIOR + _SHARE_OF_PRIOR * kept)


def _drawn(prior: Any, number: int) -> Tensor:
    return torch.as_tensor(prior.sample((number,))).float().cpu()


def _log_prior(prior: Any, thetas: Tensor) -> Tensor:
    """Return log π of parameters ``(n, d)``; −∞ outside its support."""
    thetas = thetas.detach().cpu().float()
    found = torch.full((len(thetas),), -torch.inf, dtype=torch.float64)
    if not len(thetas):  # torch cannot tell whether none are in a support
        return found
    inside = within_support(prior, thetas)
    if inside.any():
        found[inside] = torch.as_tensor(prior.log_prob(thetas[inside])).double().cpu()
    return found


def user_log_weight(proposal: Any, prior: Any) -> Callable[[Tensor], Tensor]:
    """Return the function from parameters to log w of a user's proposal.

    Args:
        proposal: A distribution with ``log_prob``, or a function from parameters
            ``(n, d)`` to log w.
        prior: The prior as sbi processed it, or `None`.
    """
    if hasattr(proposal, "log_prob"):
        if prior is None or isinstance(prior, SampledPrior):
            raise ValueError(
                "prior: with a proposal that is a distribution the prior is needed "
                "too, with log_prob, because weights are the ratio of both densities."
            )
        return lambda thetas: _ratio(proposal, prior, thetas)
    if not callable(proposal):
        raise TypeError(
            "proposal: expected a distribution with log_prob, or a function from "
            f"parameters to log weights, got {type(proposal).__name__}."
        )
    return lambda thetas: _checked(proposal(thetas.clone()), len(thetas))


def _ratio(proposal: Any, prior: Any, thetas: Tensor) -> Tensor:
    log_prior = _log_prior(prior, thetas)
    inside = log_prior > -torch.inf
    found = torch.full_like(log_prior, -torch.inf)
    if inside.any():
        own = proposal.log_prob(thetas[inside].float())
        found[inside] = _checked(own, int(inside.sum())) - log_prior[inside]
    return found


def _checked(values: Any, number: int) -> Tensor:
    values = torch.as_tensor(values).detach().double().cpu()
    if values.shape != (number,):
        raise ValueError(
            f"proposal: expected log densities or log weights of shape ({number},), "
            f"one for each parameter vector, got {tuple(values.shape)}."
        )
    return values


def with_log_weights(draws: Draws, log_weight: Callable[[Tensor], Tensor]) -> Draws:
    """Return the same draws with the weights of all members of their bags."""
    members = torch.cat([draws.thetas.unsqueeze(0), draws.samples])  # (S + 1, N, d)
    flat = members.flatten(0, 1).cpu()
    found = torch.cat([log_weight(part) for part in flat.split(_BLOCK)])
    checked = Draws(
        draws.thetas,
        draws.xs,
        draws.samples,
        log_weights=found.reshape(members.shape[:2]),
        shuffle=False,
    )
    return replace(draws, log_weights=checked.log_weights)


def num_left(draws: Draws, generator: torch.Generator) -> float:
    """Return the share of draws that thinning leaves at most xs."""
    assert draws.log_weights is not None
    _, kept = thin(draws.log_weights, generator)
    return float(kept.double().mean(dim=0).quantile(0.1))


def check_prior(prior: Any) -> None:
    """Refuse what is no prior: weights would be needed that nobody gave."""
    name = type(prior).__name__
    if name == "RestrictedPrior" or name.endswith("Posterior"):
        raise ValueError(
            f"prior: expected the prior that the posterior belongs to, got a {name}. "
            "Pairs from such a distribution are not pairs from the prior, and would "
            "reject a correct posterior. Hand in the original prior with x_o=…, or "
            "pairs that you simulated as thetas=…, xs=… with prior=… and proposal=…"
        )
