"""Posteriors with one known error each, and what may rightly be said of them first.

x has d + 1 independent standard normal features. Under p, θ = A x + σ ∘ e with errors e
of mean 0 and variance 1, neighbours correlated by 0.4 unless the kind says otherwise;
σ differs between parameters. Under q the same, with the kind's error. Parameters are
chosen by the seed. The right answers were written down before any of them was run:

- A Gaussian that has the right mean and variance but stands for modes, a skewed law or
  a tail is wrong in *shape* alone; nothing else is right.
- Tails of all parameters together are *radial*, and each parameter's *shape* is wrong
  too, by as much: both are right. With one parameter there is only shape.
- A mode that q does not know at all is *missing*; a shift and a width that such truths
  bring about would mislead.
- An error that is there for some x only must be named "with x", even where its average
  over x is not zero: "it is too wide" alone would be false for half of the xs.
- Modes whose distance follows x, in a Gaussian with the right variance at each x, are a
  wrong shape, which is more wrong at some xs: shape, with x or without.
- A posterior that does not use (some of) x has its mean wrong in proportion to x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sbi_colt.draws import Draws

__all__ = ["ERRORS", "NULLS", "Error", "ErrorTask"]

_NEIGHBOURS = 0.4
_GAP = 6.0  # of a missing mode, in standard deviations


@dataclass
class _Problem:
    """Errors in units of σ; a kind changes some of it in place."""

    xs: Tensor  # (N, d + 1)
    truth: Tensor  # (N, d), errors of the truths
    draws: Tensor  # (K, N, d), those of the draws
    generator: torch.Generator
    one: int  # a parameter
    other: int  # another parameter, or the same for d = 1

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator)


Change = Callable[[_Problem, float], None]


@dataclass(frozen=True)
class Error:
    """A kind of error.

    Args:
        change: Puts the error of a size into a problem.
        right: The families that may be named first.
        sizes: A small and a large size.
        least_dim: The smallest number of parameters that can have it.
        most_dim: The largest.
    """

    change: Change
    right: set[str]
    sizes: tuple[float, float]
    least_dim: int = 1
    most_dim: int = 20


@dataclass(frozen=True)
class ErrorTask:
    """A posterior with an error of one kind.

    Args:
        kind: A name in `ERRORS` or `NULLS`.
        size: Size of the error.
        dim: Number of parameters, d.
        seed: Chooses the parameters that are wrong.
    """

    kind: str
    size: float
    dim: int
    seed: int = 0

    @property
    def parameters(self) -> tuple[int, int]:
        """The parameter that is wrong, and its partner in a pair."""
        one = self.seed % self.dim
        return one, (one + 1) % self.dim

    def errors(
        self, num_pairs: int, num_posterior_samples: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return errors of truths ``(N, d)`` and draws ``(K, N, d)`` in σ, and xs."""
        xs = torch.randn(num_pairs, self.dim + 1, generator=generator)
        members = torch.randn(
            num_posterior_samples + 1, num_pairs, self.dim, generator=generator
        )
        for j in range(1, self.dim):  # neighbours are correlated
            members[..., j] = (
                _NEIGHBOURS * members[..., j - 1]
                + (1 - _NEIGHBOURS**2) ** 0.5 * members[..., j]
            )
        one, other = self.parameters
        problem = _Problem(xs, members[0], members[1:], generator, one, other)
        {**ERRORS, **NULLS}[self.kind].change(problem, self.size)
        return problem.truth, problem.draws, problem.xs

    def draws(
        self, num_pairs: int, num_posterior_samples: int, generator: torch.Generator
    ) -> Draws:
        """Return pairs from p and draws from q; see `Task.draws`."""
        truth, draws, xs = self.errors(num_pairs, num_posterior_samples, generator)
        scale = 0.2 + torch.arange(self.dim) % 3
        # Lognormal xs are large, and nothing should be lost in float32.
        mean = (xs[:, :-1] + 0.5 * xs[:, 1:]).clamp(-10, 10)
        return Draws(mean + scale * truth, xs, mean + scale * draws)


# Kinds of error: what each does


def _shift_one(problem: _Problem, size: float) -> None:
    problem.draws[..., problem.one] += size


def _shift_all(problem: _Problem, size: float) -> None:
    problem.draws += size


def _width_one(problem: _Problem, size: float) -> None:
    problem.draws[..., problem.one] *= size


def _width_all(problem: _Problem, size: float) -> None:
    problem.draws *= size


def _correlate(problem: _Problem, values: Tensor, size: Tensor | float) -> Tensor:
    """Return independent errors, but for one pair of parameters."""
    free = problem.normal(*values.shape)
    one, other = problem.one, problem.other
    size = torch.as_tensor(size)
    free[..., other] = (
        size * free[..., one] + (1 - size.square()).sqrt() * free[..., other]
    )
    return free


