"""Sentences about one observation: could it be simulated, and what does that mean?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sbi_colt.checks import check_share
from sbi_colt.report.finding_text import feature_name
from sbi_colt.results.plausibility_result import PlausibilityResult, StandingOut

__all__ = ["Conclusion", "conclude", "describe_standing_out", "plausibility_sentences"]

_MAX_FEATURES = 3
# The predictive check alone says that nothing explains x_o at a fifth of the level.
_PREDICTIVE_SHARE = 0.2
_WHAT_TO_DO = (
    "What to do: check the simulator and its noise model, the units and the "
    "preprocessing of the data, and whether the prior is too narrow for them."
)


def plausibility_sentences(
    result: PlausibilityResult, level: float = 0.05
) -> Iterator[str]:
    """Yield what a result says, in plain sentences.

    Args:
        result: Whether the simulator could have made x_o.
        level: Level of the verdict.
    """
    against = (
        f"It was compared with {result.num_references} simulations from the prior; the "
        f"smallest p-value that is possible with them is {result.resolution:.2g}."
    )
    if result.p_value > level:
        yield (
            f"x_o could have been made by prior and simulator (p = {result.p_value:.2g}"
            f"). {against}"
        )
    elif _only_replicates_differ(result, level):
        yield (
            "x_o does not stand out among simulations from the prior (p = "
            f"{result.p_value_without_posterior:.2g} without the posterior). {against}"
        )
    else:
        stands = [describe_standing_out(one, result) for one in result.standing_out]
        text = f"x_o is unlike what prior and simulator make (p = {result.p_value:.2g})"
        if stands:
            yield f"{text}: {'; '.join(stands[:_MAX_FEATURES])}. {against}"
        else:
            yield (
                f"{text}. No single number of x_o stands out; its numbers do not go "
                f"together as those of simulations do. {against}"
            )
    predictive = result.predictive_p_value
    if predictive is not None and predictive <= level:
        yield (
            "Data simulated from posterior draws at x_o do not look like x_o (p = "
            f"{predictive:.2g}, compared with the same number for simulated data)."
        )


def _only_replicates_differ(result: PlausibilityResult, level: float) -> bool:
    """Return whether x_o differs from its replicates, but not from simulations.

    Then the posterior may be in the wrong place at x_o, and x_o need not be strange.
    """
    predictive = result.predictive_p_value
    if predictive is None or predictive > level:
        return False
    return result.p_value_without_posterior > level


def describe_standing_out(one: StandingOut, result: PlausibilityResult) -> str:
    """Return in words how x_o stands out in one feature, without a full stop.

    Example:
        >>> import torch
        >>> xs = torch.zeros(99, 4)
        >>> result = PlausibilityResult(
        ...     0.01,
        ...     {},
        ...     None,
        ...     (),
        ...     99,
        ...     300,
        ...     p_value_without_posterior=0.01,
        ...     x_o=xs[0],
        ...     references=xs,
        ... )
        >>> far = StandingOut("number", 3, 5.13, 0.0, 0.01, value=9.0, typical=1.5)
        >>> describe_standing_out(far, result)
        'x[3] = 9 is 5.1 standard deviations above the median of simulations, 1.5'
    """
    side = "above" if one.deviation > 0 else "below"
    size = f"{_rounded(abs(one.deviation))} standard deviations {side}"
    if one.index is None:
        return f"the {one.name} of x_o is {size} that of simulations"
    name = f"{feature_name(one.index, result.x_shape)} = {one.value:.3g}"
    if one.kind == "given the others":
        return f"{name} is {size} what the other numbers of x_o predict"
    return f"{name} is {size} the median of simulations, {one.typical:.3g}"


def _rounded(size: float) -> str:
    return f"{size:.1f}" if size < 100 else f"{size:.2g}"


@dataclass(frozen=True)
class Conclusion:
    """What all tests at x_o say together.

    Args:
        kind: ``"wrong"`` (the posterior is wrong here), ``"unexplained"`` (no
            parameters explain x_o), ``"unreached"`` (focused simulations do not come
            near x_o) or ``"well"``.
        sentences: The conclusion in words, and what to do.
    """

    kind: str
    sentences: tuple[str, ...]


def conclude(
    focused_p_value: float,
    observation: PlausibilityResult,
    nearness_p_value: float,
    level: float = 0.05,
) -> Conclusion:
    """Return which of four things is the case at x_o.

    - The focused test rejects: the posterior is wrong here.
    - It does not reject, and x_o is like simulations from the prior, but simulations
      from posterior draws at x_o do not come near it: nothing can be said. Either these
      draws are in the wrong place, or no parameters explain x_o.
    - The focused test does not reject, but x_o is implausible, or data from its
      posterior draws are unlike it: the posterior may be right, but no parameters
      explain x_o.
    - Otherwise all is well.

    x_o counts as implausible only by scores that do not use the posterior, because a
    posterior that is in the wrong place at x_o makes the predictive score extreme for
    any x_o. All p-values count at the level, and the predictive one alone at a fifth of
    it, because it is part of the plausibility's p-value already.

    Args:
        focused_p_value: Of the test of the posterior at observations like x_o. Null:
            q(θ | x) = p(θ | x) there.
        observation: Whether prior and simulator could have made x_o. Null: x_o ~ p(x).
        nearness_p_value: Null: x_o lies among the focused simulations as they do among
            each other (`sbi_colt.plausibility.nearness`).
        level: The level.
    """
    check_share("focused_p_value", focused_p_value)
    check_share("nearness_p_value", nearness_p_value)
    predictive = observation.predictive_p_value
    is_wrong = focused_p_value <= level
    is_unlike = observation.p_value <= level
    is_implausible = is_unlike and not _only_replicates_differ(observation, level)
    is_misfit = predictive is not None and (
        is_unlike or predictive <= _PREDICTIVE_SHARE * level
    )
    is_far = nearness_p_value <= level and not is_implausible
    if is_wrong:
        sentences = _wrong(focused_p_value, is_implausible, is_far)
        return Conclusion("wrong", tuple(sentences))
    if is_far:
        return Conclusion("unreached", tuple(_unreached()))
    if is_implausible:
        return Conclusion("unexplained", tuple(_implausible(observation.p_value)))
    if is_misfit and predictive is not None:
        return Conclusion("unexplained", tuple(_misfit(predictive)))
    text = (
        "As far as these tests see, all is well at x_o: the posterior is not rejected "
        "at observations like x_o, and the simulator could have made x_o."
    )
    return Conclusion("well", (text,))


def _unreached() -> Iterator[str]:
    yield (
        "The simulations from posterior draws at x_o do not come near x_o, so nothing "
        "can be said about the posterior at x_o. Compared with simulations from the "
        "prior, x_o does not stand out. So either the posterior draws at x_o are in "
        "the wrong place, or no parameters explain x_o in all details."
    )
    yield (
        "What to do: train with more simulations, or another round at x_o, and repeat "
        "the report. If the simulations still do not come near x_o, check the "
        "simulator and its noise model."
    )


def _wrong(p_value: float, is_implausible: bool, is_far: bool) -> Iterator[str]:
    yield (
        f"The posterior is wrong at observations like x_o (p = {p_value:.2g}). Do not "
        "use it there before it is mended."
    )
    if is_far:
        yield (
            "Its draws at x_o may be in the wrong place: simulations from them do not "
            "come near x_o, although x_o does not stand out among simulations from the "
            "prior."
        )
    if is_implausible:
        yield (
            "x_o is also unlike what prior and simulator make. A better posterior will "
            "not change that: look at the simulator too."
        )


def _implausible(p_value: float) -> Iterator[str]:
    yield (
        "The posterior is not rejected at simulated observations near x_o, but no "
        "parameters explain x_o: x_o is unlike what prior and simulator make (p = "
        f"{p_value:.2g}). Either the simulator is misspecified, or the prior is too "
        "narrow. The posterior at x_o answers a question that the data do not fit."
    )
    yield _WHAT_TO_DO


def _misfit(p_value: float) -> Iterator[str]:
    yield (
        "The posterior is not rejected at simulated observations near x_o, but the "
        "parameters that it draws at x_o do not explain x_o: data simulated from them "
        f"do not look like x_o (p = {p_value:.2g}). Either the simulator is "
        "misspecified, or the prior is too narrow, or the posterior is wrong at x_o "
        "in a way that simulations near x_o do not show."
    )
    yield _WHAT_TO_DO
