r"""What is wrong, and at which x: rules from ranks to findings.

Each rule is a test with a p-value under the null hypothesis q = p; Holm's adjustment
over all rules controls the chance of any false finding. With n pairs, coverage ranks U
(Mahalanobis distance from the posterior mean) and SBC ranks U_j:

``width``
    :math:`z = (\bar U - 1/2) \sqrt{12 n}`. Truths too near the centre mean that q is
    too wide, too far that it is too narrow.
``tails``
    The spread of U: :math:`z = (\overline{(U - 1/2)^2} - 1/12) \sqrt{180 n}`. Truths
    both nearer and farther than draws mean that q's tails are too light. A wrong width
    changes the spread as well, so this is said only where it is the surer of the two.
``shift``
    :math:`z_j = (\bar U_j - 1/2) \sqrt{12 n}` for each parameter.
``x_error``
    The largest correlation of a parameter's standardised error with a feature of x; its
    p-value comes from re-drawing the bags. Where, besides, less than 2% of the variance
    of q's draws lies between xs, q ``ignores_x``.

If none of them speaks although CoLT rejects, the worst ball itself is the finding:
``missing_mass`` where p has at least twice the mass of q in it, ``spurious_mass`` where
q has at least twice that of p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from scipy.stats import norm
from torch import Tensor

from sbi_colt.baselines import coverage, holm, sbc
from sbi_colt.draws import Draws
from sbi_colt.randomness import digest, generator_from
from sbi_colt.results import CoLTResult
from sbi_colt.testing import redrawn_p_value, take_members, worst_level

__all__ = ["Finding", "Trend", "find", "find_trend"]

# Share of the variance of q's draws between xs, below which q ignores x.
_IGNORES_X = 0.02
# Features of x that are looked at; more are thinned out evenly.
_MAX_FEATURES = 50
_NUM_REDRAWS = 999
# Numbers of re-drawn errors held at once.
_CHUNK = 2**22


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Args:
        kind: ``"width"``, ``"tails"``, ``"shift"``, ``"x_error"``, ``"ignores_x"``,
            ``"missing_mass"`` or ``"spurious_mass"``.
        sign: +1 for too wide, too heavy or too high; −1 for the opposite.
        p_value: p-value, adjusted over all rules.
        parameter: Index of the parameter, where it is about one.
        feature: Index of the feature of x, where it is about one.
        size: Mean rank minus 1/2, or a correlation, or a difference of masses.
    """

    kind: str
    sign: int
    p_value: float
    parameter: int | None = None
    feature: int | None = None
    size: float = math.nan


@dataclass(frozen=True)
class Trend:
    """How the discrepancy changes with x.

    Args:
        feature: Index of the feature of x (flattened) that goes with it most.
        correlation: Their correlation; positive where the discrepancy grows with it.
        p_value: Exact p-value of the largest correlation, by re-drawing the bags.
            Null: q(θ | x) = p(θ | x); resolution 1/1000.
    """

    feature: int
    correlation: float
    p_value: float


def find(
    draws: Draws, colt: CoLTResult | None, level: float, seed: int
) -> tuple[Finding, ...]:
    """Return the findings that are significant at a level, most certain first.

    Args:
        draws: All pairs.
        colt: CoLT's result, where there is one.
        level: Family-wise level.
        seed: Seed.
    """
    n = len(draws)
    centred = coverage(draws, seed=seed).ranks
    assert centred is not None
    centred = centred - 0.5
    width = float(centred.mean())
    spread = float(centred.square().mean() - 1 / 12)
    candidates = [
        # Truths near the centre, small ranks: q is too wide.
        Finding("width", -_sign(width), _two_sided(width, 12 * n), size=width),
        Finding("tails", -_sign(spread), _two_sided(spread, 180 * n), size=spread),
    ]
    ranks = sbc(draws, seed=seed).ranks
    assert ranks is not None
    for j, mean in enumerate((ranks.mean(dim=0) - 0.5).tolist()):
        # Truths above the draws, large ranks: q is too low.
        candidates.append(
            Finding("shift", -_sign(mean), _two_sided(mean, 12 * n), j, size=mean)
        )
    candidates.append(_x_error(draws, seed))
    adjusted = holm([c.p_value for c in candidates])
    surer = candidates[1].p_value < candidates[0].p_value
    found = [
        replace(candidate, p_value=p)
        for candidate, p in zip(candidates, adjusted, strict=True)
        if p <= level and (candidate.kind != "tails" or surer)
    ]
    if not found and colt is not None and colt.p_value <= level:
        found = _worst_ball(colt)
    return tuple(sorted(found, key=lambda finding: finding.p_value))