def _correlation_missed(problem: _Problem, size: float) -> None:
    problem.truth = _correlate(problem, problem.truth, size)
    problem.draws = problem.normal(*problem.draws.shape)


def _correlation_invented(problem: _Problem, size: float) -> None:
    problem.truth = problem.normal(*problem.truth.shape)
    problem.draws = _correlate(problem, problem.draws, size)


def _correlation_follows_x(problem: _Problem, size: float) -> None:
    signs = problem.xs[:, 0].sign()
    problem.truth = _correlate(problem, problem.truth, size * signs)
    problem.draws = problem.normal(*problem.draws.shape)


def _set_apart(problem: _Problem) -> None:
    """Make one parameter independent of the others, under p and under q.

    Without this, a kind that gives the parameter another law would change its
    correlations as well.
    """
    problem.truth[:, problem.one] = problem.normal(len(problem.xs))
    problem.draws[..., problem.one] = problem.normal(*problem.draws.shape[:2])


def _in_two_modes(problem: _Problem, errors: Tensor, depth: float | Tensor) -> None:
    """Put one parameter's errors into modes at ±depth, with variance 1, in place."""
    own = errors[..., problem.one]
    sign = (problem.uniform(*own.shape) < 0.5) * 2.0 - 1
    errors[..., problem.one] = depth * sign + (1 - depth**2) ** 0.5 * own


def _two_modes(problem: _Problem, size: float) -> None:
    _set_apart(problem)
    _in_two_modes(problem, problem.truth, size)


def _two_modes_invented(problem: _Problem, size: float) -> None:
    _set_apart(problem)
    _in_two_modes(problem, problem.draws, size)


def _modes_follow_x(problem: _Problem, size: float) -> None:
    """Modes far apart where x[0] is high, near where it is low."""
    _set_apart(problem)
    depth = size * torch.sigmoid(2 + 2 * problem.xs[:, 0])
    _in_two_modes(problem, problem.truth, depth)


def _three_modes(problem: _Problem, size: float) -> None:
    _set_apart(problem)
    place = torch.randint(3, (len(problem.xs),), generator=problem.generator) - 1.0
    own = problem.truth[:, problem.one]
    mode = place * 1.5**0.5  # of variance 1
    problem.truth[:, problem.one] = size * mode + (1 - size**2) ** 0.5 * own


def _missing_mode(problem: _Problem, size: float) -> None:
    _set_apart(problem)
    far = problem.uniform(len(problem.xs)) < size
    problem.truth[:, problem.one] += _GAP * far


def _gamma(problem: _Problem, shape: int) -> Tensor:
    """Return standardised gamma variates, of skewness 2 / √shape."""
    sums = -problem.uniform(shape, len(problem.xs)).log().sum(dim=0)
    return (sums - shape) / shape**0.5


def _skewed(problem: _Problem, size: float) -> None:
    _set_apart(problem)
    problem.truth[:, problem.one] = _gamma(problem, round(4 / size**2))


def _skew_follows_x(problem: _Problem, size: float) -> None:
    _set_apart(problem)
    values = _gamma(problem, round(4 / size**2))
    problem.truth[:, problem.one] = problem.xs[:, 0].sign() * values


def _one_tail(problem: _Problem, size: float) -> None:
    """An exponential tail, in a Gaussian with the right mean and variance."""
    _set_apart(problem)
    tail = -2 * problem.uniform(len(problem.xs)).log()
    far = problem.uniform(len(problem.xs)) < size
    mean, variance = 2 * size, 1 + 8 * size - 4 * size**2
    own = problem.truth[:, problem.one] + far * tail
    problem.truth[:, problem.one] = (own - mean) / variance**0.5


def _student(problem: _Problem, shape: tuple[int, ...], freedom: int) -> Tensor:
    """Return factors that make Gaussian errors t distributed, with variance 1."""
    squares = problem.normal(freedom, *shape).square().sum(dim=0)
    return ((freedom - 2) / squares).sqrt().unsqueeze(-1)


def _tails_missed(problem: _Problem, size: float) -> None:
    problem.truth *= _student(problem, problem.truth.shape[:1], round(1 / size))


def _tails_invented(problem: _Problem, size: float) -> None:
    problem.draws *= _student(problem, problem.draws.shape[:2], round(1 / size))


def _mean_follows_x(problem: _Problem, size: float) -> None:
    problem.draws[..., problem.one] += size * problem.xs[:, 0]


def _width_where(where: Callable[[Tensor], Tensor]) -> Change:
    def change(problem: _Problem, size: float) -> None:
        factor = torch.where(where(problem.xs[:, 0]), size, 1.0)
        problem.draws[..., problem.one] *= factor

    return change


def _corner(problem: _Problem, size: float) -> None:
    corner = (problem.xs[:, :2] > 0.3).all(dim=1)  # about 15% of the xs
    problem.draws[..., problem.one] += size * corner


