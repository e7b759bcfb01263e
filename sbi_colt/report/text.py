"""Every sentence and every table of text in the reports."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from sbi_colt.report.finding_text import advise, describe_all, feature_name
from sbi_colt.report.plausibility_text import conclude, plausibility_sentences
from sbi_colt.results.focus import Focus
from sbi_colt.results.plausibility_result import PlausibilityResult

if TYPE_CHECKING:
    from sbi_colt.report.diagnostic import DiagnosticReport

__all__ = [
    "HEADER",
    "SIDES",
    "WIDTH",
    "caption",
    "explain_distance",
    "headline",
    "percent",
    "report_rows",
    "report_sentences",
    "report_summary",
]

WIDTH = 80
HEADER = ("method", "p-value", "distance", "at least", "statistic")
_MAX_FINDINGS = 5  # that are named in one report
_REGIONS = "the largest difference, over all regions that the probes looked at, between"
_DISTANCE = (
    f"{_REGIONS} the share of true parameters and the share of posterior draws in the "
    "region"
)
_DATA_DISTANCE = (
    f"{_REGIONS} the share of observations in the region and the share of replicates, "
    "which are data simulated from a posterior draw"
)
# How a missing data side could be tested, or why it is missing.
_LEFT_OUT = {
    "": "diagnose(…, simulator=simulator) tests it.",
    "off": "diagnose with the default methods and num_replicates tests it.",
    "failing": "The data side would test it. It was left out, because the simulator "
    "fails at too many of the parameters that the posterior draws.",
    "few": "The data side would test it. It was left out, because too few of its bags "
    "have a draw of the posterior: use more pairs (num_simulations, "
    "num_replicated_pairs), more posterior draws per x, or more time.",
    "another": "The data side would test it. It was left out, because it could not be "
    "made for another posterior of the comparison.",
}
SIDES = {"colt": "parameters", "predictive": "data"}
_MASS = {"colt": "posterior mass", "predictive": "predictive mass"}
# What must be certified to say that the posterior discards information.
_MUCH = 0.1
_LEARNED = "likelihood"  # the probe of parameters that shows the same
_USE_X = (
    "make the posterior use x: check that x reaches the network, use a larger or other "
    "embedding net or more summary statistics, train a larger network for longer and "
    "on more simulations."
)

# Captions of the figures, by the beginning of their description.
_CAPTIONS = {
    "observation": "Your observation (orange) among simulations from the prior (grey) "
    "and data that were simulated from posterior draws at x_o (blue). Circles mark "
    "numbers in which x_o stands out. If prior and simulator could have made x_o, it "
    "lies among the grey ones; if the posterior explains x_o, it looks like the blue "
    "ones.",
    "data": "Observations (orange) and the replicates that were simulated from one "
    "posterior draw at each (grey), for the replicated pairs that differ most. If the "
    "posterior is correct, an observation looks like its replicates.",
    "outside": "How often an observation lies outside the range of its replicates, for "
    "each feature of x, over all replicated pairs. If the posterior is correct, all "
    "shares are near the dashed line.",
    "ranks": "The rank of a true parameter is the share of posterior draws in front of "
    "it. A curve shows the share of ranks up to u, minus u. If the posterior is "
    "correct, all curves stay in the grey band.",
    "ranks of predictive": "The rank of an observation is the share of its replicates "
    "in front of it. A curve shows the share of ranks up to u, minus u. If the "
    "posterior is correct, all curves stay in the grey band.",
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
    return _CAPTIONS.get(description) or _CAPTIONS[description.split()[0]]


def percent(share: float) -> str:
    """Return a share in per cent, with as many digits as it needs.

    Example:
        >>> percent(0.05), percent(0.001)
        ('5%', '0.1%')
    """
    return f"{100 * share:.3g}%"


# The report of one posterior


def headline(report: DiagnosticReport) -> str:
    """Return the verdict in one sentence."""
    verdict = "REJECTED" if report.rejected else "not rejected"
    return (
        f"The posterior is {verdict} at the {percent(report.level)} level "
        f"(p = {report.p_value:.2g})"
    )


def report_summary(report: DiagnosticReport, width: int = WIDTH) -> str:
    """Return a report as text.

    Args:
        report: The report.
        width: Columns, at least 39. Two columns of the table are left out below 80.
    """
    rule = "-" * width
    columns = 5 if width >= WIDTH else 3
    name_width = 32 if width >= WIDTH else 15
    rows = [
        f"{name[: name_width - 1]:<{name_width}}"
        + "".join(f"{cell:>12}" for cell in cells[: columns - 1])
        for name, *cells in [HEADER, *report_rows(report)]
    ]
    table = "\n".join([textwrap.fill(headline(report), width), rule, *rows, rule])
    sentences = (textwrap.fill(text, width) for text in report_sentences(report))
    return "\n\n".join([table, *sentences])


def report_rows(report: DiagnosticReport) -> list[tuple[str, ...]]:
    """Return the rows of the table of methods; `HEADER` names the columns."""
    bounds = report.bounds
    rows = []
    for name, result in report.results.items():
        side = report.sides.get(name)
        cells = ("", "")
        if side is not None:
            cells = (f"{side.distance_excess:.0%}", f"{bounds[name]:.0%}")
        rows.append(
            (name, f"{result.p_value:.2g}", *cells, _statistic(result.statistic))
        )
    return rows


def report_sentences(report: DiagnosticReport) -> Iterator[str]:
    """Yield the paragraphs of a report."""
    if report.focus is not None:
        yield _what_was_tested(report.focus)
    if report.observation is not None and report.nearness is not None:
        yield from _at_x_o(report, report.observation, report.nearness)
    if report.sides:
        yield _how_wrong(report)
    if report.rejected:
        yield from _what_is_wrong(report)
    yield from _beside(report)
    yield _cost(report)
    yield _how_decided(report)


def _at_x_o(
    report: DiagnosticReport, observation: PlausibilityResult, nearness: float
) -> Iterator[str]:
    """Yield what all tests at x_o say together, then whether x_o is plausible."""
    conclusion = conclude(report.p_value, observation, nearness, report.level)
    yield "At your observation: " + " ".join(conclusion.sentences)
    yield " ".join(plausibility_sentences(observation, report.level))


def _what_was_tested(focus: Focus) -> str:
    if not focus.widening:
        text = "What was tested: pairs from your proposal, with weights."
        outside = "where the prior or the proposal has no density; they were not tested"
    elif math.isfinite(focus.widening):
        text = (
            "What was tested: posteriors at observations like x_o. Most true "
            "parameters were simulated from a distribution "
            f"{focus.widening:g} times as wide as the posterior at x_o, the others "
            "from elsewhere in the prior, above all from where data are like x_o."
        )
        outside = "outside the prior, where no true parameter can be"
    else:
        text = (
            "What was tested: posteriors at observations from the whole prior, not at "
            "observations like x_o. True parameters near the posterior draws at x_o "
            "would leave nearly no draws to compare them with: these draws lie where "
            "the prior hardly has mass, or the posterior is far too narrow."
        )
        outside = "outside the prior, where no true parameter can be"
    text += (
        f" Of {focus.num_draws} posterior draws at each x (an effective number of "
        f"{focus.num_effective:.0f}) {focus.num_kept} were kept at random, at "
        f"{focus.num_pairs_kept} of {focus.num_pairs} xs, so that they can be compared "
        "with true parameters that do not come from the prior."
    )
    if focus.share_outside > 0:
        text += f" {percent(focus.share_outside)} of the draws lie {outside}."
    return text


def _what_is_wrong(report: DiagnosticReport) -> Iterator[str]:
    is_blind = any(finding.pattern == "blind" for finding in report.findings)
    discards = not is_blind and _discards_information(report)
    wrong = describe_all(report.findings, report.names, report.x_shape)[:_MAX_FINDINGS]
    if discards:
        wrong = ["it discards information in x", *wrong]
    if wrong:
        yield "What is wrong: " + "; ".join(wrong) + "."
    elif _only_data(report):
        yield (
            "What is wrong: parameters drawn from the posterior do not explain the x "
            "that they were drawn for. The posterior discards information in x, or it "
            "is in the wrong place. Which parameters are wrong was not looked for."
        )
    else:
        yield (
            "What is wrong: no simple error, such as a wrong width or a shift, was "
            "found with this number of pairs."
        )
    if discards:
        yield (
            "Such a posterior is nearly calibrated, but parameters drawn from it do "
            "not explain the x that they were drawn for: it is far wider than it has "
            "to be, or in the wrong place at single xs."
        )
    yield from _where(report)
    use_x = discards or _only_data(report)
    yield "What to do: " + (_USE_X if use_x else advise(report.findings))


def _only_data(report: DiagnosticReport) -> bool:
    """Return whether there were no posterior draws to test parameters with."""
    return report.cost.num_posterior_samples == 0


def _discards_information(report: DiagnosticReport) -> bool:
    """Return whether the posterior does not use information in x.

    Its draws do not explain their x, by a certified distance of the data side or of the
    learned likelihood. Either the other probes of parameters show much less than that,
    less than half; or SBC finds no parameter miscalibrated, and all that is wrong is
    where the posterior lies at single xs.
    """
    colt = report.sides.get("colt")
    if colt is None:
        return False
    learned = [probe for probe in colt.probes if probe.name == _LEARNED]
    others = [probe for probe in colt.probes if probe.name != _LEARNED]
    chance = colt.chance_distance
    unexplained = [(p.distance_lower, p.distance - chance) for p in learned]
    if (data := report.sides.get("predictive")) is not None:
        unexplained.append((report.bounds["predictive"], data.distance_excess))
    bound, excess = max(unexplained, default=(0.0, 0.0))
    if bound < _MUCH:
        return False
    certified = max((p.distance_lower for p in others), default=0.0)
    seen = max((p.distance for p in others), default=0.0) - chance
    if bound >= certified + _MUCH and excess >= 2 * seen:
        return True
    sbc = report.results.get("sbc")
    is_calibrated = sbc is not None and sbc.p_value > report.level
    families = {finding.family for finding in report.findings}
    return is_calibrated and families == {"shift with x"}


def _how_wrong(report: DiagnosticReport) -> str:
    sides, bounds = report.sides, report.bounds
    if not any(bounds.values()):
        estimates = [
            f"{side.distance_excess:.0%} on the side of {SIDES[name]}"
            for name, side in sides.items()
        ]
        return (
            "How wrong: no misplaced mass can be certified with this number of pairs; "
            f"the estimate is {' and '.join(estimates)}."
        )
    parts = []
    for name, side in sides.items():
        lower, mass = bounds[name], _MASS[name]
        share = f"{lower:.0%}" if lower >= 0.01 else percent(float(f"{lower:.1g}"))
        parts.append(
            f"{SIDES[name]}: at least {share} of {mass} is misplaced (estimate "
            f"{max(lower, side.distance_excess):.0%})"
            if lower > 0
            else f"{SIDES[name]}: no misplaced {mass} can be certified (estimate "
            f"{side.distance_excess:.0%})"
        )
    confidence = next(iter(sides.values())).config.confidence
    together = "Both bounds hold together" if len(sides) > 1 else "The bound holds"
    found = " and ".join(
        f"the probe {side.leading.name!r}"
        + (f" on the side of {SIDES[name]}" if len(sides) > 1 else "")
        for name, side in sides.items()
    )
    return (
        f"How wrong: {'; '.join(parts)}. {together} with {confidence:.0%} confidence. "
        f"{explain_distance(sides)} The largest difference was found by {found}."
    )


def explain_distance(sides: Collection[str]) -> str:
    """Return what the distances on these sides are."""
    half = "at least half of such a distance is misplaced posterior mass."
    if "colt" not in sides:
        text = f"The distance is {_DATA_DISTANCE}; what chance makes is subtracted, and"
        return f"{text} {half} {_probe('observation', 'the observations')}"
    text = f"The distance is {_DISTANCE}; what chance makes is subtracted."
    if "predictive" not in sides:
        return f"{text} {_probe('parameter', 'the parameters')}"
    return (
        f"{text} On the data side, observations are compared with data that were "
        f"simulated from a posterior draw; {half} "
        + _probe("parameter (or, on the data side, to each observation)", "those")
    )


def _probe(member: str, members: str) -> str:
    """Return what a probe is."""
    return (
        f"A probe is a function that gives a number to each {member}, such as its "
        f"distance from a centre; its regions hold {members} with the smallest numbers."
    )


def _beside(report: DiagnosticReport) -> Iterator[str]:
    """Yield what the verdict does not cover."""
    if report.sides and not report.rejected:
        others = [
            name
            for name, result in report.results.items()
            if name not in report.sides and result.p_value <= report.level
        ]
        if others:
            yield (
                f"Beside the verdict: {', '.join(others)} alone would reject the "
                f"posterior at the {percent(report.level)} level. The verdict does not "
                "count that: one of several methods often rejects by chance. Repeat "
                "the report with more simulations."
            )
    if "predictive" not in report.sides:
        yield (
            "Not tested: whether the posterior uses all the information in x. A "
            "posterior that discards information can pass every test of parameters, "
            f"however wide it is. {_LEFT_OUT[report.left_out]}"
        )
    if _only_data(report):
        yield (
            "Not tested: parameters. The data side does not see errors in parameters, "
            "or in combinations of them, that x does not inform. diagnose with the "
            "default methods tests them too, with many posterior draws for each x."
        )
    if report.replicates is not None and report.num_drawn < len(report.replicates):
        yield (
            f"Data side: {report.num_drawn} of {len(report.replicates)} bags test the "
            "posterior. In the other bags the true parameter stands in for a posterior "
            "draw, because the posterior could not be sampled there. They keep the "
            "p-value exact, but say nothing about the posterior."
        )
    if report.failed_share:
        text = (
            f"Simulator: it fails at {percent(report.failed_share)} of the parameters "
            "that the posterior draws. This is a finding of its own: the simulator "
            "makes no data from such parameters."
        )
        if report.replicates is not None:
            text += " The data side leaves their pairs out."
        yield text


def _where(report: DiagnosticReport) -> Iterator[str]:
    """Yield on which features of x the error depends."""
    places = dict.fromkeys(f.feature for f in report.findings if f.feature is not None)
    if not places:
        return
    names = (feature_name(place, report.x_shape) for place in places)
    text = f"Where: the error depends on {', '.join(names)}."
    if report.colt is not None and report.focus is None:
        text += " report.colt.at(x_o) tests the posterior near one observation x_o."
    yield text


def _cost(report: DiagnosticReport) -> str:
    cost = report.cost
    text = f"Cost: {cost.num_simulations} pairs of a true parameter and its x, "
    if cost.num_posterior_samples:
        draws = "draw" if cost.num_posterior_samples == 1 else "draws"
        text += f"{cost.num_posterior_samples} posterior {draws} for each x, "
    if report.replicates is not None:
        text += (
            f"{report.num_replicates} more simulations as replicates of "
            f"{len(report.replicates.mask)} xs, "
        )
    text += f"{sum(cost.seconds.values()):.1f} seconds."
    if cost.num_spent:
        text += (
            f" The run spent {cost.num_spent} simulations in all, with those that "
            "failed and a few trials of how the simulator is called."
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
        "extreme if the posterior were correct. "
    )
    if len(report.sides) == 2:
        text += (
            "The verdict is one exact p-value of colt (parameters) and predictive "
            "(data)"
        )
    elif report.sides:
        text += f"The verdict is the exact p-value of {next(iter(report.sides))}"
    else:
        text += "The verdict is the smallest p-value after Holm's adjustment"
    text += (
        ": a correct posterior is rejected with a probability of at most "
        f"{percent(report.level)}."
    )
    if report.sides and len(report.results) > len(report.sides):
        text += " The other methods are to be read beside it."
    ranked = set(report.results) & {"colt", "predictive", "sbc", "tarp", "coverage"}
    if ranked:
        text += (
            " The statistic is the largest difference between the distribution of "
            "ranks and the uniform one"
        )
        is_there = "c2st" in report.results
        text += "; that of C2ST is its classifier's accuracy." if is_there else "."
    return text


def _statistic(statistic: float) -> str:
    """Return a statistic in at most eleven characters."""
    return f"{statistic:.3f}" if abs(statistic) < 1e6 else f"{statistic:.3g}"
