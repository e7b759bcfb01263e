"""What a test returns: frozen dataclasses that hold numbers, no sentences."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sbi_colt.config import CoLTConfig
from sbi_colt.coordinates import Frame, Scales, make_frame
from sbi_colt.localization import Probe
from sbi_colt.randomness import digest, generator_from
from sbi_colt.testing import (
    ks_statistic,
    nearness_weights,
    redraw_statistics,
    redrawn_p_value,
    take_members,
    wilson_interval,
)
from sbi_colt.training import History

__all__ = [
    "CoLTResult",
    "Evidence",
    "LocalResult",
    "Localization",
    "ProbeResult",
    "TestResult",
]

# Weights of neighbours held at once: 2**22 doubles are 32 MiB.
_CHUNK = 2**22


@dataclass(frozen=True, eq=False)
class TestResult:
    """The outcome of one diagnostic.

    Args:
        name: The method's name.
        p_value: Its p-value, of a null hypothesis that q(θ | x) = p(θ | x) implies.
        statistic: Its test statistic.
        ranks: Its ranks where it has any, with shape ``(N,)`` or ``(N, d)``.
        details: Further numbers, ready for JSON.

    Example:
        >>> TestResult("mine", p_value=0.2, statistic=1.5)
        TestResult(name='mine', p_value=0.2, statistic=1.5)
    """

    __test__ = False  # not a test case for pytest to collect

    name: str
    p_value: float
    statistic: float
    ranks: Tensor | None = field(default=None, repr=False)
    details: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """One probe's part in a test.

    Args:
        name: The probe's name.
        statistic: Kolmogorov–Smirnov statistic of its ranks.
        p_value: Exact p-value of this probe alone, not adjusted for the others. Null:
            q(θ | x) = p(θ | x); sample size ``num_test``; continuous.
        distance: Estimate of its deviation sup|F_U − id|; equals the statistic.
        distance_lower: Lower bound of that deviation, simultaneous over all probes.
        level: The level u at which F_U − id deviated most on the training pairs: a
            choice made before any test pair was seen.
        sign: Its sign there.
        ranks: Randomised ranks of the truth, with shape ``(num_test,)``.
    """

    name: str
    statistic: float
    p_value: float
    distance: float
    distance_lower: float
    level: float
    sign: int
    ranks: Tensor = field(repr=False)


@dataclass(frozen=True, eq=False)
class Localization:
    """The ball whose masses under q and p differ most, for each of n xs.

    How much of q it holds was chosen on the training pairs, so that the masses under p
    are estimates without a choice made on the same data. Intervals are Wilson's, with
    Bonferroni's adjustment for the choice of the probe.

    Args:
        probe: Name of the probe it belongs to, that with the largest statistic.
        centres: Centres θ_l(x), with shape ``(n, d)``; of a probe that has none, the
            draw with the smallest number.
        radii: Radii in the probe's metric, the largest number of the probe inside, with
            shape ``(n,)``; `contains` tells which parameters that means.
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
    _bags: Tensor = field(repr=False)  # (n, M, d), in the frame
    _xs: Tensor = field(repr=False)  # (n, …), as the probe sees them

    def contains(self, thetas: Any) -> Tensor:
        """Return which parameters lie in the ball of their x.

        Args:
            thetas: Parameters with shape ``(S, n, d)``, S for each x.

        Returns:
            Booleans with shape ``(S, n)``.
        """
        thetas = _tensor(thetas, "thetas").to(self.centres.device)
        if thetas.ndim != 3 or thetas.shape[1:] != self.centres.shape:
            raise ValueError(
                f"thetas: expected (S, {', '.join(map(str, self.centres.shape))}), "
                f"got {tuple(thetas.shape)}."
            )
        with torch.no_grad():
            points = self._frame.to_points(thetas.transpose(0, 1))
            scores = self._probe.scores(points, self._bags, self._xs)  # (n, S)
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

    members: Tensor  # (N, K + 1, d), the bags
    truth: Tensor  # (N,), which member is the true parameter
    xs: Tensor  # (N, …)
    tables: Tensor  # (P, N, K + 1), ranks of all members under each probe
    features: Tensor  # (N, F), of the test xs
    embed: Callable[[Tensor], Tensor]  # xs to features
    probe: Probe  # the leading one
    scales: Scales


