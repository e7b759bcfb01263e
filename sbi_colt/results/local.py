"""Where the posterior is wrong: regions of θ, and verdicts near one observation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sbi_colt.arrays import as_tensor, check_finite
from sbi_colt.checks import check_integer, warn_caller
from sbi_colt.draws import Draws
from sbi_colt.probes import Bags, Probe
from sbi_colt.probes.coordinates import Frame, Scales
from sbi_colt.randomness import digest, generator_from, shuffle_draws
from sbi_colt.stats.intervals import wilson_interval
from sbi_colt.stats.nearness import nearness_weights
from sbi_colt.stats.ranks import RankTable

__all__ = ["Evidence", "LocalResult", "Localization"]

# Weights of neighbours held at once: 2**22 doubles are 32 MiB.
_CHUNK = 2**22


@dataclass(frozen=True, eq=False)
class Localization:
    """The ball whose masses under q and p differ most, for each of n xs.

    How much of q it holds was chosen on the training pairs, so that the masses under p
    are estimates without a choice made on the same data. Intervals are Wilson's, with
    Bonferroni's adjustment for the choice of the probe.

    Args:
        probe: Name of the probe that defines the ball: the one with the largest
            statistic.
        centres: Centres θ_l(x), with shape ``(n, d)``; for a probe without a centre,
            the member of the bag with the smallest score.
        radii: The largest score inside the ball, with shape ``(n,)``; `contains` tells
            which parameters lie inside.
        mass_q: Mass of the ball under q, the same at every x by construction.
        mass_p: Estimated mass under p, averaged over x.
        mass_p_interval: Confidence interval of ``mass_p``.
        sign: +1 where p has more mass in the ball than q, −1 where it has less.
        local_mass_p: Estimated mass under p near each x, from the nearest test pairs,
            with shape ``(n,)``; `CoLTResult.at` has an exact p-value.
        local_mass_p_interval: Its confidence interval for each x by itself, at the
            effective number of neighbours, with shape ``(n, 2)``.
        borrowed: For each x, whether the moments of the nearest test pair's bag stood
            in for those of draws at this x; with shape ``(n,)``.
    """

    probe: str
    centres: Tensor
    radii: Tensor
    mass_q: float
    mass_p: float
    mass_p_interval: tuple[float, float]
    sign: int
    local_mass_p: Tensor
    local_mass_p_interval: Tensor
    borrowed: Tensor
    _probe: Probe = field(repr=False)
    _frame: Frame = field(repr=False)
    _bags: Bags = field(repr=False)  # in the frame

    def contains(self, thetas: Any) -> Tensor:
        """Return which parameters lie in the ball of their x.

        Args:
            thetas: Parameters with shape ``(S, n, d)``, S for each x.

        Returns:
            Booleans with shape ``(S, n)``.
        """
        thetas = as_tensor(thetas, "thetas", lists=True).to(self.centres.device)
        if thetas.ndim != 3 or thetas.shape[1:] != self.centres.shape:
            raise ValueError(
                f"thetas: expected (S, {', '.join(map(str, self.centres.shape))}), "
                f"got {tuple(thetas.shape)}."
            )
        with torch.no_grad():
            points = self._frame.to_points(thetas.transpose(0, 1))
            scores = self._probe.scores(points, self._bags)  # (n, S)
        return (scores <= self.radii.unsqueeze(1)).T


@dataclass(frozen=True)
class LocalResult:
    """The verdict near one observation.

    Args:
        p_value: Exact p-value. Null: q(θ | x) = p(θ | x) at the nearest
            ``num_neighbours`` test xs; sample size ``num_effective``; resolution
            1 / (num_redraws + 1).
        distance: Largest weighted deviation of the ranks over all probes.
        probe: Name of the probe that shows it.
        num_neighbours: Test pairs that count.
        num_effective: Their effective number, given that nearer ones count for more.
        reach: Distance of the farthest that counts, in standardised x (or in the
            features of the embedding net).
    """

    p_value: float
    distance: float
    probe: str
    num_neighbours: int
    num_effective: float
    reach: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a result keeps of the test pairs to answer "where?"."""

    draws: Draws  # the test pairs
    truth: Tensor  # (N,), which member is the true parameter
    table: RankTable  # ranks of all members under each probe
    features: Tensor  # (N, F), of the test xs
    embed: Callable[[Tensor], Tensor]  # xs to features
    probe: Probe  # the leading one
    scales: Scales
    data_names: tuple[str, ...] = ()  # on the data side, of the columns of its bags

    @property
    def xs(self) -> Tensor:
        """The observations of the test pairs, with shape ``(N, …)``."""
        return self.draws.xs

    @property
    def members(self) -> Tensor:
        """The bags of the test pairs, with shape ``(N, K + 1, d)``."""
        return self.draws.bags(self.truth)

    def checked_neighbours(self, number: int | None) -> int:
        """Return how many test pairs count; by default a tenth, and at least 30."""
        if number is None:
            number = max(30, len(self.xs) // 10)
        number = check_integer("num_neighbours", number, least=1)
        return min(number, len(self.xs))

    def local_masses(
        self, inside: Tensor, xs: Tensor, num_neighbours: int, confidence: float
    ) -> tuple[Tensor, Tensor]:
        """Return the mass of the ball under p near each x, and Wilson's interval.

        Args:
            inside: 1 for each test pair whose truth lies in its ball, else 0, ``(N,)``.
            xs: Observations, with shape ``(n, …)``.
            num_neighbours: Test pairs behind each mass.
            confidence: Confidence of each interval.
        """
        points = self.embed(xs)
        step = max(1, _CHUNK // len(self.xs))
        masses, sizes = [], []
        for part in points.split(step):
            weights = nearness_weights(self.features, part, num_neighbours)
            weights = (weights / weights.sum(dim=1, keepdim=True)).cpu()  # (n, N)
            masses.append(weights @ inside)
            sizes.append(1 / weights.square().sum(dim=1))
        return torch.cat(masses), wilson_interval(
            torch.cat(masses), torch.cat(sizes), confidence
        )

    def warn_if_far(self, gaps: Tensor) -> None:
        """Warn where x_o, or θ on the data side, is far from all of the test pairs."""
        features = self.features.double()
        sample = features[:1000]  # enough to know how far apart neighbours are
        between = torch.cdist(sample, features)
        between[between == 0] = math.inf  # itself, and repeats
        usual = between.amin(dim=1)
        usual = usual[usual.isfinite()]
        if len(usual) and gaps.min() > 3 * usual.max():
            nearest, most = float(gaps.min()), float(usual.max())
            name, what = ("theta", "theta") if self.data_names else ("x_o", "x")
            more = "" if self.data_names else " diagnose(…, x_o=x_o) simulates near it."
            warn_caller(
                f"{name}: it is far from every test {what} (the nearest is at "
                f"{nearest:.2g}, test {what}s are at most {most:.2g} from their own "
                f"nearest), so no local verdict is possible here.{more}"
            )

    def checked_one(self, x_o: Any) -> Tensor:
        """Return one observation (θ on the data side) with a leading axis, or raise."""
        name = "theta" if self.data_names else "x_o"
        x_o = self.checked_xs(x_o, name, "1")
        if len(x_o) != 1:
            what = "parameter" if self.data_names else "observation"
            raise ValueError(f"{name}: expected one {what}, got {len(x_o)}.")
        return x_o

    def checked_xs(self, xs: Any, name: str, number: str = "n") -> Tensor:
        """Return observations like the test xs, with shape ``(n, …)``, or raise."""
        shape = tuple(self.xs.shape[1:])
        xs = as_tensor(xs, name, lists=True).to(self.xs)
        if tuple(xs.shape) == shape:
            xs = xs.unsqueeze(0)
        if xs.ndim == 0 or tuple(xs.shape[1:]) != shape or not len(xs):
            expected = ", ".join(map(str, (number, *shape)))
            raise ValueError(f"{name}: expected ({expected}), got {tuple(xs.shape)}.")
        check_finite(xs, name)
        return xs

    def bags_at(self, xs: Tensor, samples: Any) -> tuple[Tensor, Tensor]:
        """Return bags ``(n, M, d)`` at xs, and whether each is that of another x."""
        if samples is None:
            gaps = torch.cdist(self.embed(xs).double(), self.features.double())
            nearest = gaps.argmin(dim=1)  # (n,)
            own = (self.xs[nearest] == xs).reshape(len(xs), -1).all(dim=1)
            rows, places = torch.unique(nearest, return_inverse=True)
            few = self.draws.select(rows).bags(self.truth[rows])
            return few[places], ~own.cpu()
        samples = as_tensor(samples, "samples").to(self.draws.samples)
        expected = (len(xs), self.draws.dim)
        if samples.ndim != 3 or samples.shape[1:] != expected or not len(samples):
            raise ValueError(
                f"samples: expected (S, {expected[0]}, {expected[1]}), "
                f"got {tuple(samples.shape)}."
            )
        check_finite(samples, "samples")
        samples = samples.clone()  # the caller's own keep their order
        shuffle_draws(samples, generator_from(0, "localize", digest(xs)))
        return samples.transpose(0, 1), torch.zeros(len(xs), dtype=torch.bool)
