r"""Simulators of many kinds of data, with draws θ' that are wrong by a known rule.

The data side of the test takes θ' ~ q(θ | x) at an observation x and asks whether x
looks like replicates x' ~ p(x' | θ'). It needs one θ' per x and no density, so any rule
that makes θ' from the pair (θ*, x) serves as a wrong posterior, and θ' = θ* is exact:
(θ*, x) is a pair like any other.

Parameters are uniform on the unit cube everywhere. ``SIMULATORS`` has the simulators by
name; they are not among the published problems of the sbi benchmark. ``ERRORS`` has the
rules. Wherever θ' leaves the cube it is reflected at the cube's faces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from sbi_colt.draws import Draws

__all__ = ["ERRORS", "SIMULATORS", "SMALL_ERRORS", "Simulator", "predictive_draws"]

SMALL_ERRORS = ("wide", "one wide", "nearest", "shift", "narrow")
_NUM_REFERENCES = 2000  # simulations among which a nearest one is looked for


@dataclass(frozen=True)
class Simulator:
    """A simulator of data from parameters in the unit cube."""

    dim: int  # number of parameters, d
    x_shape: tuple[int, ...]
    simulate: Callable[[Tensor, torch.Generator], Tensor]  # (n, d) -> (n, *x_shape)
    sizes: tuple[float, ...] = ()  # of `SMALL_ERRORS`: most have power 0.1 to 0.95

    def __call__(self, thetas: Tensor, generator: torch.Generator) -> Tensor:
        """Return data with shape ``(n, D)``, flattened."""
        return self.simulate(thetas, generator).reshape(len(thetas), -1)

    def prior(self, num: int, generator: torch.Generator) -> Tensor:
        """Return parameters from the prior, with shape ``(num, d)``."""
        return torch.rand(num, self.dim, generator=generator)


def predictive_draws(
    simulator: Simulator,
    error: str,
    size: float,
    num_pairs: int,
    num_replicates: int,
    generator: torch.Generator,
) -> Draws:
    """Return the data side's bags: x in the place of θ, θ' in the place of x.

    The error is a name in `ERRORS`. Its size is in units of the cube's edge, or the
    share of the pairs that are wrong ("nearest" and "narrow"); the blind errors have no
    size.
    """
    thetas = simulator.prior(num_pairs, generator)
    xs = simulator(thetas, generator)
    primes = ERRORS[error](simulator, thetas, xs, size, generator)
    repeated = primes.repeat(num_replicates, 1)  # (M n, d)
    replicates = simulator(repeated, generator).reshape(num_replicates, *xs.shape)
    return Draws(xs, primes, replicates)


def _reflected(thetas: Tensor) -> Tensor:
    """Return parameters reflected at the faces of the unit cube."""
    folded = thetas.remainder(2)
    return torch.minimum(folded, 2 - folded)


def _wide(simulator, thetas, xs, size, generator) -> Tensor:
    """θ' = θ* + Gaussian noise: too wide around the truth in all parameters."""
    return _reflected(thetas + size * torch.randn(thetas.shape, generator=generator))


def _one_wide(simulator, thetas, xs, size, generator) -> Tensor:
    """Too wide in the last parameter alone."""
    changed = thetas.clone()
    changed[:, -1] += size * torch.randn(len(thetas), generator=generator)
    return _reflected(changed)


def _one_blind(simulator, thetas, xs, size, generator) -> Tensor:
    """The last parameter from the prior, the others true."""
    last = simulator.prior(len(thetas), generator)[:, -1:]
    return torch.cat([thetas[:, :-1], last], dim=1)


def _nearest(simulator, thetas, xs, size, generator, num_averaged=1) -> Tensor:
    """θ' of the simulation whose standardised x is nearest, in a share of the pairs."""
    references = simulator.prior(_NUM_REFERENCES, generator)
    simulated = simulator(references, generator)
    scale = simulated.std(dim=0).clamp_min(1e-6)
    gaps = torch.cdist(xs / scale, simulated / scale)
    nearest = gaps.topk(num_averaged, largest=False).indices  # (n, k)
    wrong = torch.rand(len(thetas), 1, generator=generator) < size
    return torch.where(wrong, references[nearest].mean(dim=1), thetas)


# From the simulator, θ*, x, a size and a generator to θ'.
ERRORS: dict[str, Callable[..., Tensor]] = {
    "none": lambda simulator, thetas, xs, size, generator: thetas,
    "wide": _wide,
    "one wide": _one_wide,
    # Every parameter too large by the size.
    "shift": lambda simulator, thetas, xs, size, generator: _reflected(thetas + size),
    # From the prior, whatever x is.
    "blind": lambda simulator, thetas, xs, size, generator: simulator.prior(
        len(thetas), generator
    ),
    "one blind": _one_blind,
    "nearest": _nearest,
    # The mean of several such θ': nearly the posterior mean, so too narrow.
    "narrow": partial(_nearest, num_averaged=10),
}


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator)


