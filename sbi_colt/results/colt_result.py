"""What CoLT returns: frozen dataclasses of numbers, without sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sbi_colt.checks import check_number, check_share
from sbi_colt.config import CoLTConfig
from sbi_colt.probes import Bags
from sbi_colt.probes.coordinates import make_frame
from sbi_colt.probes.training import History
from sbi_colt.randomness import digest, generator_from
from sbi_colt.results.local import Evidence, Localization, LocalResult
from sbi_colt.stats.intervals import distance_margin, wilson_interval
from sbi_colt.stats.nearness import nearness_weights
from sbi_colt.stats.redraw import redraw_statistics, redrawn_p_value
from sbi_colt.stats.uniformity import anderson_darling, ks_statistic

__all__ = ["CoLTResult", "ProbeResult"]


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
        mass_q: The share u of q in the worst ball: where F_U − id deviated most on the
            training pairs, a choice made before any test pair was seen.
        sign: The sign of F_U − id there.
        ranks: Randomised ranks of the truth, with shape ``(num_test,)``.
    """

    name: str
    statistic: float
    p_value: float
    distance: float
    distance_lower: float
    mass_q: float
    sign: int
    ranks: Tensor = field(repr=False)

    def __post_init__(self):
        for name in ("statistic", "p_value", "distance", "distance_lower", "mass_q"):
            check_share(name, getattr(self, name))
        check_number("sign", self.sign, "-1 or 1", lambda sign: sign in (-1, 1))


