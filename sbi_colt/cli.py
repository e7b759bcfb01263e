"""The command line: ``sbi-colt demo``, ``sbi-colt report``, ``sbi-colt benchmark``.

Exit codes of ``report``: 0 where nothing is rejected, 1 where something is, 2 for bad
input, so that it can guard a pipeline.
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

from sbi_colt.benchmark.commands import add_benchmarks
from sbi_colt.diagnose import METHODS, diagnose_draws
from sbi_colt.draws import Draws

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    given = sys.argv[1:] if arguments is None else arguments
    options.command_line = shlex.join([parser.prog, *given])
    try:
        return options.run(options)
    except BrokenPipeError:  # the reader went away, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except Exception as error:  # 1 would mean that a posterior is rejected
        print(f"{parser.prog}: error: {error or type(error).__name__}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sbi-colt",
        description="Check neural posteriors with CoLT, the conditional localization "
        "test, beside SBC, TARP and C2ST: exact p-values, a certified distance, and "
        "where it is wrong.",
    )
    commands = parser.add_subparsers(dest="command", required=True)

    demo = commands.add_parser(
        "demo",
        help="train two posteriors with sbi and show both reports",
        description="Train an NPE with sbi on a small problem, once properly and once "
        "without letting it see x; print both reports side by side and write them as "
        "HTML. Half a minute on two cores.",
    )
    demo.add_argument("--quick", action="store_true", help="less of everything")
    demo.add_argument("--seed", type=_seed, default=0, help="seed (default: 0)")
    demo.add_argument("--quiet", action="store_true", help="no progress bars")
    demo.add_argument(
        "--out",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="where to write the two HTML files (default: here)",
    )
    demo.set_defaults(run=_demo)

    report = commands.add_parser(
        "report",
        help="the whole report for draws from any framework",
        description="Test the draws in an .npz file with arrays thetas (N, d), xs "
        "(N, ...) and samples (S, N, d), from any framework. Exit code 0: nothing is "
        "rejected; 1: something is; 2: bad input.",
    )
    report.add_argument("draws", type=Path, help="the .npz file")
    report.add_argument("--html", type=Path, metavar="FILE", help="write a page")
    report.add_argument("--json", type=Path, metavar="FILE", help="write the numbers")
    report.add_argument(
        "--methods",
        default="colt,sbc,tarp,c2st",
        help=f"comma-separated, of {', '.join(METHODS)} (default: %(default)s)",
    )
    report.add_argument("--names", help="names of the parameters, comma-separated")
    report.add_argument("--level", type=float, default=0.05, help="default: 0.05")
    report.add_argument("--seed", type=_seed, default=0, help="seed (default: 0)")
    report.add_argument("--quiet", action="store_true", help="no progress bars")
    report.set_defaults(run=_report)

    add_benchmarks(commands)
    return parser


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
    report = diagnose_draws(
        draws,
        methods=tuple(name.strip() for name in options.methods.split(",")),
        parameter_names=names,
        level=options.level,
        seed=options.seed,
        show_progress_bar=not options.quiet,
    )
    print(report)
    if options.html is not None:
        report.to_html(options.html)
    if options.json is not None:
        options.json.write_text(json.dumps(report.to_dict(), indent=2) + "\n")
    return 1 if report.rejected else 0


if __name__ == "__main__":
    sys.exit(main())
