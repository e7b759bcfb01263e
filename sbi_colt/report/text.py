"""Every sentence and every table of text in the reports."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.results.finding import Finding, Trend

if TYPE_CHECKING:
    from sbi_colt.report.comparison import ComparisonReport
    from sbi_colt.report.diagnostic import DiagnosticReport

__all__ = [
    "HEADER",
    "WIDTH",
    "advise",
    "caption",
    "comparison_headline",
    "comparison_notes",
    "comparison_summary",
    "comparison_tables",
    "describe",
    "describe_all",
    "describe_trend",
    "feature_name",
    "headline",
    "percent",
    "report_rows",
    "report_sentences",
    "report_summary",
]

WIDTH = 80
HEADER = ("method", "verdict", "adjusted", "p-value", "statistic")
_NAME = 18  # columns of a posterior's name in a comparison
# Findings that are named in one report, and parameters in one statement.
_MAX_FINDINGS = 5
_MAX_NAMES = 4
_STATES = {
    ("width", 1): "too wide",
    ("width", -1): "too narrow",
    ("shift", 1): "too high",
    ("shift", -1): "too low",
}
_DISTANCE = (
    "the largest difference, over all regions that the probes looked at, between the "
    "share of true parameters and the share of posterior draws in the region"
)
_PROBE = (
    "A probe is a function that gives each parameter a number, such as its distance "
    "from a centre; its regions hold the parameters with the smallest numbers"
)

# Captions of the figures, by the beginning of their description.
_CAPTIONS = {
    "ranks": "The rank of a true parameter is the share of posterior draws in front of "
    "it. A curve shows the share of ranks up to u, minus u. If the posterior is "
    "correct, all curves stay in the grey band.",
    "localization": "Errors of true parameters and of posterior draws, in standard "
    "deviations of the draws at each x. If the posterior is correct, both look alike.",
    "discrepancy": "The share of true parameters in the worst region minus its share "
    "of draws, averaged over pairs with similar x. Grey is within chance.",
    "training": "How far the ranks of held-out pairs are from uniform while a probe is "
    "trained. Dots mark the states that were kept.",
}


# Words


def caption(description: str) -> str:
    """Return what a panel of a report shows.

    Example:
        >>> caption("training").split(" from ")[0]
        'How far the ranks of held-out pairs are'
    """
    return _CAPTIONS[description.split()[0]]


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
    """Return a finding in words, without a full stop."""
    name = "" if finding.parameter is None else names[finding.parameter]
    is_pair = finding.kind == "correlation" and finding.feature is not None
    other = names[finding.feature or 0] if is_pair else ""
    state = (finding.kind, finding.sign)
    if name and state in _STATES:
        return f"{name} is {_STATES[state]}"
    if finding.kind == "ignores_x":
        return "it ignores x"
    if finding.kind == "x_error":
        feature = feature_name(finding.feature or 0, x_shape)
        return f"its error in {name} changes with {feature}"
    return {
        ("width", 1): "it is too wide (under-confident)",
        ("width", -1): "it is too narrow (over-confident)",
        ("tails", 1): "its tails are too heavy",
        ("tails", -1): "its tails are too light",
        ("correlation", 1): f"the correlation of {name} and {other} is too high",
        ("correlation", -1): f"the correlation of {name} and {other} is too low",
        ("missing_mass", -1): "it misses a region, perhaps a mode",
        ("spurious_mass", 1): "it has mass where there should be little",
    }[state]


def describe_trend(
    trend: Trend, names: tuple[str, ...], x_shape: tuple[int, ...]
) -> str:
    """Return how the error changes with x in words, without a full stop."""
    feature = feature_name(trend.feature, x_shape)
    place = "in the central half" if trend.kind == "central" else "below the median"
    of = "of the posterior"
    if trend.parameter is not None:
        of += f" for {names[trend.parameter]}"
    low, middle, high = (f"{share:.0%}" for share in trend.shares)
    return (
        f"the error depends on {feature} (p = {trend.p_value:.2g}). Where {feature} is "
        f"low, medium and high, {low}, {middle} and {high} of true parameters lie "
        f"{place} {of}; of a correct posterior, 50% would"
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


# The report of one posterior


def headline(report: DiagnosticReport) -> str:
    """Return the verdict in one sentence."""
    verdict = "REJECTED" if report.rejected else "not rejected"
    return f"The posterior is {verdict} at the {percent(report.level)} level"


def report_summary(report: DiagnosticReport, width: int = WIDTH) -> str:
    """Return a report as text.

    Args:
        report: The report.
        width: Columns, at least 39. Two columns of the table are left out below 80.
    """
    rule = "-" * width
    columns = 5 if width >= WIDTH else 3
    name_width = 22 if width >= WIDTH else 12
    rows = [
        f"{name[: name_width - 1]:<{name_width}}{verdict:<15}"
        + "".join(f"{cell:>12}" for cell in cells[: columns - 2])
        for name, verdict, *cells in [HEADER, *report_rows(report)]
    ]
    table = "\n".join([textwrap.fill(headline(report), width), rule, *rows, rule])
    sentences = (textwrap.fill(text, width) for text in report_sentences(report))
    return "\n\n".join([table, *sentences])


def report_rows(report: DiagnosticReport) -> list[tuple[str, ...]]:
    """Return the rows of the table of methods; `HEADER` names the columns."""
    return [
        (
            name,
            "rejected" if report.adjusted[name] <= report.level else "not rejected",
            f"{report.adjusted[name]:.2g}",
            f"{result.p_value:.2g}",
            _statistic(result.statistic),
        )
        for name, result in report.results.items()
    ]


def report_sentences(report: DiagnosticReport) -> Iterator[str]:
    """Yield the paragraphs of a report."""
    colt = report.colt
    if colt is not None and report.adjusted["colt"] <= report.level:
        yield _how_wrong(colt)
    if report.findings:
        wrong = describe_all(report.findings, report.names, report.x_shape)
        yield "What is wrong: " + "; ".join(wrong[:_MAX_FINDINGS]) + "."
    elif report.rejected:
        yield (
            "What is wrong: no simple error, such as a wrong width or a shift, was "
            "found with this number of pairs."
        )
    if report.trend is not None:
        yield "Where: " + _where(report, report.trend)
    if report.rejected:
        yield "What to do: " + advise(report.findings)
    yield _cost(report)
    yield _how_decided(report)


def _how_wrong(colt: CoLTResult) -> str:
    lower = colt.distance_lower
    share = f"{lower:.0%}" if lower >= 0.01 else percent(float(f"{lower:.1g}"))
    bound = (
        f"At least {share} of posterior mass is misplaced "
        f"({colt.config.confidence:.0%} confidence); the estimate is "
        f"{colt.distance:.0%}"
        if lower > 0
        else "No misplaced mass can be certified with this number of pairs; the "
        f"estimate is {colt.distance:.0%}"
    )
    return (
        f"How wrong: {bound}. This share, the distance, is {_DISTANCE}. {_PROBE}. The "
        f"probe {colt.leading.name!r} found this difference."
    )


def _where(report: DiagnosticReport, trend: Trend) -> str:
    if trend.p_value > report.level:
        return (
            "no dependence of the error on x was found with this number of pairs "
            f"(p = {trend.p_value:.2g})."
        )
    text = describe_trend(trend, report.names, report.x_shape)
    if report.colt is None:
        return f"{text}."
    return f"{text}. report.colt.at(x_o) tests the posterior near one observation x_o."


def _cost(report: DiagnosticReport) -> str:
    cost = report.cost
    text = (
        f"Cost: {cost.num_simulations} pairs of a true parameter and its x, "
        f"{cost.num_posterior_samples} posterior draws for each x, "
        f"{sum(cost.seconds.values()):.1f} seconds."
    )
    if report.detectable is not None:
        text += (
            f" With this number of pairs an error that misplaces less than about "
            f"{report.detectable:.0%} of posterior mass can go unnoticed."
        )
    return text


def _how_decided(report: DiagnosticReport) -> str:
    text = (
        "How this is decided: a p-value is the probability of a result at least as "
        "extreme if the posterior were correct. Holm's adjusted p-values account for "
        "the number of methods: a correct posterior is rejected with a probability of "
        f"at most {percent(report.level)}."
    )
    if "c2st" in report.results:
        text += (
            " The p-value of C2ST holds for large samples only, and so does this "
            "probability."
        )
    return text


def _statistic(statistic: float) -> str:
    """Return a statistic in at most eleven characters."""
    return f"{statistic:.3f}" if abs(statistic) < 1e6 else f"{statistic:.3g}"


# The comparison of several posteriors


def comparison_headline(comparison: ComparisonReport) -> str:
    """Return what the comparison lists, and in which order."""
    return f"{len(comparison)} posteriors, the smallest distance first"


def comparison_summary(comparison: ComparisonReport) -> str:
    """Return a comparison as text, at most 80 columns wide."""
    rule = "-" * WIDTH
    distances, methods = comparison_tables(comparison)
    *pairs, distance, closer, levels = (
        textwrap.fill(text, WIDTH) for text in comparison_notes(comparison)
    )
    table = [
        comparison_headline(comparison),
        rule,
        *(_line(row, (10, 14, 10, 10, 15)) for row in distances),
        rule,
    ]
    return "\n\n".join(
        [
            "\n".join(table),
            "\n".join(_blocks(methods)),
            "\n".join(pairs),
            distance,
            closer,
            levels,
        ]
    )


def comparison_tables(
    comparison: ComparisonReport,
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the table of distances and that of all methods, their headers first."""
    confidence = comparison.confidence
    distances: list[tuple[str, ...]] = [
        (
            "posterior",
            "distance",
            f"{confidence:.0%} interval",
            "colt p",
            "adjusted",
            "verdict",
        )
    ]
    methods: list[tuple[str, ...]] = [
        ("adjusted p-value", *next(iter(comparison.reports.values())))
    ]
    for name, report in comparison.reports.items():
        low, high = comparison.interval(name)
        distances.append(
            (
                name,
                f"{report['colt'].distance:.3f}",
                f"{low:.3f}-{high:.3f}",
                f"{report['colt'].p_value:.2g}",
                f"{report.adjusted['colt']:.2g}",
                "rejected" if report.rejected else "not rejected",
            )
        )
        methods.append((name, *(f"{p:.2g}" for p in report.adjusted.values())))
    return distances, methods


