"""The command line: ``sbi-colt demo``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from sbi_colt.benchmark.gaussian import GaussianTask
from sbi_colt.colt import CoLT
from sbi_colt.randomness import generator_from
from sbi_colt.report import summarize

__all__ = ["main"]

_DEMO = """\
Data x ~ N(1, I) in 3 dimensions; the true posterior of θ is Gaussian, with mean
and covariance that depend on x. One estimate is exact; the other has the right
mean and shape, but a covariance 1.4 times too large. CoLT trains on 250 pairs
and tests on 250 others, with 200 posterior draws for each x.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="sbi-colt",
        description="Check neural posteriors with CoLT, the conditional localization "
        "test: exact p-values, a certified distance, and where it is wrong.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo",
        help="test a correct and a subtly wrong posterior of a known problem",
        description="Simulate a problem with a known posterior, test a correct and a "
        "subtly wrong estimate of it, and print both verdicts. Takes a few seconds.",
    )
    demo.add_argument("--seed", type=int, default=0, help="seed (default: 0)")
    demo.add_argument("--quiet", action="store_true", help="no progress bars")
    options = parser.parse_args(arguments)
    if options.seed < 0:
        parser.error(f"--seed: expected a non-negative integer, got {options.seed}")
    return _demo(options.seed, not options.quiet)


def _demo(seed: int, show_progress_bar: bool) -> int:
    print(_DEMO)
    for title, alpha in (("Correct posterior", 0.0), ("Too wide a posterior", 0.4)):
        start = time.perf_counter()
        task = GaussianTask("covariance", alpha)
        draws = task.draws(500, 200, generator_from(seed, "demo", title))
        train, test = draws.split(0.5, seed=seed)
        colt = CoLT(seed=seed).fit(train, show_progress_bar=show_progress_bar)
        result = colt.test(test)
        seconds = time.perf_counter() - start
        print(f"{title} ({seconds:.1f} s)\n{'-' * 80}\n{summarize(result)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
