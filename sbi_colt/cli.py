"""The command line: ``sbi-colt demo``, ``sbi-colt report``, ``sbi-colt benchmark``.

Exit codes of ``report``: 0 if the posterior is not rejected, 1 if it is, 2 for an
error, so that a script can rely on it. An error is one line; ``--debug`` shows where it
came from.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sbi_colt.benchmark.commands import add_benchmarks
from sbi_colt.diagnose import diagnose_draws
from sbi_colt.draws import Draws
from sbi_colt.files import write_text
from sbi_colt.methods import METHODS
from sbi_colt.sampling.replicates import FEWEST

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = _parser()
    given = list(sys.argv[1:] if arguments is None else arguments)
    # The option may stand anywhere, so the commands need not know of it.
    rest = [argument for argument in given if argument != "--debug"]
    options = parser.parse_args(rest)
    options.debug = len(rest) < len(given)
    options.command_line = shlex.join([parser.prog, *given])
    try:
        return options.run(options)
    except BrokenPipeError:  # the reader went away, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except Exception as error:  # 1 would mean that a posterior is rejected
        if options.debug:
            raise
        print(f"{parser.prog}: error: {error or type(error).__name__}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sbi-colt",
        description="Check neural posteriors with CoLT, the conditional localization "
        "test, beside SBC, TARP and C2ST. The report has exact p-values, a certified "
        "distance from the true posterior, and what is wrong and where.",
    )
    parser.add_argument(
        "--debug", action="store_true", help="show the whole traceback of an error"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_demo(commands)
    _add_report(commands)
    add_benchmarks(commands)
    return parser


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser(
        "demo",
        help="train two posteriors with sbi and show both reports",
        description="Train an NPE with sbi on a small problem, once properly and once "
        "on shuffled data, so that it cannot learn from x. Print both reports side by "
        "side and write them as HTML pages. Takes half a minute on two cores.",
    )
    demo.add_argument(
        "--quick", action="store_true", help="fewer simulations, pairs and draws"
    )
    _add_common(demo)
    demo.add_argument(
        "--out",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="folder for the two HTML pages (default: this one)",
    )
    demo.set_defaults(run=_demo)


def _add_report(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        help="print the report for draws from any framework",
        description="Test the posterior draws in an .npz file with the arrays thetas "
        "(N, d), the true parameters, xs (N, ...), their observations, and samples "
        "(S, N, d), the posterior draws at each x. For the data side, the file has "
        "thetas_of_posterior (n, d), one more draw at each of the first n xs, which "
        "must not be among samples, and replicates (M, n, ...), M data that were "
        "simulated from it; samples may then be missing. If the pairs were not "
        "simulated from the prior but from a proposal, the file needs log_weights "
        "(S + 1, N): log proposal minus log prior density of the true parameter (first "
        "row) and of each draw. Without it a correct posterior is rejected. Exit code "
        "0: the posterior is "
        "not rejected; 1: it is rejected; 2: an error.",
    )
    report.add_argument("draws", type=Path, help="the .npz file")
    report.add_argument(
        "--html", type=Path, metavar="FILE", help="write the report as an HTML page"
    )
    report.add_argument(
        "--json", type=Path, metavar="FILE", help="write the numbers as JSON"
    )
    report.add_argument(
        "--methods",
        help=f"comma-separated names from {', '.join(METHODS)} (default: all but "
        "coverage; predictive if the file has replicates)",
    )
    report.add_argument("--names", help="names of the parameters, comma-separated")
    report.add_argument(
        "--level",
        type=float,
        default=0.05,
        help="probability of rejecting a correct posterior (default: 0.05)",
    )
    _add_common(report)
    report.set_defaults(run=_report)


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seed", type=_seed, default=0, help="seed (default: 0)")
    command.add_argument("--quiet", action="store_true", help="no progress bars")


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected an integer >= 0, got {text!r}")
    return int(text)


def _demo(options: argparse.Namespace) -> int:
    from sbi_colt.demo import run_demo

    run_demo(options.seed, options.quick, not options.quiet, options.out)
    return 0


def _report(options: argparse.Namespace) -> int:
    for name in ("html", "json"):
        path = getattr(options, name)
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"--{name}: there is no folder {path.parent}.")
    names = options.names and [name.strip() for name in options.names.split(",")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        draws = Draws.load(options.draws)
    for warning in caught:
        print(f"sbi-colt: warning: {warning.message}", file=sys.stderr)
    if draws.predictive is not None and draws.predictive.num_drawn < FEWEST:
        raise ValueError(
            f"replicates: expected at least {FEWEST} xs with replicates, got "
            f"{draws.predictive.num_drawn}; simulate more, or leave replicates and "
            "thetas_of_posterior out of the file."
        )
    report = diagnose_draws(
        draws,
        methods=options.methods
        and tuple(name.strip() for name in options.methods.split(",")),
        parameter_names=names,
        level=options.level,
        seed=options.seed,
        show_progress_bar=not options.quiet,
    )
    print(report)
    if options.html is not None:
        report.to_html(options.html)
    if options.json is not None:
        write_text(options.json, json.dumps(report.to_dict(), indent=2) + "\n")
    return 1 if report.rejected else 0


if __name__ == "__main__":
    sys.exit(main())
