"""From bags to findings: families are tested and named, then measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sbi_colt.results.finding import Finding
from sbi_colt.tilt.bags import Bags
from sbi_colt.tilt.families import WITH_X, Family, make_features
from sbi_colt.tilt.logit import Gain, held_out_gain
from sbi_colt.tilt.naming import NamedFamily, name_families
from sbi_colt.tilt.score_test import Evidence, feature_z_scores
from sbi_colt.tilt.sizes import Errors, measure
from sbi_colt.tilt.x_terms import XTerms, make_x_terms

__all__ = ["LEAST_DRAWS", "find_errors"]

# With fewer draws per x, effective ones where they have weights, or with fewer pairs
# that have as many, nothing is named.
LEAST_DRAWS, _LEAST_PAIRS = 10, 10
_NUM_REDRAWS = 999
# Share of the parameters that must be wrong alike to say it of all of them.
_MOST = 2 / 3
_MAX_STATEMENTS = 3  # about single parameters, for each family
# Share of the variance of q's draws between xs, and variance of their spreads'
# logarithms, below which q ignores x.
_IGNORES_X = 0.02
_LEAST_IN_THIRD = 3  # pairs in a third of x whose errors have a size
_THIRDS = ("low", "medium", "high")


def find_errors(
    bags: Bags,
    x_features: Tensor,
    level: float,
    generator: torch.Generator,
) -> tuple[Finding, ...]:
    """Return what is wrong with a posterior, the largest gain first.

    Null hypothesis: q = p. Under it anything is found with a probability of at most the
    level.

    Args:
        bags: Truths and draws.
        x_features: Features of the xs, with shape ``(N, F)``.
        level: Level of the tests.
        generator: CPU generator.
    """
    if bags.size <= LEAST_DRAWS:
        return ()
    if bags.log_weights is not None:
        kept = bags.effective_size >= LEAST_DRAWS
        bags, x_features = bags.at(kept), x_features[kept]
    if len(bags) < _LEAST_PAIRS:
        return ()
    features, terms = make_features(bags), make_x_terms(x_features)
    evidence = Evidence(
        features, terms.values, terms.num_single, bags.truth, bags.log_weights
    )
    _, named = name_families(evidence, bags, level, _NUM_REDRAWS, generator)
    if not named:
        return ()
    describe = _Describing(evidence, terms, Errors.of(bags), x_features, level)
    if named[0].family.name == "shift with x" and _ignores_x(bags):
        return (describe.blindness(named[0]),)
    first, *others = (describe.findings(one) for one in named)
    found = [*first, *(f for own in others for f in own if _is_said(f))]
    return tuple(describe.with_gains(found))


def _is_said(finding: Finding) -> bool:
    """Return whether something can be said about a parameter that is not the worst.

    A moment that could be right is no statement. A share is only one number of a wrong
    shape, which can be wrong although this share is right.
    """
    return finding.unit == "share" or finding.is_clear


def _ignores_x(bags: Bags) -> bool:
    """Return whether q's means and spreads hardly differ between xs.

    Those of every parameter: q uses x if one of them does.
    """
    weights = bags.weights.unsqueeze(2)
    size = float(bags.effective_size.mean())
    mean = (weights * bags.members).sum(dim=1)  # (N, d)
    within = (weights * (bags.members - mean.unsqueeze(1)).square()).sum(dim=1)
    noise = within.mean(dim=0) / size
    between = (mean.var(dim=0) - noise).clamp_min(0)
    share = float((between / (between + within.mean(0)).clamp_min(1e-300)).max())
    spread = float(within.clamp_min(1e-300).log().var(dim=0).max()) / 4
    # The largest of several has noise; two standard errors of a variance.
    least = _IGNORES_X + 2 * (2 / len(bags)) ** 0.5 / size
    return share < least and spread < least + 1 / size


class _Describing:
    """Findings about a named family: which parameters, where in x, how large."""

    def __init__(
        self,
        evidence: Evidence,
        terms: XTerms,
        errors: Errors,
        x_features: Tensor,
        level: float,
    ):
        self.evidence, self.terms, self.errors = evidence, terms, errors
        self.x_features, self.level = x_features, level

    def findings(self, named: NamedFamily) -> list[Finding]:
        """Return one finding about all parameters, or some about single ones."""
        chosen = [(j,) for j in named.merged] or self._parameters(named.family)
        made = [self._finding(named, who) for who in chosen]
        made = [one for one in made if _is_said(one)] or made[:1]
        alike = len({(one.sign, one.where, one.feature) for one in made}) == 1
        dim = self.errors.errors.shape[1]
        is_marginal = named.family.base in ("shift", "width")
        if is_marginal and alike and dim > 1 and len(made) >= max(2, _MOST * dim):
            return [self._together(named, made)]
        made = made[:_MAX_STATEMENTS]
        if len(made) == 1:
            return made
        alone = {one: self._gain_of([one]).mean for one in made}
        return sorted(made, key=lambda one: -alone[one])

    def with_gains(self, found: list[Finding]) -> list[Finding]:
        """Return findings, each with what its parameters gain beside those before it.

        The gain is that of correcting the family for these parameters at every x, also
        where the size is that at some xs.
        """
        made: list[Finding] = []
        before = torch.zeros(len(self.errors.errors), dtype=torch.float64)
        for number, one in enumerate(found, start=1):
            together = self._gain_of(found[:number])
            gain = Gain.of(together.each - before, together.penalty)
            made.append(replace(one, gain=gain.mean, gain_se=gain.error))
            before = together.each
        return made

    def blindness(self, named: NamedFamily) -> Finding:
        """Return one finding for all that a posterior which ignores x has wrong."""
        everything = tuple(range(self.errors.errors.shape[1]))
        whole = self._finding(named, everything)
        return replace(whole, parameters=(), feature=None, where="", pattern="blind")

    def _together(self, named: NamedFamily, made: Sequence[Finding]) -> Finding:
        """Return one finding about parameters that are wrong alike.

        It is about all parameters unless another one is clearly less wrong.
        """
        several = tuple(sorted({j for one in made for j in one.parameters}))
        common = self._finding(named, several)
        dim = self.errors.errors.shape[1]
        for other in set(range(dim)) - set(several):
            own = self._finding(named, (other,))
            nearer = own.interval[1] if common.sign > 0 else own.interval[0]
            if common.sign * (common.size - nearer) > 0:
                return common
        return self._finding(named, tuple(range(dim)))

    def _parameters(self, family: Family) -> list[tuple[int, ...]]:
        """Return the parameters, or pairs of them, that are wrong, the worst first."""
        scores = feature_z_scores(self.evidence, family).abs().amax(dim=1)  # (p,)
        worst: dict[tuple[int, ...], float] = {}
        for column, score in zip(family.columns, scores.tolist(), strict=True):
            who = self.evidence.features.parameters[column]
            worst[who] = max(worst.get(who, 0.0), score)
        count = scores.numel() * self.evidence.terms_of(family).shape[1]
        normal = torch.distributions.Normal(0.0, 1.0)
        least = float(normal.icdf(torch.tensor(1 - self.level / 2 / max(1, count))))
        order = sorted(worst, key=lambda who: -worst[who])
        # An error in one parameter may show in the next a little.
        least = max(least, worst[order[0]] / 3)
        return [order[0], *(who for who in order[1:] if worst[who] >= least)]

    def _finding(self, named: NamedFamily, who: tuple[int, ...]) -> Finding:
        family = named.family
        feature, where, errors, num_choices = None, "", self.errors, 1
        if family.with_x:
            feature, where, errors = self._where(family, who)
            # The feature and its third are those with the largest error.
            num_choices = len(_THIRDS) * len(set(sum(self.terms.places, ())))
        size = measure(errors, family.base, who, num_choices)
        return Finding(
            family.name,
            named.p_value,
            who,
            feature,
            where,
            size.sign,
            size.value,
            (size.low, size.high),
            size.unit,
            size.own_units,
            size.pattern,
            named.gain.mean,
            named.gain.error,
        )

    def _where(self, family: Family, who: tuple[int, ...]) -> tuple[int, str, Errors]:
        """Return the feature of x, its third with the largest error, and its errors."""
        scores = feature_z_scores(self.evidence, self._only(family, who))  # (p, T)
        places = self.terms.places[int(scores.abs().amax(dim=0).argmax())]
        found = []
        for place in places:
            thirds = self.errors.thirds(self.x_features[:, place])
            for third, errors in zip(_THIRDS, thirds, strict=True):
                if len(errors.errors) < _LEAST_IN_THIRD:
                    continue
                size = measure(errors, family.base, who)
                found.append((abs(size.z_score), place, third, errors))
        if not found:  # one value of x for nearly all pairs
            return places[0], "", self.errors
        return max(found, key=lambda one: one[0])[1:]

    def _gain_of(self, found: Sequence[Finding]) -> Gain:
        """Return the gain of correcting several findings together."""
        known = self.evidence.features.families
        columns: dict[str, list[int]] = {}
        for one in found:
            base = one.family.removesuffix(WITH_X)
            for name in dict.fromkeys([base, one.family]):
                own = self._only(known[name], one.parameters).columns
                columns.setdefault(name, []).extend(own)
        families = [
            replace(known[name], columns=tuple(dict.fromkeys(own)))
            for name, own in columns.items()
        ]
        return held_out_gain(self.evidence, families)

    def _only(self, family: Family, who: tuple[int, ...]) -> Family:
        """Return the features of a family that are about some parameters."""
        about = self.evidence.features.parameters
        columns = tuple(c for c in family.columns if set(about[c]) <= set(who))
        return replace(family, columns=columns)
