"""What a test returns: frozen dataclasses that hold numbers, no sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sbi_colt.config import CoLTConfig
from sbi_colt.localization import BallProbe, Frame, Scales, make_frame
from sbi_colt.randomness import digest, generator_from
from sbi_colt.testing import (
    distance_margin,
    ks_statistic,
    nearness_weights,
    redraw_statistics,
    redrawn_p_value,
    take_members,
    worst_level,
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


@dataclass(frozen=True, eq=False)
class TestResult:
    """The outcome of one diagnostic.

    Args:
        name: The method's name.
        p_value: Its p-value.
        statistic: Its test statistic.
        ranks: Its ranks where it has any, with shape ``(N,)`` or ``(N, d)``.
    """

    __test__ = False  # not a test case for pytest to collect

    name: str
    p_value: float
    statistic: float
    ranks: Tensor | None = field(default=None, repr=False)


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
        ranks: Randomised ranks of the truth, with shape ``(num_test,)``.
    """

    name: str
    statistic: float
    p_value: float
    distance: float
    distance_lower: float
    ranks: Tensor = field(repr=False)


@dataclass(frozen=True, eq=False)
class Localization:
    """The ball whose masses under q and p differ most, for each of n xs.

    Args:
        probe: Name of the probe it belongs to.
        centres: Centres θ_l(x), with shape ``(n, d)``.
        radii: Radii in the probe's metric, with shape ``(n,)``.
        mass_q: Mass of the ball under q, the same at every x by construction.
        mass_p: Estimated mass under p, averaged over x.
        mass_p_interval: Simultaneous confidence interval of ``mass_p``.
        sign: +1 where p has more mass in the ball than q, −1 where it has less.
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
    borrowed: Tensor


@dataclass(frozen=True)
class LocalResult:
    """The verdict near one observation.

    Args:
        p_value: Exact p-value. Null: q(θ | x) = p(θ | x) for the xs with weight;
            sample size ``num_effective``; resolution 1 / (num_redraws + 1).
        distance: Largest weighted deviation of the ranks over all probes.
        probe: Name of the probe that shows it.
        num_effective: Effective number of test pairs near the observation.
    """

    p_value: float
    distance: float
    probe: str
    num_effective: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a result keeps of the test pairs to answer "where?"."""

    tables: Tensor  # (P, N, K + 1), ranks of all members under each probe
    truth: Tensor  # (N,), which member is the true parameter
    features: Tensor  # (N, F), of the test xs
    embed: Callable[[Tensor], Tensor]  # xs to features
    probe: BallProbe  # the leading one
    frame: Frame  # the test bags in its coordinates
    xs: Tensor  # (N, …)
    scales: Scales