@dataclass(frozen=True, eq=False)
class CoLTResult:
    r"""The outcome of a conditional localization test.

    With n test pairs, P probes and their ranks' distribution functions F̂_p,

    .. math:: D = \max_p \sup_u |F̂_p(u) - u|, \qquad
        D_{lower} = \max(0, D - \sqrt{\log(2 P / δ) / (2 n)}),

    where the second is a bound of the averaged conditionally localized distance that
    holds with confidence 1 − δ (Dvoretzky, Kiefer, Wolfowitz and Massart).

    Args:
        p_value: p-value of the null hypothesis q(θ | x) = p(θ | x) for almost every x;
            exact for every N and K. Sample size ``num_test``. One probe: of its
            Kolmogorov–Smirnov statistic, continuous. Several: of their pooled
            Anderson–Darling statistics, by re-drawing the bags, with a resolution of
            1 / (num_redraws + 1). Of `sbi_colt.run_colt`: combined from the two below;
            sample size ``num_train + num_test``.
        test_p_value: That of the test pairs by themselves.
        training_p_value: That of the untrained probes on the training pairs by
            themselves, where they were looked at, else `None`.
        statistic: Largest Kolmogorov–Smirnov statistic over the probes.
        distance: Estimate of the averaged conditionally localized distance: the share
            of posterior mass misplaced in the worst ball that was found. Noise raises
            it by about 1/√num_test; an error that no probe fits lowers it. The lower
            bound holds in any case.
        distance_lower: Certified lower bound of that distance, at
            ``config.confidence``.
        ranks: Randomised ranks of the leading probe, with shape ``(num_test,)``.
        probes: One entry per probe, in the order of the configuration.
        num_train: Pairs the probes were trained on.
        num_test: Pairs they were tested on.
        num_posterior_samples: Draws per test pair, K.
        config: The configuration.
        seed: The seed.
        mask: Which of the pairs handed in were kept (xs without NaN or infinity).
        index: Where each test pair stood among the pairs handed in: ``ranks[i]`` is
            that of ``thetas[index[i]]``; with shape ``(num_test,)``.
        history: How each probe was trained.
        evidence: What `localize` and `at` work on: test bags, probes and scales.

    Example:
        >>> from sbi_colt import run_colt
        >>> generator = torch.Generator().manual_seed(0)
        >>> thetas = torch.randn(300, 1, generator=generator)
        >>> xs = thetas + torch.randn(300, 1, generator=generator)
        >>> def too_wide(xs, num):  # exact: N(x / 2, 1 / 2)
        ...     return xs / 2 + 1.5 * torch.randn(num, *xs.shape)
        >>> result = run_colt(
        ...     thetas, xs, too_wide, 50, seed=0, show_progress_bar=False
        ... )
        >>> result.ranks.shape == (result.num_test,)
        True
        >>> 0 < result.distance_lower < result.distance
        True
        >>> result.at(torch.zeros(1)).p_value <= 0.05
        True
        >>> result.localize(xs[:3]).centres.shape
        torch.Size([3, 1])
    """

    p_value: float
    test_p_value: float
    training_p_value: float | None
    statistic: float
    distance: float
    distance_lower: float
    ranks: Tensor = field(repr=False)
    probes: tuple[ProbeResult, ...]
    num_train: int
    num_test: int
    num_posterior_samples: int
    config: CoLTConfig = field(repr=False)
    seed: int
    mask: Tensor = field(repr=False)
    index: Tensor = field(repr=False)
    history: dict[str, History] = field(repr=False)
    evidence: Evidence = field(repr=False)

    @property
    def leading(self) -> ProbeResult:
        """The probe with the largest statistic."""
        return max(self.probes, key=lambda probe: probe.statistic)

    @property
    def _confidence(self) -> float:
        """Confidence of each probe's interval, so that the leading one's holds."""
        return 1 - (1 - self.config.confidence) / len(self.probes)

    def localize(
        self, xs: Any = None, samples: Any = None, num_neighbours: int | None = None
    ) -> Localization:
        """Return the ball where q and p differ most, for each x.

        Args:
            xs: Observations with shape ``(n, …)``; the test pairs' own by default.
            samples: Posterior draws at these xs, with shape ``(S, n, d)``. Without
                them, those of the nearest test pair stand in.
            num_neighbours: Test pairs behind each local mass, as in `at`.

        Returns:
            A `Localization`: centres, radii, and the masses under q and p.
        """
        evidence = self.evidence
        if xs is None and samples is not None:
            raise ValueError("samples: expected xs to go with them, got none.")
        if xs is None:
            xs, bags = evidence.xs, evidence.members
            borrowed = torch.zeros(len(xs), dtype=torch.bool)
        else:
            xs = self._checked_xs(xs, "xs")
            bags, borrowed = self._bags_at(xs, samples)
        level = self.leading.level
        share = (self.leading.ranks <= level).double().mean()
        mass_p = float(share)
        coordinates = evidence.probe.spec.coordinates
        with torch.no_grad():
            frame = make_frame(bags, coordinates, evidence.scales)
            network_xs = evidence.scales.network_xs(xs, coordinates)
            points = frame.to_points(bags)
            scores = evidence.probe(points, network_xs)
            inside = min(max(round(level * bags.shape[1]), 1), bags.shape[1])
            radii = scores.kthvalue(inside, dim=1).values  # (n,)
            centres = frame.to_theta(evidence.probe.locate(points, network_xs))
        low, high = wilson_interval(
            share.unsqueeze(0), torch.tensor([float(self.num_test)]), self._confidence
        )[0].tolist()
        local_mass_p, local_interval = self._local_masses(
            xs, level, self._checked_neighbours(num_neighbours)
        )
        return Localization(
            probe=self.leading.name,
            centres=centres,
            radii=radii,
            mass_q=level,
            mass_p=mass_p,
            mass_p_interval=(low, high),
            sign=1 if mass_p >= level else -1,
            local_mass_p=local_mass_p,
            local_mass_p_interval=local_interval,
            borrowed=borrowed,
            _probe=evidence.probe,
            _frame=frame,
            _bags=points,
            _xs=network_xs,
        )

    def at(self, x_o: Any, num_neighbours: int | None = None) -> LocalResult:
        """Return the verdict near one observation.

        Only the test pairs nearest to ``x_o`` count (in the features of the given
        embedding net, else in standardised x), the nearer the more. Their weights
        depend on xs alone, so re-drawing the bags gives an exact p-value. A warning
        says where ``x_o`` is far from all test pairs.

        Args:
            x_o: One observation, with the shape of one x or with a leading axis of 1.
            num_neighbours: Test pairs that count; by default a tenth of them, and at
                least 30. More give power, fewer are nearer.

        Returns:
            A `LocalResult`. Null hypothesis: q = p for almost every x near ``x_o``; the
            resolution of its p-value is 1 / (num_redraws + 1).
        """
        evidence = self.evidence
        x_o = self._checked_xs(x_o, "x_o")
        if len(x_o) != 1:
            raise ValueError(f"x_o: expected one observation, got {len(x_o)}.")
        num_neighbours = self._checked_neighbours(num_neighbours)
        point = evidence.embed(x_o)  # (1, F)
        gaps = torch.cdist(point.double(), evidence.features.double()).flatten()
        self._warn_if_far(gaps)
        weights = nearness_weights(evidence.features, point, num_neighbours)[0]
        observed = ks_statistic(take_members(evidence.tables, evidence.truth), weights)
        generator = generator_from(self.seed, "at", digest(x_o))
        null = redraw_statistics(
            evidence.tables,
            lambda ranks: ks_statistic(ranks, weights).amax(dim=-1),
            self.config.num_redraws,
            generator,
        )
        return LocalResult(
            p_value=redrawn_p_value(float(observed.max()), null, generator),
            distance=float(observed.max()),
            probe=self.probes[int(observed.argmax())].name,
            num_neighbours=num_neighbours,
            num_effective=float(weights.sum().square() / weights.square().sum()),
            reach=float(gaps.kthvalue(num_neighbours).values),
        )

    def _checked_neighbours(self, number: int | None) -> int:
        if number is None:
            number = max(30, self.num_test // 10)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(
                f"num_neighbours: expected an integer of at least 1, got {number!r}."
            )
        return min(number, self.num_test)

    def _local_masses(
        self, xs: Tensor, level: float, num_neighbours: int
    ) -> tuple[Tensor, Tensor]:
        """Return the mass of the ball under p near each x, and Wilson's interval."""
        inside = (self.leading.ranks <= level).double()  # (N,)
        points = self.evidence.embed(xs)
        step = max(1, _CHUNK // self.num_test)
        masses, sizes = [], []
        for part in points.split(step):
            weights = nearness_weights(self.evidence.features, part, num_neighbours)
            weights = (weights / weights.sum(dim=1, keepdim=True)).cpu()  # (n, N)
            masses.append(weights @ inside)
            sizes.append(1 / weights.square().sum(dim=1))
        return torch.cat(masses), wilson_interval(
            torch.cat(masses), torch.cat(sizes), self._confidence
        )

    def _warn_if_far(self, gaps: Tensor) -> None:
        features = self.evidence.features.double()
        sample = features[:1000]  # enough to know how far apart neighbours are
        between = torch.cdist(sample, features)
        between[between == 0] = math.inf  # itself, and repeats
        usual = between.amin(dim=1)
        usual = usual[usual.isfinite()]
        if len(usual) and gaps.min() > 3 * usual.max():
            nearest, most = float(gaps.min()), float(usual.max())
            warnings.warn(
                f"x_o: it is far from every test x (the nearest is at {nearest:.2g}, "
                f"test xs are at most {most:.2g} from their own nearest), so this "
                "verdict is about other xs.",
                stacklevel=3,
            )

    def _checked_xs(self, xs: Any, name: str) -> Tensor:
        shape = tuple(self.evidence.xs.shape[1:])
        xs = _tensor(xs, name).to(self.evidence.xs)
        if tuple(xs.shape) == shape:
            xs = xs.unsqueeze(0)
        if xs.ndim == 0 or tuple(xs.shape[1:]) != shape or not len(xs):
            expected = ", ".join(map(str, ("1" if name == "x_o" else "n", *shape)))
            raise ValueError(f"{name}: expected ({expected}), got {tuple(xs.shape)}.")
        if not xs.isfinite().all():
            raise ValueError(f"{name}: expected finite values, got NaN or infinity.")
        return xs

    def _bags_at(self, xs: Tensor, samples: Any) -> tuple[Tensor, Tensor]:
        evidence = self.evidence
        if samples is None:
            gaps = torch.cdist(evidence.embed(xs).double(), evidence.features.double())
            nearest = gaps.argmin(dim=1)  # (n,)
            own = (evidence.xs[nearest] == xs).reshape(len(xs), -1).all(dim=1)
            return evidence.members[nearest], ~own.cpu()
        samples = _tensor(samples, "samples").to(evidence.members)
        expected = (len(xs), evidence.members.shape[-1])
        if samples.ndim != 3 or samples.shape[1:] != expected or not len(samples):
            raise ValueError(
                f"samples: expected (S, {expected[0]}, {expected[1]}), "
                f"got {tuple(samples.shape)}."
            )
        if not samples.isfinite().all():
            raise ValueError("samples: expected finite values, got NaN or infinity.")
        return samples.transpose(0, 1), torch.zeros(len(xs), dtype=torch.bool)


def _tensor(value: Any, name: str) -> Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name}: expected a torch or NumPy array, got {type(value).__name__}."
        ) from error
