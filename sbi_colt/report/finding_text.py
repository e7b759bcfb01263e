"""Sentences about findings: what is wrong, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sbi_colt.results.finding import Finding

__all__ = ["advise", "describe", "describe_all", "feature_name"]

_MAX_NAMES = 4  # parameters in one statement
_NOUNS = {"shift": "mean", "radial": "shape", "missing": "shape"}
_LARGEST = 999.0  # an interval of a ratio that ends beyond has no end
_WITH_X = " with x"

# What costs nothing comes first: checks, then how long to train, then another network
# or more simulations.
_SAME = (
    "check that the simulations of this report and those of the training have the same "
    "prior and the same noise"
)
_ALL_OF_X = ", and that all of x reaches the network"
_LOSS = (
    "look at the validation loss, on pairs that were not trained on: train for longer "
    "if it was still falling at the end, stop the training earlier if it was rising. "
    "Then"
)
_CHECK_X = (
    "check that x reaches the network: the embedding net, its learning rate, the "
    "scaling of x, and that pairs are not shuffled."
)
_SEVERAL_MODES = (
    "use a density estimator that can have several modes (a mixture density network "
    "with more components, a spline flow, flow matching)"
)
_MORE_MODES = (
    f"{_SEVERAL_MODES}. More simulations for the same density estimator do not help."
)
_MISSING = f"{_SEVERAL_MODES}, then more simulations."
_RICHER_DENSITY = (
    "use a richer density estimator (a spline flow, flow matching), then more "
    "simulations."
)
_RICHER_IN_X = (
    "use a larger embedding net, if x passes through one, and train on more "
    "simulations; if that does not help, use a richer network."
)
_SHIFT = "train on more simulations."
_NARROW = "train on more simulations, or use an ensemble of posteriors."
_WIDE = "train on more simulations, or use a larger network."
_CORRELATION = (
    "use a density estimator with dependence between parameters (a flow, or a mixture "
    "with full covariances), then more simulations."
)


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
    """Return findings in words, each with its gain.

    The gain of an error that depends on x is that of correcting it at every x, not only
    where the size was measured; the words say so.

    Example:
        >>> one = Finding("width", 0.01, (1,), size=1.4, unit="ratio", gain=0.24)
        >>> describe_all([one], ("alpha", "gamma"))
        ['gamma is 1.4 times too wide (correcting it would gain 0.24 nats)']
    """
    texts, further = [], ""
    for finding in findings:
        text = describe(finding, names, x_shape)
        if finding.gain > 0:
            everywhere = " at every x" if finding.where else ""
            gain = f"{further}{finding.gain:.2g} nats"
            text += f" (correcting it{everywhere} would gain {gain})"
            further = "a further "
        elif further:
            text += " (correcting it too would gain nothing more)"
        texts.append(text)
    return texts


def describe(
    finding: Finding, names: tuple[str, ...], x_shape: tuple[int, ...] = ()
) -> str:
    """Return a finding in words, without a full stop."""
    if finding.pattern == "blind":
        return "it ignores x"
    base = finding.family.removesuffix(_WITH_X)
    if not finding.is_clear:
        return _unclear(finding, names, x_shape)
    text = _WORDS[base](finding, names)
    if finding.feature is not None and finding.where:
        feature = feature_name(finding.feature, x_shape)
        text += f" where {feature} is {finding.where}"
    return text


def _unclear(finding: Finding, names: tuple[str, ...], x_shape: tuple[int, ...]) -> str:
    """Return a finding in words whose sign the pairs do not tell."""
    who, _ = _who(finding, names)
    base = finding.family.removesuffix(_WITH_X)
    who = "all parameters" if who == "it" else who
    what = f"the {_NOUNS.get(base, base)} of {who} is wrong"
    if base == "correlation":
        what = f"the correlation of {' and '.join(_chosen(finding, names))} is wrong"
    if finding.feature is not None:
        feature = feature_name(finding.feature, x_shape)
        return f"{what} in a way that depends on {feature}"
    low, high = finding.interval
    if finding.unit == "share":
        return what
    if finding.unit == "ratio":
        ends = f"{low:.2g} and {high:.2g} times the right one"
    else:
        ends = f"{-low:.2g} too low and {high:.2g} too high"
        if base == "shift":
            ends += ", in posterior standard deviations"
    return f"{what}, but its size is unclear (between {ends})"


def _number(size: float, right: float = 0.0) -> str:
    """Return a size with as many digits as tell it from the right one, two at least.

    Example:
        >>> _number(1.43, 1.0), _number(1.0042, 1.0), _number(652.0)
        ('1.4', '1.004', '650')
    """
    rounded = (float(f"{size:.{digits}g}") for digits in range(2, 16))
    texts = (f"{value:.15g}" for value in rounded)  # 650, not 6.5e+02
    return next((text for text in texts if float(text) != right), f"{size:.2g}")


def _percent(share: float, right: float = 0.0) -> str:
    """Return a share with as many digits as tell it from the right one."""
    texts = (f"{share:.{digits}%}" for digits in range(13))
    different = (text for text in texts if abs(float(text[:-1]) / 100 - right) > 1e-9)
    return next(different, f"{share:.0%}")


def _chosen(finding: Finding, names: tuple[str, ...]) -> list[str]:
    return [names[j] for j in finding.parameters]


def _who(finding: Finding, names: tuple[str, ...]) -> tuple[str, str]:
    """Return the parameters, and "is" or "are"."""
    chosen = _chosen(finding, names)
    if not chosen or (len(chosen) > 1 and len(chosen) == len(names)):
        return "it", "is"
    more = f" and {len(chosen) - _MAX_NAMES} more" if len(chosen) > _MAX_NAMES else ""
    return ", ".join(chosen[:_MAX_NAMES]) + more, "is" if len(chosen) == 1 else "are"


def _shift(finding: Finding, names: tuple[str, ...]) -> str:
    who, verb = _who(finding, names)
    if len(finding.parameters) != 1:  # perhaps in different directions
        return f"{'all parameters' if who == 'it' else who} are shifted"
    state = "too high" if finding.sign > 0 else "too low"
    size = _number(abs(finding.size))
    text = f"{who} {verb} {state} by {size} posterior standard deviations"
    if not math.isnan(finding.own_units):
        text += f" ({abs(finding.own_units):.2g} in its own units)"
    return text


def _width(finding: Finding, names: tuple[str, ...]) -> str:
    who, verb = _who(finding, names)
    low, high = finding.interval
    if finding.sign > 0:
        state, ratio, also = "too wide", finding.size, " (under-confident)"
        least = low if high > _LARGEST else math.nan
    else:
        state, ratio, also = "too narrow", 1 / finding.size, " (over-confident)"
        least = 1 / high if low < 1 / _LARGEST else math.nan
    size = _number(ratio, 1.0)
    if not math.isnan(least):
        size = f"at least {_number(least, 1.0)}"
    return f"{who} {verb} {size} times {state}{also if who == 'it' else ''}"


def _correlation(finding: Finding, names: tuple[str, ...]) -> str:
    first, second = (names[j] for j in finding.parameters[:2])
    state = "too high" if finding.sign > 0 else "too low"
    size = _number(abs(finding.size))
    return f"the correlation of {first} and {second} is {size} {state}"


def _shape(finding: Finding, names: tuple[str, ...]) -> str:
    who, _ = _who(finding, names)
    share = _percent(finding.size, finding.expected)
    if finding.pattern == "skew":
        return (
            f"it misses the skew of {who}: {share} of true values are below its median"
        )
    if finding.pattern == "modes":
        return (
            f"it merges modes of {who}: {_few(finding.size)} in the central third of "
            "its draws"
        )
    state = "too heavy" if finding.sign > 0 else "too light"
    return (
        f"the shape of {who} is wrong, for example tails that are {state}: {share} of "
        "true values are in the central third of its draws"
    )


def _few(share: float) -> str:
    """Return a small share of true values, with its verb."""
    return (
        "no true value is" if share < 0.005 else f"only {share:.0%} of true values are"
    )


def _radial(finding: Finding, names: tuple[str, ...]) -> str:
    del names
    state = "too heavy" if finding.sign > 0 else "too light"
    return f"its tails are {state} in all parameters together"


def _missing(finding: Finding, names: tuple[str, ...]) -> str:
    del names
    share = _percent(finding.size)
    return f"it misses a region, perhaps a mode, with {share} of the true parameters"


_WORDS = {
    "shift": _shift,
    "width": _width,
    "correlation": _correlation,
    "shape": _shape,
    "radial": _radial,
    "missing": _missing,
}


def advise(findings: Sequence[Finding]) -> str:
    """Return what to try next, by the first finding."""
    if not findings:
        return "train on more simulations, or use a richer density estimator."
    first = findings[0]
    if first.pattern == "blind":
        return _CHECK_X
    if first.pattern == "modes" and first.is_clear:
        return _MORE_MODES
    checks = _SAME + (_ALL_OF_X if first.family.endswith(_WITH_X) else "")
    return f"{checks}; then {_LOSS} {_train_again(first)}"


def _train_again(finding: Finding) -> str:
    """Return what to change if checks and the validation loss show nothing."""
    base = finding.family.removesuffix(_WITH_X)
    if base == "missing":
        return _MISSING
    if base in ("shape", "radial"):
        return _RICHER_DENSITY
    if finding.family.endswith(_WITH_X):
        return _RICHER_IN_X
    if base == "correlation":
        return _CORRELATION
    if base == "width":
        if not finding.is_clear:
            return _SHIFT
        return _WIDE if finding.sign > 0 else _NARROW
    return _SHIFT
