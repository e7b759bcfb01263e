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
from typing import Any

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
        "HTML. About a minute on two cores.",
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

    _add_benchmarks(commands)
    return parser


def _add_benchmarks(commands: Any) -> None:
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
        "sample_batched (a minute or two); with --all, for every kind of posterior "
        "(some 30 minutes, most of it in samplers that take one x at a time).",
    )
    sampling.add_argument("--all", action="store_true", help="every kind of posterior")
    sampling.set_defaults(run=_benchmark_sampling)
    speed = benchmarks.add_parser(
        "speed",
        help="time a whole report beside sbi's SBC and TARP",
        description="Time diagnose with its four methods, and sbi's run_sbc, "
        "check_sbc, run_tarp and check_tarp, on one NPE posterior of 5 parameters, 500 "
        "pairs and 1000 draws, in turns (two or three minutes). The ratio is ours by "
        "sbi's.",
    )
    speed.set_defaults(run=_benchmark_speed)
    rates = benchmarks.add_parser(
        "rates",
        help="false alarms and misses of sbi's own checks, and of ours",
        description="Measure how often sbi's check_sbc and check_tarp, and the same "
        "diagnostics here, reject a correct posterior and one that is too wide, on the "
        "same draws (five minutes).",
    )
    rates.add_argument("--quiet", action="store_true", help="no progress bars")
    rates.set_defaults(run=_benchmark_rates)
    curvature = benchmarks.add_parser(
        "curvature",
        help="how much the curved family is bent",
        description="Measure the total curvature of principal curves through bivariate "
        "Gaussians, before and after the map of the curved family (half a minute).",
    )
    curvature.set_defaults(run=_benchmark_curvature)
    run = benchmarks.add_parser(
        "run",
        help="measure power on the paper's tasks, and go on where it stopped",
        description="Measure how often each method rejects, on the tasks of the CoLT "
        "paper and on posteriors that sbi trained. Without --task: a grid for two "
        "cores and an hour or two. Cells that the file has are not run again.",
    )
    run.add_argument("--task", nargs="+", metavar="NAME", help="names of tasks")
    run.add_argument("--alpha", nargs="+", type=float, help="sizes of the error")
    run.add_argument(
        "--dims",
        nargs="+",
        type=_dims,
        metavar="X,THETA",
        help="dimensions of x and theta, such as 3,3 10,10",
    )
    run.add_argument("--methods", nargs="+", metavar="NAME", help="names of methods")
    run.add_argument("--seeds", nargs="+", type=_seed, default=[0], help="default: 0")
    run.add_argument(
        "--batches", type=_positive, default=100, help="test batches (default: 100)"
    )
    run.add_argument(
        "--draws-per-step",
        type=_positive,
        help="draws that the paper's variants see in a training step (default: all)",
    )
    run.add_argument(
        "--paper",
        action="store_true",
        help="the paper's whole grid: all sizes and dimensions, 3 seeds, 200 batches "
        "(days on two cores)",
    )
    _add_grid_options(run, Path("results.csv"))
    run.set_defaults(run=_benchmark_run)
    for name, help_text, description in (
        (
            "power",
            "power of every method at the paper's budget, as one table",
            "Measure power on both families, all perturbations, the blind prior and "
            "none, in four dimensions, and print the table with its means (four hours "
            "on two cores). Cells that the file has are not run again.",
        ),
        (
            "efficiency",
            "power by the number of simulations",
            "Measure the power of the default and of the paper's variants on one hard "
            "cell with 50 to 3000 simulations, half of them for training (an hour on "
            "two cores). Cells that the file has are not run again.",
        ),
    ):
        grid = benchmarks.add_parser(name, help=help_text, description=description)
        _add_grid_options(grid, Path(f"{name}.csv"))
        grid.set_defaults(run=_benchmark_grid)
    cost = benchmarks.add_parser(
        "cost",
        help="time the default beside C2ST, and how it grows",
        description="Time fit and test of the default on 100 pairs with 500 draws, "
        "beside C2ST with 1000 epochs, and the exponents of its growth in the numbers "
        "of pairs, draws and parameters (two minutes).",
    )
    cost.add_argument("--quiet", action="store_true", help="no progress bar")
    cost.set_defaults(run=_benchmark_cost)
    table = benchmarks.add_parser(
        "table",
        help="print results as tables, beside the paper's figures",
        description="Print the power in a file of sbi-colt benchmark run, with "
        "standard errors, and the paper's figures below ours where it has any. A star: "
        "they differ by more than two standard errors.",
    )
    table.add_argument("results", type=Path, help="the CSV file")
    table.set_defaults(run=_benchmark_table)
    plot = benchmarks.add_parser(
        "plot",
        help="draw power curves",
        description="Draw the power curves in a file of sbi-colt benchmark run.",
    )
    plot.add_argument("results", type=Path, help="the CSV file")
    plot.add_argument(
        "--out",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="where to write the figures (default: here)",
    )
    plot.set_defaults(run=_benchmark_plot)


def _add_grid_options(parser: argparse.ArgumentParser, path: Path) -> None:
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument(
        "--out",
        type=Path,
        default=path,
        metavar="FILE",
        help="the CSV file (default: %(default)s)",
    )


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected an integer >= 0, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, got {text!r}")
    return int(text)


def _dims(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"expected two sizes such as 3,3, got {text}")
    return int(parts[0]), int(parts[1])


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


def _benchmark_sampling(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.sampling import compare_leakage, compare_zoo

    print(compare_leakage(), flush=True)
    if options.all:
        for line in compare_zoo():
            print(line, flush=True)
    return 0


def _benchmark_speed(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.speed import compare_speed

    for line in compare_speed():
        print(line, flush=True)
    return 0


def _benchmark_rates(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.rates import compare_rates

    for line in compare_rates(show_progress_bar=not options.quiet):
        print(line, flush=True)
    return 0


def _benchmark_curvature(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.curved import curvature_lines

    for line in curvature_lines():
        print(line, flush=True)
    return 0


def _benchmark_run(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.runner import (
        default_cells,
        make_cells,
        paper_cells,
        run_cells,
    )

    if options.paper:
        cells = paper_cells()
    elif options.task is None:
        cells = default_cells(options.seeds)
    else:
        cells = make_cells(
            options.task,
            options.alpha,
            options.dims,
            options.methods,
            options.seeds,
            options.batches,
            options.draws_per_step,
        )
    run_cells(
        cells,
        options.out,
        num_workers=options.jobs,
        command=options.command_line,
        show_progress_bar=not options.quiet,
    )
    print(f"{len(cells)} cells in {options.out}")
    return 0


def _benchmark_grid(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark import power
    from sbi_colt.benchmark.runner import run_cells

    cells, lines = {
        "power": (power.power_cells, power.power_lines),
        "efficiency": (power.efficiency_cells, power.efficiency_lines),
    }[options.benchmark]
    rows = run_cells(
        cells(),
        options.out,
        num_workers=options.jobs,
        command=options.command_line,
        show_progress_bar=not options.quiet,
    )
    for line in lines(rows):
        print(line)
    return 0


def _benchmark_cost(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.power import cost_lines

    for line in cost_lines(show_progress_bar=not options.quiet):
        print(line, flush=True)
    return 0


def _benchmark_table(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.runner import read_rows
    from sbi_colt.benchmark.tables import table_lines

    for line in table_lines(read_rows(options.results)):
        print(line)
    return 0


def _benchmark_plot(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.runner import read_rows
    from sbi_colt.benchmark.tables import plot_results

    for path in plot_results(read_rows(options.results), options.out):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
