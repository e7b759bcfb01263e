"""The command line of the benchmarks: ``sbi-colt benchmark …``.

What a benchmark needs is imported when it runs, so that the other commands start fast.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

__all__ = ["add_benchmarks"]


def add_benchmarks(commands: Any, seed: Callable[[str], int]) -> None:
    """Add the benchmarks to a command line.

    Args:
        commands: The subparsers of its commands.
        seed: The type of a seed.
    """
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
        "paper and on posteriors that sbi trained. Without --task: a grid of the "
        "paper's tasks for two cores and an hour or so. Cells that the file has are "
        "not run again.",
    )
    run.add_argument("--task", nargs="+", metavar="NAME", help="names of tasks")
    run.add_argument("--alpha", nargs="+", type=float, help="sizes of the error")
    _add_dims(run, "dimensions of x and theta, such as 3,3 10,10")
    run.add_argument("--methods", nargs="+", metavar="NAME", help="names of methods")
    run.add_argument("--seeds", nargs="+", type=seed, help="default: 0")
    run.add_argument("--batches", type=_positive, help="test batches (default: 100)")
    run.add_argument(
        "--draws-per-step",
        type=_positive,
        help="draws that the paper's variants see in a training step (default: all)",
    )
    run.add_argument(
        "--trained",
        action="store_true",
        help="posteriors that sbi trained, instead of the paper's tasks (half an hour "
        "on two cores)",
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
            "none, in four dimensions, and the tree, and print the table with its "
            "means (four hours on two cores). Cells that the file has are not run "
            "again.",
        ),
        (
            "efficiency",
            "power by the number of simulations",
            "Measure the power of the default and of the paper's variants on one hard "
            "cell with 50 to 3000 simulations, half of them for training (half an "
            "hour on two cores). Cells that the file has are not run again.",
        ),
    ):
        grid = benchmarks.add_parser(name, help=help_text, description=description)
        _add_grid_options(grid, Path(f"{name}.csv"))
        if name == "power":
            _add_dims(grid, "only these dimensions of x and theta, without the tree")
            grid.add_argument(
                "--plot", type=Path, metavar="FILE", help="write a figure of the means"
            )
        grid.set_defaults(run=_benchmark_grid)
    cost = benchmarks.add_parser(
        "cost",
        help="time the default beside C2ST, and how it grows",
        description="Time fit and test of the default on 100 pairs with 500 draws, "
        "beside C2ST with 1000 epochs, and the exponents of its growth in the numbers "
        "of pairs, draws and parameters (a minute).",
    )
    cost.add_argument("--quiet", action="store_true", help="no progress bar")
    cost.set_defaults(run=_benchmark_cost)
    share = benchmarks.add_parser(
        "share",
        help="how many of the pairs to train on",
        description="Measure power by the share of the pairs that is trained on, of "
        "the test pairs alone and of every pair (a quarter of an hour on two cores).",
    )
    share.add_argument(
        "--jobs", type=_positive, default=2, help="processes (default: 2)"
    )
    share.set_defaults(run=_benchmark_share)
    ablation = benchmarks.add_parser(
        "ablation",
        help="which probes carry the default, and what they cost",
        description="Measure the default's power with one of its probes left out, and "
        "with others added, and how long each takes to be fitted (six minutes on two "
        "cores).",
    )
    ablation.add_argument(
        "--jobs", type=_positive, default=2, help="processes (default: 2)"
    )
    ablation.add_argument("--quiet", action="store_true", help="no progress bar")
    ablation.set_defaults(run=_benchmark_ablation)
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


def _add_dims(parser: argparse.ArgumentParser, help_text: str) -> None:
    parser.add_argument(
        "--dims", nargs="+", type=_dims, metavar="X,THETA", help=help_text
    )


def _add_grid_options(parser: argparse.ArgumentParser, path: Path) -> None:
    parser.add_argument(
        "--jobs", type=_positive, default=2, help="processes (default: 2)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument(
        "--out",
        type=Path,
        default=path,
        metavar="FILE",
        help="the CSV file (default: %(default)s)",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, got {text!r}")
    return int(text)


def _dims(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"expected two sizes such as 3,3, got {text}")
    return int(parts[0]), int(parts[1])


def _show(lines: Iterable[str]) -> int:
    for line in lines:
        print(line, flush=True)
    return 0


def _benchmark_sampling(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.studies.sampling import compare_leakage, compare_zoo

    _show([compare_leakage()])
    return _show(compare_zoo() if options.all else ())


def _benchmark_speed(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.studies.speed import compare_speed

    return _show(compare_speed())


def _benchmark_rates(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.studies.rates import compare_rates

    return _show(compare_rates(show_progress_bar=not options.quiet))


def _benchmark_curvature(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.tasks.curved import curvature_lines

    return _show(curvature_lines())


def _check_fixed(options: argparse.Namespace) -> None:
    """Raise if options are given that a fixed grid would not heed."""
    names = ["alpha", "dims", "methods", "batches", "draws_per_step"]
    if options.paper:
        grid, names = "of --paper", [*names, "task", "seeds", "trained"]
    elif options.trained:
        grid, names = "of --trained", [*names, "task"]
    elif options.task is None:
        grid = "without --task"
    else:
        return
    given = [name for name in names if getattr(options, name) not in (None, False)]
    if given:
        shown = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"{shown}: the grid {grid} is fixed.")


def _benchmark_run(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.grid.cells import (
        default_cells,
        make_cells,
        paper_cells,
        trained_cells,
    )
    from sbi_colt.benchmark.grid.runner import run_cells

    _check_fixed(options)
    if options.paper:
        cells = paper_cells()
    elif options.trained:
        cells = trained_cells(options.seeds or (0,))
    elif options.task is None:
        cells = default_cells(options.seeds or (0,))
    else:
        cells = make_cells(
            options.task,
            options.alpha,
            options.dims,
            options.methods,
            options.seeds or (0,),
            options.batches or 100,
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
    from sbi_colt.benchmark.grid.runner import run_cells
    from sbi_colt.benchmark.studies import power

    plot = getattr(options, "plot", None)
    if plot and not plot.parent.is_dir():
        raise ValueError(f"--plot: there is no folder {plot.parent}.")
    if options.benchmark == "power":
        cells, lines = power.power_cells(options.dims), power.power_lines
    else:
        cells, lines = power.efficiency_cells(), power.efficiency_lines
    rows = run_cells(
        cells,
        options.out,
        num_workers=options.jobs,
        command=options.command_line,
        show_progress_bar=not options.quiet,
    )
    asked = set(cells)  # the file may have others
    rows = [row for row in rows if row.cell in asked]
    _show(lines(rows))
    if plot:
        power.plot_power(rows).savefig(plot, dpi=100)
    return 0


def _benchmark_cost(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.studies.power import cost_lines

    return _show(cost_lines(show_progress_bar=not options.quiet))


def _benchmark_share(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.studies.share import share_lines

    return _show(share_lines(num_workers=options.jobs))


def _benchmark_ablation(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.studies.ablation import ablation_lines

    return _show(
        ablation_lines(num_workers=options.jobs, show_progress_bar=not options.quiet)
    )


def _benchmark_table(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.grid.rows import read_rows
    from sbi_colt.benchmark.tables import table_lines

    return _show(table_lines(read_rows(options.results)))


def _benchmark_plot(options: argparse.Namespace) -> int:
    from sbi_colt.benchmark.grid.rows import read_rows
    from sbi_colt.benchmark.tables import plot_results

    paths = plot_results(read_rows(options.results), options.out)
    nothing = "No curves in these results; sbi-colt benchmark table prints them."
    return _show(map(str, paths or [nothing]))
