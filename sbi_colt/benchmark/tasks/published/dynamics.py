r"""Two populations that act on each other, as in an epidemic or in a food chain.

.. math::
    \frac{d}{dt} \log u = a_1 + b_1 v, \qquad \frac{d}{dt} \log v = a_2 + b_2 u

solved by the classical Runge–Kutta method of fourth order. With logarithms the
populations stay positive, and an exponential rise is solved without error.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["log_populations"]


def log_populations(
    growth: Tensor, coupling: Tensor, start: Tensor, times: int, interval: float
) -> Tensor:
    """Return log u and log v at 0, one interval, two intervals and so on.

    Args:
        growth: The rates a, with shape ``(2, N)``.
        coupling: The rates b, with shape ``(2, N)``.
        start: log u and log v at time 0, with shape ``(2,)``.
        times: Number T of times to return, the first of which is 0.
        interval: Time between two of them; each is crossed in 100 steps.

    Returns:
        The solutions, with shape ``(T, 2, N)``.
    """

    def slope(state: Tensor) -> Tensor:
        return torch.addcmul(growth, coupling, state.exp().flip(0))

    step = interval / 100
    state = start.to(growth).unsqueeze(1).expand_as(growth)
    found = [state]
    for _ in range(times - 1):
        for _ in range(100):
            k1 = slope(state)
            k2 = slope(torch.add(state, k1, alpha=step / 2))
            k3 = slope(torch.add(state, k2, alpha=step / 2))
            k4 = slope(torch.add(state, k3, alpha=step))
            state = state + (k1 + 2 * (k2 + k3) + k4) * (step / 6)
        found.append(state)
    return torch.stack(found)