@dataclass(frozen=True, eq=False)
class CoLTResult:
    r"""The outcome of a conditional localization test.

    ``repr`` shows its numbers, ``probes`` holds those of each probe. With n test pairs,
    P probes and their ranks' distribution functions F̂_p,

    .. math:: D = \max_p \sup_u |F̂_p(u) - u|, \qquad
        D_{lower} = \max(0, D - \sqrt{\log(2 P / δ) / (2 n)}),

    where the second is a bound of the averaged conditionally localized distance that
    holds with confidence 1 − δ (Dvoretzky, Kiefer and Wolfowitz 1956, Massart 1990).

    Args:
        p_value: p-value of the null hypothesis q(θ | x) = p(θ | x) for almost every x;
            exact for every N and K. Sample size ``num_test``. One probe: of its
            Kolmogorov–Smirnov statistic, continuous. Several: of their pooled
            Anderson–Darling statistics, by re-drawing the bags, with a resolution of
            1 / (num_redraws + 1). Of `sbi_colt.run_colt`: combined from the two below;
            sample size ``num_train + num_test``.
        test_p_value: p-value of the test pairs alone.
        training_p_value: p-value of the untrained probes on the training pairs alone;
            `None` if the training pairs were not tested.
        statistic: Largest Kolmogorov–Smirnov statistic over the probes.
        distance: Estimate of the averaged conditionally localized distance: the share
            of posterior mass misplaced in the worst ball that was found. Noise raises
            it by about 1/√num_test; an error that no probe fits lowers it. The lower
            bound holds in any case.
        distance_lower: Certified lower bound of that distance, at
            ``config.confidence``.
        chance_distance: The median of ``distance`` over re-drawn truths: how large
            chance alone makes it with so many pairs.
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
    chance_distance: float
    ranks: Tensor = field(repr=False)
    probes: tuple[ProbeResult, ...] = field(repr=False)
    num_train: int
    num_test: int
    num_posterior_samples: int
    config: CoLTConfig = field(repr=False)
    seed: int
    mask: Tensor = field(repr=False)
    index: Tensor = field(repr=False)
    history: dict[str, History] = field(repr=False)
    evidence: Evidence = field(repr=False)

    def __post_init__(self):
        for name in (
            "p_value",
            "test_p_value",
            "distance",
            "distance_lower",
            "chance_distance",
        ):
            check_share(name, getattr(self, name))
        if self.training_p_value is not None:
            check_share("training_p_value", self.training_p_value)
        evidence = self.evidence
        sizes = {len(self.index), len(evidence.draws), evidence.table.num_pairs}
        sizes |= {len(evidence.truth), len(evidence.features)}
        if sizes != {self.num_test}:
            raise ValueError(
                f"evidence: expected {self.num_test} test pairs in every array, got "
                f"{', '.join(map(str, sorted(sizes)))}."
            )
        for probe in self.probes:
            if probe.ranks.shape != (self.num_test,):
                raise ValueError(
                    f"ranks: expected shape ({self.num_test},), one for each test "
                    f"pair, got {tuple(probe.ranks.shape)}."
                )

    @property
    def leading(self) -> ProbeResult:
        """The probe with the largest statistic."""
        return max(self.probes, key=lambda probe: probe.statistic)

    @property
    def distance_excess(self) -> float:
        """The distance beyond what chance makes, not below 0: an estimate to rank by.

        With few test pairs most of ``distance`` is chance: its median under re-drawn
        truths, ``chance_distance``, is subtracted.
        """
        return max(0.0, self.distance - self.chance_distance)

    def distance_bound(self, confidence: float) -> float:
        """Return the certified lower bound of the distance at another confidence."""
        margin = distance_margin(self.num_test, len(self.probes), confidence)
        return max(0.0, self.distance - margin)

    @property
    def shares(self) -> dict[str, float]:
        """How much each probe contributes to the pooled statistic of the test pairs.

        The share of a probe is its term exp(A² / 2) divided by the sum over all probes.
        A probe with share 0 can still reject on its own; see its p-value.
        """
        ranks = torch.stack([probe.ranks for probe in self.probes])
        shares = (anderson_darling(ranks) / 2).softmax(dim=0)
        return dict(zip((p.name for p in self.probes), shares.tolist(), strict=True))

    @property
    def data_names(self) -> tuple[str, ...]:
        """On the data side, names of the numbers that its probes see of x.

        They name the columns of ``localize().centres``; empty on the parameter side.
        """
        return self.evidence.data_names

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
            xs, members = evidence.xs, evidence.members
            borrowed = torch.zeros(len(xs), dtype=torch.bool)
        else:
            xs = evidence.checked_xs(xs, "xs")
            members, borrowed = evidence.bags_at(xs, samples)
        mass_q = self.leading.mass_q
        truths_inside = (self.leading.ranks <= mass_q).double()  # (N,)
        share = truths_inside.mean()
        mass_p = float(share)
        coordinates = evidence.probe.coordinates
        with torch.no_grad():
            frame = make_frame(members, coordinates, evidence.scales)
            network_xs = evidence.scales.network_xs(xs, coordinates)
            bags = Bags(frame.to_points(members), network_xs)
            size = members.shape[1]
            inside = min(max(round(mass_q * size), 1), size)
            radii = evidence.probe(bags).kthvalue(inside, dim=1).values  # (n,)
            centres = frame.to_theta(evidence.probe.locate(bags))
        low, high = wilson_interval(
            share.unsqueeze(0), torch.tensor([float(self.num_test)]), self._confidence
        )[0].tolist()
        local_mass_p, local_interval = evidence.local_masses(
            truths_inside,
            xs,
            evidence.checked_neighbours(num_neighbours),
            self._confidence,
        )
        return Localization(
            probe=self.leading.name,
            centres=centres,
            radii=radii,
            mass_q=mass_q,
            mass_p=mass_p,
            mass_p_interval=(low, high),
            sign=1 if mass_p >= mass_q else -1,
            local_mass_p=local_mass_p,
            local_mass_p_interval=local_interval,
            borrowed=borrowed,
            _probe=evidence.probe,
            _frame=frame,
            _bags=bags,
        )

    def at(self, x_o: Any, num_neighbours: int | None = None) -> LocalResult:
        """Return the verdict near one observation.

        Only the test pairs nearest to ``x_o`` count (in the features of the given
        embedding net, else in standardised x), the nearer the more. Their weights
        depend on xs alone, so re-drawing the bags gives an exact p-value. A warning
        says where ``x_o`` is far from all test pairs. For one observation that matters
        a run with ``diagnose(…, x_o=x_o)``, which simulates all pairs near it, has more
        power with the same number of simulations.

        On the data side the condition is a parameter, so that ``x_o`` is one θ there.

        Args:
            x_o: One observation, with the shape of one x or with a leading axis of 1.
            num_neighbours: Test pairs that count; by default a tenth of them, and at
                least 30. More give power, fewer are nearer.

        Returns:
            A `LocalResult`. Null hypothesis: q = p for almost every x near ``x_o``; the
            resolution of its p-value is 1 / (num_redraws + 1).
        """
        evidence = self.evidence
        x_o = evidence.checked_one(x_o)
        num_neighbours = evidence.checked_neighbours(num_neighbours)
        point = evidence.embed(x_o)  # (1, F)
        gaps = torch.cdist(point.double(), evidence.features.double()).flatten()
        evidence.warn_if_far(gaps)
        weights = nearness_weights(evidence.features, point, num_neighbours)[0]
        observed = ks_statistic(evidence.table.take(evidence.truth), weights)
        generator = generator_from(self.seed, "at", digest(x_o))
        null = redraw_statistics(
            evidence.table,
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
