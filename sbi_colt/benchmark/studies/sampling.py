"""Time draws of a posterior that leaks out of its prior, here and in sbi.

sbi's side is its own sample_batched (a minute or two). With --all, every kind of
posterior is timed too (about 30 minutes, mostly in samplers that take one x at a time).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import torch
from sbi.inference.posteriors import DirectPosterior
from sbi.utils import BoxUniform
from sbi.utils.diagnostics_utils import get_posterior_samples_on_batch

from sbi_colt.benchmark.posterior_zoo import ZOO, exhibit
from sbi_colt.benchmark.studies.shared import flag, seconds_of
from sbi_colt.benchmark.tables import aligned
from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.sampling.at_xs import draw_posterior_samples

OPTIONS = {"--all": flag("time every kind of posterior too")}
# Samplers that take one x at a time are timed on few xs, and their times scaled up.
_FEW_XS = {
    **dict.fromkeys(("nle, slice", "nle, iid trials", "nle, vi"), 1),
    "nle, rejection": 2,
    **dict.fromkeys(("nle, vectorised slice", "nre, vectorised slice"), 10),
    **dict.fromkeys(("npse, sde", "npse, ode", "fmpe, ode", "fmpe, sde"), 10),
    **dict.fromkeys(("nle, importance", "mnle"), 10),
}
_QUIET = {"seed": 0, "show_progress_bar": False}


def run(options: argparse.Namespace) -> Iterator[str]:
    """Yield the times."""
    yield _leakage_line()
    if options.all:
        yield from _zoo_lines()


def _zoo_lines(num_xs: int = 100, num_samples: int = 500) -> Iterator[str]:
    """Yield a table of seconds, here and by sbi's own helper."""
    yield f"Seconds for {num_xs} xs x {num_samples} draws (* scaled up from fewer xs)"
    widths = (24, 10, 10, 12)
    yield aligned(("posterior", "here", "sbi", "sbi / here"), *widths)
    for name in ZOO:
        few = min(num_xs, _FEW_XS.get(name, num_xs))
        q = exhibit(name).posterior
        xs = exhibit(name).observe(few, generator_from(0, "benchmark", name))
        size = torch.Size((num_samples,))
        here = _seconds(partial(draw_posterior_samples, q, xs, num_samples, **_QUIET))
        theirs = _seconds(partial(get_posterior_samples_on_batch, xs, q, size))
        star = "*" if few < num_xs else " "
        times = [
            f"{'fails' if t is None else format(num_xs / few * t, '.2f')}{star}"
            for t in (here, theirs)
        ]
        ratio = f"{theirs / here:.1f}" if here and theirs else ""
        yield aligned((name, *times, ratio), *widths)


def _leakage_line(num_xs: int = 500, num_samples: int = 500) -> str:
    """Return a line on an NPE posterior whose prior is a box.

    At most xs nearly all draws lie inside the box. At 1% of the xs, about one draw in a
    hundred does.
    """
    estimator = exhibit("npe-mdn").posterior.posterior_estimator
    box = BoxUniform(-2.5 * torch.ones(2), 2.5 * torch.ones(2))
    posterior = DirectPosterior(estimator, box)
    xs = 0.5 * torch.randn(num_xs, 2, generator=generator_from(0, "leakage"))
    xs[: max(1, num_xs // 100)] = torch.tensor([4.5, 4.0])
    ours = partial(draw_posterior_samples, min_acceptance=1e-6, **_QUIET)
    theirs = partial(posterior.sample_batched, show_progress_bars=False)
    here = _seconds(partial(ours, posterior, xs, num_samples))
    sbi = _seconds(partial(theirs, torch.Size((num_samples,)), xs))
    assert here is not None
    assert sbi is not None
    return (
        f"1% of {num_xs} xs leak heavily, {num_samples} draws each: "
        f"here {here:.2f} s, sbi's sample_batched {sbi:.2f} s, "
        f"{sbi / here:.1f} times faster"
    )


def _seconds(call: Callable[[], object]) -> float | None:
    """Return the seconds that a call takes, or `None` if it fails."""
    with isolated_rng(generator_from(0, "benchmark")), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return seconds_of(call)
        except (RuntimeError, ValueError, NotImplementedError):
            return None