def comparison_notes(comparison: ComparisonReport) -> Iterator[str]:
    """Yield a sentence for each two posteriors, then three notes."""
    names = list(comparison.reports)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            p_value = comparison.adjusted[first, second]
            yield (
                f"{first} is closer than {second} (p = {p_value:.2g})."
                if p_value <= comparison.level
                else f"{first} and {second} cannot be told apart (p = {p_value:.2g})."
            )
    yield (
        f"The distance of a posterior is {_DISTANCE}. {_PROBE}. An error that no probe "
        "found does not count, so look at the other methods too."
    )
    yield (
        '"a is closer than b" means: in none of the regions of its probes is a off by '
        "as much as b is in the worst region that was chosen for b on the training "
        "pairs. The p-value is that of paired t-tests on the test pairs, adjusted for "
        "the number of comparisons."
    )
    yield (
        "Each verdict is about one posterior, at the "
        f"{percent(comparison.level)} level, with Holm's adjustment for the number of "
        "methods."
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths, strict=True))
    return f"{row[0][: _NAME - 1]:<{_NAME}}{''.join(cells)}".rstrip()


def _blocks(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table; columns that do not fit continue below."""
    size = (WIDTH - _NAME) // 10
    for start in range(1, len(rows[0]), size):
        for name, *cells in rows:
            shown = [cell[:9] for cell in cells[start - 1 : start - 1 + size]]
            yield _line((name, *shown), (10,) * len(shown))
