r"""Bags whose members are not equally likely to be the truth, made into bags that are.

Pairs that were simulated from a proposal π̃ instead of the prior π have weights
w = π̃ / π: under q = p, given the bag as a set, member j is the truth with probability
:math:`w_j / \sum_m w_m` (weighted exchangeability; Tibshirani et al. 2019). Thinning
takes the weights away: with a limit c for each bag, a draw is kept with probability
min(w, c) / c, and the truth with probability min(1, c / w*).

*Why it is exact.* Let c be any function of the bag as a set. The probability that j is
the truth and S is the set of members that are kept is

.. math:: \frac{w_j}{\sum w} \min\Bigl(1, \frac{c}{w_j}\Bigr)
          \prod_{m \in S \setminus j} \frac{\min(w_m, c)}{c}
          \prod_{m \notin S} \Bigl(1 - \frac{\min(w_m, c)}{c}\Bigr)
          \;\propto\; \prod_{m \in S} \min(w_m, c) \prod_{m \notin S} (\dots) ,

the same for every j in S. So, given S, all of its members are equally likely to be the
truth, and every test of exchangeable bags applies to S as it stands.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["effective_number", "thin"]

# Share of the weight of a bag that its members below the limit c have: a larger share
# keeps more truths and fewer draws.
_SHARE_BELOW = 0.9


def thin(log_weights: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return which truths and which draws are kept.

    Args:
        log_weights: Logarithms of weights, with shape ``(S + 1, N)``, the truth first.
        generator: CPU generator.

    Returns:
        Booleans with shape ``(N,)`` and ``(S, N)``.
    """
    log_weights = log_weights.cpu().double()
    limit = _limits(log_weights)  # (N,)
    chance = torch.rand(log_weights.shape, generator=generator, dtype=torch.float64)
    truths = chance[0] < (limit - log_weights[0]).exp()
    draws = chance[1:] < (log_weights[1:] - limit).exp()
    return truths, draws


def effective_number(log_weights: Tensor) -> Tensor:
    """Return Kish's effective size of each bag, (Σw)² / Σw², with shape ``(N,)``.

    Example:
        >>> effective_number(torch.zeros(4, 2)).tolist()
        [4.0, 4.0]
    """
    shares = log_weights.double().softmax(dim=0)
    return 1 / shares.square().sum(dim=0)


def _limits(log_weights: Tensor) -> Tensor:
    """Return log c of each bag: the weighted quantile of its log weights, ``(N,)``."""
    ordered = log_weights.sort(dim=0).values
    shares = ordered.softmax(dim=0).cumsum(dim=0)
    place = (shares < _SHARE_BELOW).sum(dim=0).clamp_max(len(ordered) - 1)
    return ordered.gather(0, place.unsqueeze(0))[0]
