r"""What is wrong, and at which x: rules from ranks and errors to findings.

Each rule is a test with a p-value under the null hypothesis q = p, with Bonferroni's
adjustment over the kinds of finding, and within a kind over parameters. The p-values
are approximate: normal approximations of means over pairs. Measured on Gaussian
parameters with Gaussian, lognormal and Cauchy xs and 100 pairs, false findings were at
most at the level of 0.05; Cauchy parameters and posteriors that are clamped at an edge
raised them to about 0.1. Findings are shown only beside a verdict that rejects.

Errors t_j are those of parameter j, standardised by the mean and spread of the *other*
members of the bag, so that a truth far out does not hide itself. Ranks and moments can
deviate for several reasons, so a rule fires only where a second statistic agrees. The
rules for widths, tails and correlations subtract the mean error first, so that a shift
does not fire them.

``shift``
    :math:`z_j = (\bar U_j - 1/2) \sqrt{12 n}` of the SBC ranks of each parameter,
    where the mean of t_j agrees.
``x_error``
    The largest correlation of a parameter's SBC ranks with the ranks of a feature of x
    or with the distances of these ranks from their middle (Bonferroni's adjustment;
    ranks are bounded, so that no few pairs decide it). A mean error that
    changes with x looks like a wrong spread, so beside it nothing is called too narrow,
    and neither tails nor correlations are named. Where q's means and spreads hardly
    differ between xs, q ``ignores_x``; that is also said if no other rule fires but the
    error changes with x.
``width``
    :math:`\log E t_j^2` against that of the draws, where :math:`\log E|t_j|` agrees;
    for each parameter, and for their mean over all. All parameters together are named
    where none or most of them are wrong by themselves, in the same direction.
``tails``
    The ratio of the median of :math:`|t_j|` to its mean, which no width changes, by
    its logarithm and averaged over parameters. Where the truths' is smaller than the
    draws', they are mostly nearer and sometimes much farther: q's tails are too light.
    Not reported where the width changes with x, which looks the same. (Geary's (1935)
    ratio of moments cannot be re-drawn from bags whose own tails are heavy.)
``correlation``
    The mean of t_i t_j, each by its root mean square, against that of the draws, for
    the pair of parameters that differs most (Bonferroni's adjustment over pairs).
``missing_mass``
    More than a tenth of truths beyond 95% of the draws (a binomial test of the coverage
    ranks), most of them far beyond all draws, and the others with uniform ranks: not a
    matter of width, so neither width nor tails are named.

The null distributions of widths and tails come from re-drawing which member of each bag
plays the truth; those of widths through their mean and spread. If no rule fires
although CoLT rejects, the worst ball itself is the finding: ``missing_mass`` where p
has at least twice the mass of q in it, ``spurious_mass`` where q has at least twice
that of p.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import torch
from scipy.stats import binom, kstest, norm
from torch import Tensor

from sbi_colt.draws import Draws
from sbi_colt.randomness import digest, generator_from
from sbi_colt.report.trends import correlate, feature_index, features
from sbi_colt.report.truths import Truths
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.results.finding import Finding, Trend
from sbi_colt.stats.redraw import redraw_statistics, redrawn_p_value

__all__ = ["find"]

# Share of the variance of q's draws between xs, and variance of their spreads'
# logarithms, below which q ignores x.
_IGNORES_X = 0.02
# Standard errors by which a second look must agree with its rule.
_AGREES = 3.0
# Share of the draws beyond which a truth is far out.
_FAR = 0.95
# Share of the parameters that must be too wide or too narrow to say it of all.
_MOST = 2 / 3
# With fewer draws a spread without one of them means nothing.
_MIN_DRAWS = 3
_NUM_REDRAWS = 999


def find(
    draws: Draws,
    truths: Truths,
    colt: CoLTResult | None,
    level: float,
    seed: int,
    trend: Trend | None = None,
) -> tuple[Finding, ...]:
    """Return the findings that are significant at a level, most certain first.

    Args:
        draws: All pairs.
        truths: Where their true parameters stand in the bags.
        colt: CoLT's result, where there is one.
        level: Level of the adjusted p-values.
        seed: Seed.
        trend: How the error changes with x, where that is known.
    """
    if draws.num_posterior_samples < _MIN_DRAWS:
        return ()
    generator = generator_from(seed, "findings", digest(draws.thetas, draws.xs))
    evidence = _Errors.of(draws, generator)
    candidates = [
        *_shifts(evidence, truths.marginal),
        _x_error(truths.marginal, draws.xs),
        *_spreads(evidence, generator),
        *_correlation(evidence),
        _missing(truths),
    ]
    # Bonferroni's adjustment over the kinds, and within a kind over its candidates.
    number = Counter(candidate.kind for candidate, _ in candidates)
    found = [
        replace(candidate, p_value=p)
        for candidate, agrees in candidates
        if agrees
        and (p := candidate.p_value * len(number) * number[candidate.kind]) <= level
    ]
    if trend is not None and trend.p_value > level:
        trend = None
    width_follows_x = trend is not None and trend.kind == "central"
    findings = _consistent(found, draws.dim, width_follows_x)
    if evidence.is_constant:
        findings = [
            replace(f, kind="ignores_x") if f.kind == "x_error" else f for f in findings
        ]
    if not findings and colt is not None and colt.p_value <= level:
        findings = _mass_in_worst_ball(colt)
        if evidence.is_constant and trend is not None:
            findings = [Finding("ignores_x", 1, trend.p_value)]
    return tuple(sorted(findings, key=lambda finding: finding.p_value))


def _consistent(found: list[Finding], dim: int, width_follows_x: bool) -> list[Finding]:
    """Return the findings that no other one explains."""
    kinds = {finding.kind for finding in found}
    single = [f for f in found if f.kind == "width" and f.parameter is not None]
    signs = {f.sign for f in single}
    all_alike = len(signs) <= 1 and not 0 < len(single) < _MOST * dim

    def stays(finding: Finding) -> bool:
        if finding.kind == "width":
            narrow = finding.sign < 0 and "x_error" in kinds
            about_all = finding.parameter is None
            return not narrow and about_all == all_alike and "missing_mass" not in kinds
        if finding.kind == "tails":
            return not width_follows_x and not kinds & {"x_error", "missing_mass"}
        return finding.kind != "correlation" or "x_error" not in kinds

    return [finding for finding in found if stays(finding)]


@dataclass(frozen=True)
class _Errors:
    """What the rules look at beside ranks: standardised errors of all members."""

    errors: Tensor  # (N, K + 1, d), of the members
    truth: Tensor  # (N,), which member is the truth
    is_constant: bool  # whether q hardly differs between xs

    @classmethod
    def of(cls, draws: Draws, generator: torch.Generator) -> _Errors:
        truth = draws.place_truths(generator)
        members = draws.bags(truth).double()
        size = members.shape[1]
        mean = members.mean(dim=1, keepdim=True)
        deviation = members.std(dim=1, keepdim=True).clamp_min(1e-300)
        return cls(
            _externally_studentised((members - mean) / deviation),
            truth,
            _is_constant(mean.squeeze(1), deviation.squeeze(1), size),
        )

    @property
    def of_truth(self) -> Tensor:
        """Errors of the truths, with shape ``(N, d)``."""
        return self.take(self.truth)

    def __len__(self) -> int:
        return self.errors.shape[2]

    @property
    def num_pairs(self) -> int:
        """The number of bags, N."""
        return self.errors.shape[0]

    @property
    def bag_size(self) -> int:
        """The number of members of each bag, K + 1."""
        return self.errors.shape[1]

    def take(self, members: Tensor) -> Tensor:
        """Return the errors ``(..., N, d)`` of one chosen member per bag."""
        rows = torch.arange(len(self.truth), device=self.truth.device)
        return self.errors[rows, members.to(rows.device)]


def _externally_studentised(errors: Tensor) -> Tensor:
    """Return errors by mean and spread of the other members, from those of all.

    With errors e of n members by their common mean and spread, the others' mean is
    −e / (n − 1) and the sum of squares about it n − 1 − n e² / (n − 1).
    """
    size = errors.shape[1]
    gap = errors * size / (size - 1)
    squares = size - 1 - errors * gap
    return gap / (squares / (size - 2)).clamp_min(1e-12).sqrt()


def _is_constant(mean: Tensor, deviation: Tensor, size: int) -> bool:
    """Return whether means and spreads ``(N, d)`` of bags hardly differ between xs."""
    within = deviation.square().mean(dim=0)
    between = (mean.var(dim=0) - within / size).clamp_min(0)
    share = float((between / (between + within).clamp_min(1e-300)).mean())
    spread = float(deviation.log().var(dim=0).mean())
    return share < _IGNORES_X and spread < _IGNORES_X + 1 / size


def _spreads(
    evidence: _Errors, generator: torch.Generator
) -> list[tuple[Finding, bool]]:
    """Return the findings about widths, for each parameter and for all, and tails."""

    def moments(errors: Tensor) -> Tensor:
        centred = errors - errors.mean(dim=-2, keepdim=True)
        square = centred.square().mean(dim=-2).clamp_min(1e-300).log() / 2
        absolute = centred.abs().mean(dim=-2).clamp_min(1e-300).log()
        ratio = centred.abs().median(dim=-2).values.clamp_min(1e-300).log() - absolute
        return torch.stack([square, absolute, ratio], dim=-2)  # (..., 3, d)

    null = redraw_statistics(evidence, moments, _NUM_REDRAWS, generator)
    gap = moments(evidence.of_truth) - null.mean(dim=0)  # (3, d)
    scores = gap / null.std(dim=0).clamp_min(1e-300)
    together = null.mean(dim=-1)  # (B, 3), over the parameters
    all_scores = gap.mean(dim=-1) / together.std(dim=0).clamp_min(1e-300)  # (3,)
    columns = torch.cat([scores, all_scores.unsqueeze(1)], dim=1)  # (3, d + 1)
    sizes = torch.cat([gap, gap.mean(dim=-1, keepdim=True)], dim=1)
    findings = []
    for j, (square, absolute, _) in enumerate(columns.T.tolist()):
        # Errors of the truths smaller than those of the draws: q is too wide.
        finding = Finding(
            "width",
            -_sign(square),
            float(2 * norm.sf(abs(square))),
            j if j < scores.shape[1] else None,
            size=float(sizes[0, j]),
        )
        findings.append((finding, _sign(square) * absolute > _AGREES))
    # A truth with heavy tails is mostly near and sometimes far: a small ratio.
    tails = float(sizes[2, -1])
    others = (together[:, 2] - together[:, 2].mean()).abs()
    p_value = redrawn_p_value(abs(tails), others, generator)
    return [*findings, (Finding("tails", _sign(tails), p_value, size=tails), True)]


def _shifts(evidence: _Errors, ranks: Tensor) -> list[tuple[Finding, bool]]:
    n = len(ranks)
    means = (ranks.mean(dim=0) - 0.5).tolist()
    scores = [_z_score(column) for column in evidence.of_truth.T]
    # Truths above the draws, large ranks: q is too low.
    return [
        (
            Finding("shift", -_sign(mean), _two_sided(mean, 12 * n), j, size=mean),
            _sign(mean) * score > _AGREES,
        )
        for j, (mean, score) in enumerate(zip(means, scores, strict=True))
    ]


def _correlation(evidence: _Errors) -> list[tuple[Finding, bool]]:
    dim = evidence.errors.shape[-1]
    if dim == 1:
        return []
    truths, draws = evidence.of_truth, evidence.errors
    draws = draws / draws.square().mean(dim=1, keepdim=True).sqrt().clamp_min(1e-300)
    # About their own mean and by their own spread: no shift, no width.
    truths = truths - truths.mean(dim=0)
    truths = truths / truths.square().mean(dim=0).sqrt().clamp_min(1e-300)
    products = truths.unsqueeze(2) * truths.unsqueeze(1)  # (N, d, d)
    products = products - draws.transpose(1, 2) @ draws / draws.shape[1]
    mean = products.mean(dim=0)
    error = products.std(dim=0).clamp_min(1e-300) / len(products) ** 0.5
    scores = (mean / error).triu(diagonal=1)
    first, second = divmod(int(scores.abs().argmax()), dim)
    score = float(scores[first, second])
    p_value = min(1.0, dim * (dim - 1) / 2 * float(2 * norm.sf(abs(score))))
    size = float(mean[first, second])
    return [(Finding("correlation", -_sign(score), p_value, first, second, size), True)]


def _missing(truths: Truths) -> tuple[Finding, bool]:
    ranks = truths.central
    far = ranks > _FAR
    share = float(far.double().mean())
    near = ranks[ranks <= 0.9] / 0.9
    uniform = len(near) > 0 and kstest(near.numpy(), "uniform").pvalue > 0.05
    apart = bool(far.any()) and float(truths.far_away[far].double().mean()) > 0.5
    p_value = float(binom.sf(int(far.sum()) - 1, len(far), 1 - _FAR))
    finding = Finding("missing_mass", -1, p_value, size=share - (1 - _FAR))
    return finding, share >= 0.1 and bool(uniform) and apart


def _x_error(ranks: Tensor, xs: Tensor) -> tuple[Finding, bool]:
    columns = features(xs)
    observed = correlate(ranks.T, columns)  # (d, 2 F)
    parameter, feature = divmod(int(observed.abs().argmax()), observed.shape[1])
    largest = float(observed[parameter, feature])
    p_value = min(1.0, observed.numel() * _two_sided(largest, len(xs)))
    place = feature_index(xs, feature % (columns.shape[1] // 2))
    return (
        Finding("x_error", _sign(largest), p_value, parameter, place, largest),
        True,
    )


def _mass_in_worst_ball(colt: CoLTResult) -> list[Finding]:
    mass_q = colt.leading.mass_q
    mass_p = float((colt.leading.ranks <= mass_q).double().mean())
    for q, p in ((mass_q, mass_p), (1 - mass_q, 1 - mass_p)):  # the ball, the rest
        if q <= 1 / 3 and p >= 2 * q:
            return [Finding("missing_mass", -1, colt.p_value, size=p - q)]
        if p <= 1 / 3 and q >= 2 * p:
            return [Finding("spurious_mass", 1, colt.p_value, size=q - p)]
    return []


def _two_sided(mean: float, precision: float) -> float:
    return float(2 * norm.sf(abs(mean) * math.sqrt(precision)))


def _z_score(values: Tensor) -> float:
    """Return the mean of values in standard errors."""
    error = float(values.std()) / math.sqrt(len(values))
    return float(values.mean()) / max(error, 1e-300)


def _sign(value: float) -> int:
    return 1 if value >= 0 else -1
