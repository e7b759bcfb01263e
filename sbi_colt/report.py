"""Results in words."""

from __future__ import annotations

from sbi_colt.results import CoLTResult

__all__ = ["summarize"]


def summarize(result: CoLTResult, level: float = 0.05) -> str:
    """Return a result as a few lines of text, at most 80 columns wide.

    Args:
        result: What `run_colt` or `CoLT.test` returned.
        level: Level of the verdict.
    """
    rejected = result.p_value <= level
    where = result.localize()
    # Several probes' p-value comes from re-drawing and cannot fall below 1/(B + 1).
    resolution = 1 / (result.config.num_redraws + 1)
    p_value = f"p = {result.p_value:.2g}"
    if len(result.probes) > 1:
        p_value += f" (resolution {resolution:.1g})"
    lines = [
        f"CoLT: {'REJECTED' if rejected else 'not rejected'} at level {level:g}; "
        f"{p_value}",
        f"  {result.num_test} test pairs, {result.num_train} training pairs, "
        f"{result.num_posterior_samples} draws per x",
    ]
    if rejected:
        side = "more" if where.sign > 0 else "less"
        lines += [
            f"  Worst ball (probe {where.probe!r}): {where.mass_q:.0%} of q, "
            f"about {where.mass_p:.0%} of the true posterior ({side})",
            f"  At least {result.distance_lower:.0%} of posterior mass is misplaced "
            f"there ({result.config.confidence:.0%} confidence)"
            if result.distance_lower > 0
            else "  No lower bound on the distance can be certified at this budget",
        ]
    lines += ["", f"  {'probe':<14}{'KS statistic':>14}{'p-value':>12}"]
    lines += [
        f"  {probe.name:<14}{probe.statistic:>14.3f}{probe.p_value:>12.2g}"
        for probe in result.probes
    ]
    return "\n".join(lines)
