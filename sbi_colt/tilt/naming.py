"""Which families are wrong: tested alone and given those already named.

1. Every family is tested alone, and Westfall and Young's adjustment is made over all.
   Under q = p anything is named with a probability of at most the level.
2. Of the significant ones, the family with the largest gain is named: the true
   error's family explains most. A shift that gains nearly as much comes first, and the
   shape does where q merges modes. If correcting it would gain nothing on pairs that
   did not fit it, nothing is named.
   A shift or a width is named alone if moved or stretched draws would be like the
   truths (`sbi_colt.tilt.transports`): tilts describe these errors for Gaussians only.
   A missing region is named alone if the other truths are like the draws. Where both
   hold, the one that leaves less evidence is named.
3. A family "with x" has its own family's features too. It is named in the place of
   its own family if it is significant given that family.
4. A further family is named if it is significant alone and given all that is named, by
   the larger of the two p-values, and if it clearly gains something beside them. This
   holds for many pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sbi_colt.tilt.bags import Bags, normalised
from sbi_colt.tilt.families import (
    MISSING,
    SHAPE,
    SUPPORT,
    WITH_X,
    Family,
    make_features,
)
from sbi_colt.tilt.logit import Gain, fit_tilt, held_out_gain
from sbi_colt.tilt.score_test import Evidence, adjusted_p_values, family_p_values
from sbi_colt.tilt.sizes import UNIFORM_CENTRE
from sbi_colt.tilt.transports import transported

__all__ = ["NamedFamily", "name_families"]

_MAX_NAMED = 4
# Families that a transport can bring about; re-drawings of its test, and the share of
# the evidence that it may leave if that is not significant.
_TRANSPORTS = ("shift", "width")
_NUM_REDRAWS_MOVED, _LEFT_MOVED = 199, 1 / 3
_NUM_REDRAWS_GIVEN = 299
_ROUGH, _WORTH = (100.0, 5.0), 0.5  # penalties, and the share of the largest gain
# Share of the largest gain from which a family explains nearly as much as the best.
_NEARLY = 0.75
# Share of truths far from all draws between which a region is missing; if more are,
# q is somewhere else.
_LEAST_MISSING, _MOST_MISSING = 0.05, 0.6
# Share from which the draws are far from the truths at every x: q misses no region, but
# it is somewhere else or much too narrow.
_ALL_MISSING = 0.95
# q merges modes if at most this share of the truths expected near their mean are there,
# and if that is so many standard errors below.
_GAP, _CLEAR_GAP = 0.75, 4.0
# Share of the evidence against other families that may be left without them.
_LITTLE_LEFT = 0.12
# What a further family must gain beside those already named: standard errors, and a
# share of the first one's gain. A tilt of an error that is large is never quite right,
# and what it leaves looks like another error.
_CLEAR, _LEAST_SHARE = 2.0, 0.15
# What a tilt needs beside a family's own features to bring about that error alone.
_SUPPORT = {"width": (SUPPORT,), "correlation": (SUPPORT, "width")}


@dataclass(frozen=True)
class NamedFamily:
    """A family that is wrong.

    Args:
        family: The family.
        p_value: Adjusted p-value under q = p of the first that is named; of a further
            one the larger of that and the one given those that were named before.
        gain: What correcting it would gain, beside those named before it.
        merged: Of a shape, the parameters whose modes q merges, the worst first.
    """

    family: Family
    p_value: float
    gain: Gain
    merged: tuple[int, ...] = ()


def name_families(
    evidence: Evidence,
    bags: Bags,
    level: float,
    num_redraws: int,
    generator: torch.Generator,
) -> tuple[float, tuple[NamedFamily, ...]]:
    """Return the p-value of all families together, and those that are wrong.

    Null hypothesis of the p-value: q = p. It is exact, with resolution 1 / (1 + B).

    Args:
        evidence: Features, terms of x, truths and weights.
        bags: The bags of which they are features.
        level: Level of all tests.
        num_redraws: How many times truths are re-drawn, B.
        generator: CPU generator.
    """
    families = _tested(evidence)
    p_values, excess = family_p_values(evidence, families, num_redraws, generator)
    adjusted = adjusted_p_values(p_values).tolist()
    alone = {
        family.name: p
        for family, p in zip(families, adjusted, strict=True)
        if p <= level
    }
    naming = _Naming(
        evidence, bags, alone, float(excess.max()), level, num_redraws, generator
    )
    return min(adjusted), tuple(naming.run())


def _tested(evidence: Evidence) -> list[Family]:
    """Return the families that are tested."""
    return [
        family
        for family in evidence.features.families.values()
        if family.base != SUPPORT and (not family.with_x or evidence.terms.shape[1])
    ]


@dataclass
class _Naming:
    """The steps of `name_families` after the first."""

    evidence: Evidence
    bags: Bags
    alone: dict[str, float]  # adjusted p-values of the families significant alone
    excess: float  # of the most significant one, in standard deviations
    level: float
    num_redraws: int
    generator: torch.Generator

    def __post_init__(self):
        self.merged = self._merged()

    def run(self) -> list[NamedFamily]:
        named: list[NamedFamily] = []
        left, refused = dict(self.alone), set[str]()
        if len(left) > 1 and float(self._far().double().mean()) > _ALL_MISSING:
            refused.add(MISSING)
            left = self._without(left, refused)
        missing = self._left_by_missing()
        if left and (
            math.isfinite(missing) or self._explaining(left, named) not in _TRANSPORTS
        ):
            names, moved = self._left_by_transport()
            if missing < moved:
                return [self._alone(MISSING)]
            if names:
                found = [self._alone(name) for name in names]
                return sorted(found, key=lambda one: -one.gain.mean)
        while left and len(named) < _MAX_NAMED:
            base = self._explaining(left, named)
            name, p_value = self._with_or_without_x(base, left, named)
            gain = self._further_gain(name, named) if named else self._gain(name)
            if not named and gain.mean <= 0:
                return []
            if named and not self._is_clear(name, gain, named[0].gain):
                refused.add(base)
                left = self._without(left, refused)
                continue
            merged = self.merged if base == SHAPE else ()
            named.append(NamedFamily(self._family(name), p_value, gain, merged))
            left = self._still_wrong(named, refused)
        return named

    def _alone(self, name: str) -> NamedFamily:
        return NamedFamily(self._family(name), self.alone[name], self._gain(name))

    def _left_by_transport(self) -> tuple[tuple[str, ...], float]:
        """Return the shift or width that explains all, and the evidence it leaves.

        It does if moved and stretched draws are like the truths. Evidence that is not
        significant counts as none. Where nothing explains all, there are no names, and
        infinite evidence is left.
        """
        single = self.evidence.terms[:, : self.evidence.num_single]
        for names, bags in transported(self.bags, single):
            if not set(names) <= set(self.alone):
                continue
            evidence = replace(self.evidence, features=make_features(bags), gains={})
            families = _tested(evidence)
            p_values, excess = family_p_values(
                evidence, families, _NUM_REDRAWS_MOVED, self.generator
            )
            is_left = adjusted_p_values(p_values).min() <= self.level
            least = _LITTLE_LEFT if is_left else _LEFT_MOVED
            if float(excess.max()) <= least * self.excess:
                return names, float(excess.max()) if is_left else 0.0
        return (), math.inf

    @staticmethod
    def _is_clear(name: str, gain: Gain, first: Gain) -> bool:
        """Return whether a further gain is worth a statement.

        A shift may gain much less than the first family: what a tilt of another error
        leaves does not make the mean wrong.
        """
        least = 0.0 if name == "shift" else _LEAST_SHARE * first.mean
        return gain.mean >= max(_CLEAR * gain.error, least)

    @staticmethod
    def _without(left: dict[str, float], refused: set[str]) -> dict[str, float]:
        return {n: p for n, p in left.items() if n.removesuffix(WITH_X) not in refused}

    def _further_gain(self, name: str, named: Sequence[NamedFamily]) -> Gain:
        """Return what a family gains beside those that are already named."""
        before = [f for one in named for f in self._own(one.family.name)]
        without = held_out_gain(self.evidence, before)
        together = held_out_gain(self.evidence, [*before, *self._own(name)])
        return Gain.of(together.each - without.each, together.penalty)

    def _family(self, name: str) -> Family:
        return self.evidence.features.families[name]

    def _gain(self, name: str) -> Gain:
        return held_out_gain(self.evidence, self._own(name))

    def _rough_gain(self, name: str) -> float:
        """Return the gain for two penalties: who comes into question at all."""
        return held_out_gain(self.evidence, self._own(name), _ROUGH).mean

    def _own(self, name: str) -> list[Family]:
        """Return the families that a tilt for a family has: without x, and with."""
        both = [name.removesuffix(WITH_X), name]
        return [self._family(each) for each in dict.fromkeys(both)]

    def _left_by_missing(self) -> float:
        """Return the evidence that is left without truths far from all draws.

        It is infinite unless nothing is wrong but that there are such truths. Without
        the members that are alone, and without the bags whose truth is alone, the
        truths of a posterior that only misses a region are like its draws. A tilt
        cannot tell, because any feature that is large far out gains as much.
        """
        if MISSING not in self.alone:
            return math.inf
        is_alone, kept = self._is_alone(), ~self._far()
        if not _LEAST_MISSING <= float((~kept).double().mean()) <= _MOST_MISSING:
            return math.inf
        rest = self.evidence.at(kept).tilted(-1e9 * is_alone[kept].double())
        families = [self._family(name) for name in self.alone if name != MISSING]
        if not families:
            return 0.0
        before, after = (
            float(
                family_p_values(each, families, self.num_redraws, self.generator)[
                    1
                ].max()
            )
            for each in (self.evidence, rest)
        )
        return after if after <= _LITTLE_LEFT * before else math.inf

    def _is_alone(self) -> Tensor:
        """Return whether members are far from all others, with shape ``(N, M)``."""
        first = self._family(MISSING).columns[0]
        return self.evidence.features.values[..., first] > 1e-6

    def _far(self) -> Tensor:
        """Return whether truths are far from all draws, with shape ``(N,)``."""
        is_alone = self._is_alone()
        return is_alone[torch.arange(len(is_alone)), self.evidence.truth]

    def _merged(self) -> tuple[int, ...]:
        """Return the parameters whose modes q merges, the worst first.

        There fewer truths than draws are near their own mean. A tilt by t² may gain
        most, because it moves mass from the centre to both sides, but q is not too
        narrow.
        """
        values = self.evidence.features.values
        values = values[..., list(self._family("shift").columns)]  # (N, M, d)
        truths = values[torch.arange(len(values)), self.evidence.truth]  # (N, d)
        weights = normalised(self.evidence.log_weights, values.shape[:2]).unsqueeze(2)
        # Draws are centred in their bags, with a pooled variance of 1.
        expected = (weights * (values.abs() < 0.5)).sum(dim=1).mean(dim=0)  # (d,)
        near = (truths - truths.mean(dim=0)).abs() < truths.std(dim=0) / 2
        found = near.double().mean(dim=0)
        error = (expected * (1 - expected) / len(truths)).sqrt()
        least = torch.minimum(_GAP * expected, expected - _CLEAR_GAP * error)
        # Not where the truths are so far from all draws that they alone make their
        # bag's deviation: |t| is nearly √M, on either side.
        far = truths.square().mean(dim=0) > values.shape[1] / 2
        merged = (found < least.clamp_max(UNIFORM_CENTRE)) & ~far
        order = (found / expected.clamp_min(1e-12)).argsort()
        return tuple(order[merged[order]].tolist())

    def _explaining(self, left: dict[str, float], named: Sequence[NamedFamily]) -> str:
        """Return the family, without x, that explains most.

        It is the shape if q merges modes. Of those that gain nearly as much as the
        best, it is the shift, because a wrong mean makes squares and products wrong
        too, and nothing but a shift makes the mean wrong. Without a shift, it is the
        one given which the others are least wrong.
        """
        if {SHAPE, SHAPE + WITH_X} & set(left) and self.merged:
            return SHAPE
        rough = {name: self._rough_gain(name) for name in left}
        most = max(rough.values())
        names = [n for n in left if rough[n] >= most - (1 - _WORTH) * abs(most)]
        names.sort(key=lambda name: -self._gain(name).mean)
        largest = self._gain(names[0]).mean
        least = largest - (1 - _NEARLY) * abs(largest)
        best: dict[str, str] = {}
        for name in names:
            if self._gain(name).mean >= least:
                best.setdefault(name.removesuffix(WITH_X), name)
        if len(best) == 1:
            return next(iter(best))
        if "shift" in best:
            return "shift"
        others = [self._family(name) for name in self.alone]
        return min(best, key=lambda base: self._left_over(best[base], others, named))

    def _left_over(
        self, name: str, families: Sequence[Family], named: Sequence[NamedFamily]
    ) -> float:
        """Return how wrong other families are given one and those already named."""
        base = name.removesuffix(WITH_X)
        done = {base, *(one.family.base for one in named)}
        others = [family for family in families if family.base not in done]
        given = [*(one.family.name for one in named), name]
        excess = 0.0
        for p_values, statistics in self._tests_given(given, others):
            del p_values
            excess = max(excess, float(statistics.max()))
        return excess

    def _with_or_without_x(
        self, base: str, left: dict[str, float], named: Sequence[NamedFamily]
    ) -> tuple[str, float]:
        """Return the name of a family, with x where that matters, and its p-value."""
        name = base + WITH_X
        known = name in self.evidence.features.families
        if not known or not self.evidence.terms.shape[1]:
            return base, left[base]
        given = [*(one.family.name for one in named), base]
        ((p_values, _),) = self._tests_given(given, [self._family(name)])
        follows = float(adjusted_p_values(p_values)[0])
        better = self._gain(name).mean > self._gain(base).mean
        clear = follows <= self.level / 5 or (follows <= self.level and better)
        if clear or base not in left:
            return name, left.get(name, follows)
        return base, left[base]

    def _still_wrong(
        self, named: Sequence[NamedFamily], refused: set[str]
    ) -> dict[str, float]:
        """Return the larger p-values of those that are significant both ways."""
        names = self._without(self.alone, refused | {one.family.base for one in named})
        families = [self._family(name) for name in names]
        found = {}
        given = [one.family.name for one in named]
        for group, (p_values, _) in zip(
            _by_nuisance(families), self._tests_given(given, families), strict=True
        ):
            for family, p in zip(
                group, adjusted_p_values(p_values).tolist(), strict=True
            ):
                found[family.name] = max(self.alone[family.name], p)
        return {name: p for name, p in found.items() if p <= self.level}

    def _tests_given(
        self, given: Sequence[str], families: Sequence[Family]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield p-values and statistics of groups of families, given fitted ones."""
        known = self.evidence.features.families
        for group in _by_nuisance(families):
            span = {f.name: f for name in given for f in self._own(name)}
            for name in given:
                for support in _SUPPORT.get(name.removesuffix(WITH_X), ()):
                    if support in known and support not in {f.base for f in group}:
                        span[support] = known[support]
            penalty = self._gain(given[-1]).penalty
            tilt = fit_tilt(self.evidence, list(span.values()), penalty)
            yield family_p_values(
                self.evidence.tilted(tilt.scores),
                group,
                min(self.num_redraws, _NUM_REDRAWS_GIVEN),
                self.generator,
                list(span.values()),
            )


def _by_nuisance(families: Sequence[Family]) -> list[list[Family]]:
    """Return families in groups that are tested given the same fitted features."""
    quadratic = [f for f in families if f.base in ("width", "correlation")]
    others = [f for f in families if f.base not in ("width", "correlation")]
    return [group for group in (others, quadratic) if group]