def _blind_to_one(problem: _Problem, size: float) -> None:
    """p's errors follow x[0] and the rest; q knows their variance only."""
    _set_apart(problem)
    one, rest = problem.one, (1 + size**2) ** -0.5
    problem.truth[:, one] = rest * (problem.truth[:, one] + size * problem.xs[:, 0])


def _blind_to_all(problem: _Problem, size: float) -> None:
    rest = (1 + size**2) ** -0.5
    signal = problem.xs[:, :-1]
    problem.truth = rest * (problem.truth + size * signal)
    problem.draws = rest * (problem.draws + size * problem.normal(*problem.draws.shape))


ERRORS = {
    "one shifted": Error(_shift_one, {"shift"}, (0.4, 1.0)),
    "all shifted": Error(_shift_all, {"shift"}, (0.3, 0.8), 2),
    "one too wide": Error(_width_one, {"width"}, (1.4, 2.0)),
    "one too narrow": Error(_width_one, {"width"}, (0.7, 0.5)),
    "all too wide": Error(_width_all, {"width"}, (1.3, 2.0), 2),
    "all too narrow": Error(_width_all, {"width"}, (0.75, 0.5), 2),
    "correlation missed": Error(_correlation_missed, {"correlation"}, (0.5, 0.8), 2),
    "correlation invented": Error(
        _correlation_invented, {"correlation"}, (0.5, 0.8), 2
    ),
    "two modes merged": Error(_two_modes, {"shape"}, (0.85, 0.95)),
    "three modes merged": Error(_three_modes, {"shape"}, (0.95, 0.98)),
    "two modes invented": Error(_two_modes_invented, {"shape"}, (0.8, 0.9)),
    "modes follow x": Error(_modes_follow_x, {"shape", "shape with x"}, (0.9, 0.97)),
    "mode missing": Error(_missing_mode, {"missing"}, (0.15, 0.35)),
    "skewed": Error(_skewed, {"shape"}, (1.0, 2.0)),
    "one tail": Error(_one_tail, {"shape"}, (0.1, 0.25)),
    "tails missed": Error(_tails_missed, {"shape", "radial"}, (0.25, 1 / 3)),
    "tails invented": Error(_tails_invented, {"shape", "radial"}, (0.25, 1 / 3)),
    "mean follows x": Error(_mean_follows_x, {"shift with x"}, (0.4, 0.9)),
    "wide where x > 0": Error(
        _width_where(lambda x: x > 0), {"width with x"}, (1.7, 2.5)
    ),
    "narrow where x > 0": Error(
        _width_where(lambda x: x > 0), {"width with x"}, (0.6, 0.4)
    ),
    "wide at the ends of x": Error(
        _width_where(lambda x: x.abs() > 1), {"width with x"}, (2.0, 3.0)
    ),
    "shifted in a corner of x": Error(_corner, {"shift with x"}, (1.5, 2.5)),
    "correlation follows x": Error(
        _correlation_follows_x, {"correlation with x"}, (0.6, 0.9), 2, 5
    ),
    "skew follows x": Error(_skew_follows_x, {"shape with x"}, (1.0, 2.0)),
    "blind to one feature of x": Error(_blind_to_one, {"shift with x"}, (0.5, 1.0)),
    "blind to x": Error(_blind_to_all, {"shift with x"}, (0.5, 1.0)),
}


# Correct posteriors


_FARTHEST = 1e12


def _nothing(problem: _Problem, size: float) -> None:
    del problem, size


def _heavy(problem: _Problem, size: float) -> None:
    """Cauchy parameters and lognormal x."""
    problem.truth /= problem.normal(*problem.truth.shape)
    problem.draws /= problem.normal(*problem.draws.shape)
    for values in (problem.truth, problem.draws):  # a quotient may be infinite
        values.nan_to_num_(0.0).clamp_(-_FARTHEST, _FARTHEST)
    problem.xs = problem.xs.mul(2).exp()


def _clamped(problem: _Problem, size: float) -> None:
    problem.truth, problem.draws = (
        values.clamp(-0.5, 1.0) for values in (problem.truth, problem.draws)
    )


def _skewed_x(problem: _Problem, size: float) -> None:
    """Lognormal x on which the spread depends."""
    problem.xs = problem.xs.exp()
    spread = 1 + problem.xs[:, :1]
    problem.truth, problem.draws = problem.truth * spread, problem.draws * spread


def _modes_known(problem: _Problem, size: float) -> None:
    _two_modes(problem, 0.9)
    _in_two_modes(problem, problem.draws, 0.9)


NULLS = {
    "none": Error(_nothing, set(), (0.0, 0.0)),
    "none, heavy tails": Error(_heavy, set(), (0.0, 0.0)),
    "none, clamped": Error(_clamped, set(), (0.0, 0.0)),
    "none, skewed x": Error(_skewed_x, set(), (0.0, 0.0)),
    "none, two modes": Error(_modes_known, set(), (0.0, 0.0)),
}
