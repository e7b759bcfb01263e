"""The command line: ``sbi-colt demo`` and ``sbi-colt benchmark``."""

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
    benchmark = commands.add_parser(
        "benchmark",
        help="measure speed and power",
        description="Measure this package against other means, in one run.",
    )
    benchmarks = benchmark.add_subparsers(dest="benchmark", required=True)
    sampling = benchmarks.add_parser(
        "sampling",
        help="time posterior draws, here and by sbi",
        description="Time posterior draws under leakage, here and by sbi's own "
        "sample_batched (a few seconds); with --all, for every kind of posterior "
        "(some 30 minutes, most of it in samplers that take one x at a time).",
    )
    sampling.add_argument("--all", action="store_true", help="every kind of posterior")
    options = parser.parse_args(arguments)
    if options.command == "benchmark":
        return _benchmark_sampling(options.all)
    if options.seed < 0:
        parser.error(f"--seed: expected a non-negative integer, got {options.seed}")
    return _demo(options.seed, not options.quiet)


def _benchmark_sampling(every_kind: bool) -> int:
    from sbi_colt.benchmark.sampling import compare_leakage, compare_zoo

    print(compare_leakage(), flush=True)
    if every_kind:
        for line in compare_zoo():
            print(line, flush=True)
    return 0


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