def _exponential(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return -torch.rand(shape, generator=generator).clamp_min(1e-7).log()


def _linear(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """Ten correlated numbers, four of which depend on three parameters."""
    slopes = torch.zeros(3, 10)
    slopes[0, 0], slopes[1, 2], slopes[2, 5] = 6.0, 4.0, 3.0
    slopes[0, 7], slopes[1, 7] = 3.0, -3.0
    noise = _normal((len(thetas), 10), generator)
    return thetas @ slopes + noise + 0.7 * noise.roll(1, dims=1)


def _student(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """Twelve numbers from a t distribution with 2 degrees of freedom."""
    chi = 2 * _exponential((len(thetas), 12), generator)
    noise = _normal((len(thetas), 12), generator) / (chi / 2).sqrt()
    return 4 * thetas[:, :1] + (3 * thetas[:, 1:] - 2).exp() * noise


def _bent(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """Two numbers on a bent curve, with noise that grows along it."""
    first, second = 4 * thetas.T - 2
    noise = _normal((len(thetas), 2), generator)
    mean = torch.stack([first, second + first.square()], dim=1)
    return mean + (0.1 + 0.2 * thetas[:, :1]) * noise


def _moving_average(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """A moving average of order 2 with 100 points."""
    noise = _normal((len(thetas), 102), generator)
    first, second = 2 * thetas[:, :1] - 1, 1.6 * thetas[:, 1:] - 0.8
    return noise[:, 2:] + first * noise[:, 1:-1] + second * noise[:, :-2]


def _counts(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """Poisson counts along an exponential curve, from 0 to about a million."""
    times = torch.linspace(0, 1, 20)
    start, slope, bump = thetas.T.unsqueeze(2)  # (n, 1) each
    rate = -1 + 6 * start + 8 * slope * times + bump * torch.sin(9 * times)
    # Overdispersed a little, so that large counts do not tell everything.
    noise = 0.15 * _normal((len(thetas), 20), generator)
    return torch.poisson((rate + noise).exp(), generator=generator)


def _blob(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """An image of 16 × 16 pixels with a blob and noise."""
    grid = torch.linspace(0, 1, 16)
    across, down, width, height = thetas.reshape(-1, 4, 1, 1).unbind(dim=1)
    gaps = (grid - across).square() + (grid.reshape(16, 1) - down).square()
    image = (0.5 + 2 * height) * (-gaps / (0.05 + 0.15 * width).square()).exp()
    return image + 0.5 * _normal((len(thetas), 16, 16), generator)


def _trials(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """Thirty trials, each a choice and a time; their order means nothing."""
    bias, speed, spread = thetas.T.unsqueeze(2)
    noise = _normal((len(thetas), 30), generator)
    choice = torch.rand(len(thetas), 30, generator=generator) < 0.1 + 0.8 * bias
    times = (1 - 2 * speed + 0.8 * choice * speed + (0.2 + spread) * noise).exp()
    return torch.stack([choice.float(), times], dim=2)


def _g_and_k(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """Fifty ordered numbers from a g-and-k distribution."""
    normal = _normal((len(thetas), 50), generator).sort(dim=1).values
    middle, scale, skew, tails = thetas.T.unsqueeze(2)
    bent = 1 + 0.8 * torch.tanh(1.5 * skew * normal)
    return 4 * middle + (0.3 + scale) * bent * (1 + normal.square()) ** tails * normal


def _fitzhugh(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """FitzHugh–Nagumo: two series of 40 points with multiplicative noise."""
    current, slope, speed = 0.2 + 0.8 * thetas[:, 0], thetas[:, 1], thetas[:, 2]
    voltage = torch.full((len(thetas),), -1.0)
    recovery, step, path = torch.ones(len(thetas)), 0.1, []
    for number in range(400):
        change = voltage - voltage**3 / 3 - recovery + current
        back = (0.04 + 0.12 * speed) * (voltage + 0.7 - (0.3 + slope) * recovery)
        voltage, recovery = voltage + step * change, recovery + step * back
        if number % 10 == 9:
            path.append(torch.stack([voltage, recovery], dim=1))
    series = torch.stack(path, dim=2)  # (n, 2, 40)
    return series * (1 + 0.4 * _normal(tuple(series.shape), generator))


def _menten(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """A Michaelis–Menten curve at 15 concentrations, with log-normal noise."""
    doses = torch.logspace(-1, 2, 15)
    top, half, spread = thetas.T.unsqueeze(2)
    curve = (3 * top).exp() * doses / (doses + (5 * half - 1).exp())
    noise = _normal((len(thetas), 15), generator)
    return curve * ((0.1 + 0.4 * spread) * noise).exp()


def _queue(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """Fifty times between departures from a queue with one server."""
    shape = (len(thetas), 50)
    least, spread = thetas[:, :1], 2 * thetas[:, 1:2]
    service = least + spread * torch.rand(shape, generator=generator)
    waits = _exponential(shape, generator) / (0.2 + thetas[:, 2:])
    arrived, left = torch.zeros(len(thetas)), torch.zeros(len(thetas))
    gaps = []
    for wait, time in zip(waits.T, service.T, strict=True):
        arrived = arrived + wait
        now = torch.maximum(arrived, left) + time
        gaps.append(now - left)
        left = now
    return torch.stack(gaps, dim=1)


def _volatility(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """Stochastic volatility: 150 returns whose log variance is autoregressive."""
    level, memory = 4 * thetas[:, 0] - 2, 0.98 * thetas[:, 1]
    state, series = torch.zeros(len(thetas)), []
    for _ in range(150):
        shock = _normal((2, len(thetas)), generator)
        state = memory * state + (1 - memory.square()).sqrt() * shock[0]
        series.append((level / 2 + state).exp() * shock[1])
    return torch.stack(series, dim=1)


def _waves(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """A wave of unknown phase: 200 points, noise and a trend."""
    times = torch.linspace(0, 1, 200)
    pitch, height, trend = thetas.T.unsqueeze(2)
    phase = 2 * math.pi * torch.rand(len(thetas), 1, generator=generator)
    wave = (0.3 + height) * torch.sin(2 * math.pi * (3 + 6 * pitch) * times + phase)
    return wave + 2 * trend * times + 0.7 * _normal((len(thetas), 200), generator)


def _pendulum(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """A damped pendulum: 60 angles, with noise that grows with the angle."""
    length, damping, start = thetas[:, 0] + 0.5, thetas[:, 1], 0.5 + 2 * thetas[:, 2]
    angle, speed, step, path = start, torch.zeros(len(thetas)), 0.05, []
    for number in range(240):
        speed = speed - step * (angle.sin() / length + 0.5 * damping * speed)
        angle = angle + step * speed
        if number % 4 == 3:
            path.append(angle)
    series = torch.stack(path, dim=1)
    noise = _normal((2, *series.shape), generator)
    return series * (1 + 0.2 * noise[0]) + 0.05 * noise[1]


def _rings(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """An image of 12 × 12 photon counts: a ring over a background."""
    grid = torch.linspace(-1, 1, 12)
    radius, light, background = thetas.reshape(-1, 3, 1, 1).unbind(dim=1)
    gaps = (grid.square() + grid.square().reshape(12, 1)).sqrt() - 0.2 - 0.6 * radius
    rate = (1 + 9 * light) * (-(gaps / 0.2).square()).exp() + 0.2 + 2 * background
    return torch.poisson(rate, generator=generator)


def _mixed(thetas: Tensor, generator: torch.Generator) -> Tensor:
    """Six summaries of different kinds: counts, shares, a log-normal, a t."""
    first, second, third, fourth = thetas.T
    normal = _normal((3, len(thetas)), generator)
    return torch.stack(
        [
            torch.poisson((1 + 6 * first).exp(), generator=generator),
            torch.poisson(5 * second + 5 * first, generator=generator),
            torch.sigmoid(4 * second - 2 + 0.5 * normal[0]),
            (4 * third + 0.3 * normal[1]).exp(),
            2 * fourth + 0.3 * normal[2] / _exponential((len(thetas),), generator),
            (torch.rand(len(thetas), generator=generator) < fourth).float(),
        ],
        dim=1,
    )


SIMULATORS: dict[str, Simulator] = {
    "linear": Simulator(3, (10,), _linear, (0.1, 0.3, 0.6, 0.05, 0.6)),
    "student": Simulator(2, (12,), _student, (0.08, 0.12, 0.3, 0.02, 0.25)),
    "bent": Simulator(2, (2,), _bent, (0.02, 0.05, 1.0, 0.01, 0.35)),
    "moving average": Simulator(
        2, (100,), _moving_average, (0.05, 0.1, 0.15, 0.05, 0.12)
    ),
    "counts": Simulator(3, (20,), _counts, (0.01, 0.1, 0.2, 0.003, 0.2)),
    "blob": Simulator(4, (16, 16), _blob, (0.05, 0.2, 0.4, 0.035, 0.3)),
    "trials": Simulator(3, (30, 2), _trials, (0.05, 0.1, 0.2, 0.03, 0.15)),
    "g-and-k": Simulator(4, (50,), _g_and_k, (0.03, 0.15, 0.6, 0.015, 0.3)),
    "fitzhugh": Simulator(3, (2, 40), _fitzhugh, (0.015, 0.03, 0.2, 0.006, 0.3)),
    "menten": Simulator(3, (15,), _menten, (0.015, 0.3, 0.2, 0.02, 0.25)),
    "queue": Simulator(3, (50,), _queue, (0.05, 0.1, 0.1, 0.02, 0.12)),
    "volatility": Simulator(2, (150,), _volatility, (0.12, 0.3, 0.2, 0.06, 0.25)),
    "waves": Simulator(3, (200,), _waves, (0.04, 0.05, 0.2, 0.015, 0.2)),
    "pendulum": Simulator(3, (60,), _pendulum, (0.008, 0.02, 0.15, 0.004, 0.2)),
    "rings": Simulator(3, (12, 12), _rings, (0.025, 0.07, 0.18, 0.013, 0.15)),
    "mixed": Simulator(4, (6,), _mixed, (0.025, 0.4, 0.18, 0.01, 0.2)),
}