@dataclass(frozen=True, eq=False)
class CoLTResult:
    """The outcome of a conditional localization test.

    Args:
        p_value: p-value of the null hypothesis q(θ | x) = p(θ | x) for almost every x;
            exact for every N and K. Sample size ``num_test``. Resolution
            1 / (num_redraws + 1) for several probes, continuous for one.
        statistic: Largest Kolmogorov–Smirnov statistic over the probes.
        distance: Estimate of the averaged conditionally localized distance: the share
            of posterior mass misplaced in the worst ball. Biased upward by about
            1/√num_test; the lower bound is not.
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
        history: How each probe was trained.
    """

    p_value: float
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
    history: dict[str, History] = field(repr=False)
    evidence: Evidence = field(repr=False)

    @property
    def leading(self) -> ProbeResult:
        """The probe with the largest statistic."""
        return max(self.probes, key=lambda probe: probe.statistic)

    def localize(self, xs: Any = None, samples: Any = None) -> Localization:
        """Return the ball where q and p differ most, for each x.

        Args:
            xs: Observations with shape ``(n, …)``; the test pairs' own by default.
            samples: Posterior draws at these xs, with shape ``(S, n, d)``. Without
                them, the moments of the nearest test pair's draws stand in.
        """
        evidence = self.evidence
        level, mass_p = worst_level(self.leading.ranks)
        with torch.no_grad():
            if xs is None:
                xs, frame = evidence.xs, evidence.frame
                borrowed = torch.zeros(len(xs), dtype=torch.bool)
            else:
                xs = self._checked_xs(xs)
                frame, borrowed = self._frame_at(xs, samples)
            centres = evidence.probe.centre(xs, frame.origin.shape[1])
            distances = evidence.probe.distances(frame.members, centres)  # (n, M)
            radii = distances.quantile(level, dim=1)
        margin = distance_margin(
            self.num_test, len(self.probes), self.config.confidence
        )
        return Localization(
            probe=self.leading.name,
            centres=frame.to_theta(centres).float(),
            radii=radii,
            mass_q=level,
            mass_p=mass_p,
            mass_p_interval=(max(0.0, mass_p - margin), min(1.0, mass_p + margin)),
            sign=1 if mass_p >= level else -1,
            borrowed=borrowed,
        )

    def at(self, x_o: Any) -> LocalResult:
        """Return the verdict near one observation.

        Test pairs are weighted by their nearness to ``x_o`` (in the features of the
        given embedding net, else in standardised x). The weights depend on xs alone,
        so re-drawing the bags gives an exact p-value for the weighted statistic.

        Args:
            x_o: One observation, with the shape of one x or with a leading axis of 1.
        """
        evidence = self.evidence
        x_o = self._checked_xs(x_o, single=True)
        point = evidence.embed(x_o)[0]
        weights = nearness_weights(evidence.features, point).double()
        observed = ks_statistic(take_members(evidence.tables, evidence.truth), weights)
        generator = generator_from(self.seed, "at", digest(x_o))
        null = redraw_statistics(
            evidence.tables, self.config.num_redraws, generator, weights
        )
        leading = int(observed.argmax())
        return LocalResult(
            p_value=redrawn_p_value(float(observed.max()), null.amax(dim=1)),
            distance=float(observed.max()),
            probe=self.probes[leading].name,
            num_effective=float(weights.sum().square() / weights.square().sum()),
        )

    def _checked_xs(self, xs: Any, single: bool = False) -> Tensor:
        shape = self.evidence.xs.shape[1:]
        xs = torch.as_tensor(xs).to(self.evidence.xs)
        if xs.shape == shape:
            xs = xs.unsqueeze(0)
        if xs.shape[1:] != shape or (single and len(xs) != 1):
            name, expected = ("x_o", (1, *shape)) if single else ("xs", ("n", *shape))
            raise ValueError(f"{name}: expected {expected}, got {tuple(xs.shape)}.")
        if not xs.isfinite().all():
            raise ValueError("xs: expected finite values, got NaN or infinity.")
        return xs

    def _frame_at(self, xs: Tensor, samples: Any) -> tuple[Frame, Tensor]:
        evidence = self.evidence
        if samples is not None:
            samples = torch.as_tensor(samples).to(evidence.frame.origin)
            expected = (len(xs), evidence.frame.origin.shape[1])
            if samples.ndim != 3 or samples.shape[1:] != expected:
                raise ValueError(
                    f"samples: expected (S, {expected[0]}, {expected[1]}), "
                    f"got {tuple(samples.shape)}."
                )
            bags = samples.transpose(0, 1)
            frame = make_frame(bags, evidence.probe.spec.coordinates, evidence.scales)
            return frame, torch.zeros(len(xs), dtype=torch.bool)
        gaps = torch.cdist(evidence.embed(xs).double(), evidence.features.double())
        nearest = gaps.argmin(dim=1)  # (n,)
        own = (evidence.xs[nearest] == xs).reshape(len(xs), -1).all(dim=1)
        frame = Frame(
            evidence.frame.members[nearest],
            evidence.frame.origin[nearest],
            evidence.frame.factor[nearest],
        )
        return frame, ~own.cpu()