def find_trend(colt: CoLTResult) -> Trend:
    """Return the feature of x with which CoLT's discrepancy goes most.

    The discrepancy of a pair is whether its truth lies in the ball of the leading
    probe, less that ball's mass under q, signed so that more is worse.
    """
    evidence = colt.evidence
    leading = [probe.name for probe in colt.probes].index(colt.leading.name)
    tables = evidence.tables[leading : leading + 1]
    level, mass_p = worst_level(colt.leading.ranks)
    features = _features(evidence.xs)
    sign = 1.0 if mass_p >= level else -1.0

    def correlations(members: Tensor) -> Tensor:
        inside = take_members(tables, members).squeeze(-2) <= level  # (..., N)
        return sign * _correlate(inside.double(), features)  # (..., F)

    observed = correlations(evidence.truth)
    best = int(observed.abs().argmax())
    generator = generator_from(colt.seed, "trend", digest(evidence.xs))
    shape = (_NUM_REDRAWS, len(evidence.truth))
    members = torch.randint(tables.shape[-1], shape, generator=generator)
    null = correlations(members.to(tables.device)).abs().amax(dim=-1)
    p_value = redrawn_p_value(float(observed.abs().max()), null, generator)
    return Trend(_feature_index(evidence.xs, best), float(observed[best]), p_value)


def _x_error(draws: Draws, seed: int) -> Finding:
    """Return the rule on errors that depend on x, by re-drawing the bags."""
    generator = generator_from(seed, "x error", digest(draws.thetas, draws.xs))
    members, truth = draws.bags(generator)
    members = members.double()
    mean = members.mean(dim=1, keepdim=True)
    deviation = members.std(dim=1, keepdim=True)
    errors = (members - mean) / deviation.clamp_min(1e-300)  # (N, K + 1, d)
    features = _features(draws.xs)
    rows = torch.arange(len(draws), device=members.device)

    def correlations(index: Tensor) -> Tensor:
        return _correlate(errors[rows, index].transpose(-1, -2), features)  # (.., d, F)

    observed = correlations(truth)
    place = int(observed.abs().argmax())
    parameter, feature = divmod(place, observed.shape[1])
    size = members.shape[1]
    redraws = torch.randint(size, (_NUM_REDRAWS, len(draws)), generator=generator)
    step = max(1, _CHUNK // (len(draws) * draws.dim))
    null = torch.cat(
        [
            correlations(index).abs().amax(dim=(-1, -2))
            for index in redraws.to(truth.device).split(step)
        ]
    )
    largest = float(observed[parameter, feature])
    within = members.var(dim=1).mean(dim=0)
    between = (mean.squeeze(1).var(dim=0) - within / size).clamp_min(0)
    share = float((between / (between + within).clamp_min(1e-300)).mean())
    return Finding(
        "ignores_x" if share < _IGNORES_X else "x_error",
        _sign(largest),
        redrawn_p_value(abs(largest), null, generator),
        parameter,
        _feature_index(draws.xs, feature),
        largest,
    )


def _worst_ball(colt: CoLTResult) -> list[Finding]:
    mass_q, mass_p = worst_level(colt.leading.ranks)
    for q, p in ((mass_q, mass_p), (1 - mass_q, 1 - mass_p)):  # the ball, the rest
        if q <= 1 / 3 and p >= 2 * q:
            return [Finding("missing_mass", -1, colt.p_value, size=p - q)]
        if p <= 1 / 3 and q >= 2 * p:
            return [Finding("spurious_mass", 1, colt.p_value, size=q - p)]
    return []


def _features(xs: Tensor) -> Tensor:
    """Return at most 50 columns of the flattened xs, ``(N, F)``."""
    flat = xs.double().reshape(len(xs), -1)
    return flat[:, :: math.ceil(flat.shape[1] / _MAX_FEATURES)]


def _feature_index(xs: Tensor, column: int) -> int:
    size = xs[0].numel()
    return column * math.ceil(size / _MAX_FEATURES)


def _correlate(values: Tensor, features: Tensor) -> Tensor:
    """Return correlations ``(..., F)`` of values ``(..., N)`` with features ``(N, F)``.

    Constant values or features correlate with nothing.
    """
    values = values - values.mean(dim=-1, keepdim=True)
    features = features - features.mean(dim=0)
    values = values / values.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    features = features / features.norm(dim=0).clamp_min(1e-300)
    return values.to(features) @ features


def _two_sided(mean: float, precision: float) -> float:
    return float(2 * norm.sf(abs(mean) * math.sqrt(precision)))


def _sign(value: float) -> int:
    return 1 if value >= 0 else -1
