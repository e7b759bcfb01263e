"""Findings in words: what is wrong, where in x, and what to try."""

from __future__ import annotations

from collections.abc import Sequence

from sbi_colt.report.findings import Finding
from sbi_colt.report.trends import Trend

__all__ = [
    "advise",
    "describe",
    "describe_all",
    "describe_trend",
    "feature_name",
    "percent",
]

# Parameters that are named in one statement; the others are counted.
_MAX_NAMES = 4
_STATES = {
    ("width", 1): "too wide",
    ("width", -1): "too narrow",
    ("shift", 1): "too high",
    ("shift", -1): "too low",
}


def percent(share: float) -> str:
    """Return a share in per cent, with as many digits as it needs.

    Example:
        >>> percent(0.05), percent(0.001)
        ('5%', '0.1%')
    """
    return f"{100 * share:.3g}%"


def feature_name(index: int, shape: tuple[int, ...]) -> str:
    """Return the name of a feature of x by its place in the flattened x.

    Example:
        >>> feature_name(5, (2, 3))
        'x[1, 2]'
    """
    place = [index]
    for size in reversed(shape[1:]):
        place = [*divmod(place[0], size), *place[1:]]
    return f"x[{', '.join(map(str, place))}]"


def describe_all(
    findings: Sequence[Finding], names: tuple[str, ...], x_shape: tuple[int, ...] = ()
) -> list[str]:
    """Return findings in words; parameters with the same error share a statement.

    Example:
        >>> found = [Finding("width", 1, 0.01, 0), Finding("width", 1, 0.01, 2)]
        >>> describe_all(found, ("a", "b", "c"))
        ['a, c are too wide']
    """
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        state = (finding.kind, finding.sign)
        is_shared = state in _STATES and finding.parameter is not None
        groups.setdefault(state if is_shared else finding, []).append(finding)
    texts = []
    for group in groups.values():
        first = group[0]
        if len(group) == 1:
            texts.append(describe(first, names, x_shape))
            continue
        who = [names[f.parameter] for f in group if f.parameter is not None]
        more = f" and {len(who) - _MAX_NAMES} more" if len(who) > _MAX_NAMES else ""
        state = _STATES[first.kind, first.sign]
        texts.append(f"{', '.join(who[:_MAX_NAMES])}{more} are {state}")
    return texts


def describe(
    finding: Finding, names: tuple[str, ...], x_shape: tuple[int, ...] = ()
) -> str:
    """Return a finding in words, in the indicative and without a full stop."""
    name = "" if finding.parameter is None else names[finding.parameter]
    is_pair = finding.kind == "correlation" and finding.feature is not None
    other = names[finding.feature or 0] if is_pair else ""
    state = (finding.kind, finding.sign)
    if name and state in _STATES:
        return f"{name} is {_STATES[state]}"
    return {
        ("width", 1): "it is too wide (under-confident)",
        ("width", -1): "it is too narrow (over-confident)",
        ("tails", 1): "its tails are too heavy",
        ("tails", -1): "its tails are too light",
        ("correlation", 1): f"the correlation of {name} and {other} is too high",
        ("correlation", -1): f"the correlation of {name} and {other} is too low",
        ("missing_mass", -1): "it misses a region, perhaps a mode",
        (
            "spurious_mass",
            1,
        ): "it has mass where there should be little",
    }.get(
        state,
        "it ignores x"
        if finding.kind == "ignores_x"
        else f"its error in {name} changes with "
        + feature_name(finding.feature or 0, x_shape),
    )


def describe_trend(
    trend: Trend, names: tuple[str, ...], x_shape: tuple[int, ...]
) -> str:
    """Return how the error changes with x in words, without a full stop."""
    feature = feature_name(trend.feature, x_shape)
    place = "the central half of q" if trend.kind == "central" else "the median of q"
    if trend.parameter is not None:
        place += f" for {names[trend.parameter]}"
    where = "in" if trend.kind == "central" else "below"
    low, middle, high = (f"{share:.0%}" for share in trend.shares)
    return (
        f"the error depends on {feature} (p = {trend.p_value:.2g}): {low}, {middle}, "
        f"{high} of truths lie {where} {place} where {feature} is low, middling, high "
        "(50% if q is right)"
    )


def advise(findings: tuple[Finding, ...]) -> str:
    """Return what to try next."""
    kinds = {finding.kind for finding in findings}
    if "ignores_x" in kinds:
        return (
            "check that x reaches the network: the embedding net, its learning rate, "
            "the scaling of x, and that pairs are not shuffled."
        )
    if kinds & {"missing_mass", "spurious_mass", "tails"}:
        return (
            "use a richer density estimator (a spline flow, flow matching), then more "
            "simulations."
        )
    if "x_error" in kinds or "shift" in kinds:
        return (
            "train on more simulations and for longer; if that does not help, use a "
            "richer network or embedding for x."
        )
    return "train on more simulations, or use a richer density estimator."
