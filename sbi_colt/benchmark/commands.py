"""The command line of the benchmarks: ``sbi-colt benchmark …``.

To add a command, write a file in ``studies`` with the command's name (see
`sbi_colt.benchmark.studies`) and add one line to `_COMMANDS`. A study is imported only
when its command is called, so that the other commands start fast.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

__all__ = ["add_benchmarks"]

_COMMANDS = {
    "run": "power on the paper's tasks, resumed if it was interrupted",
    "table": "print results as tables, beside the paper's numbers",
    "plot": "plot power curves",
    "power": "power of every method at the paper's budget, as one table",
    "efficiency": "power by the number of simulations",
    "share": "power by the share of the pairs that is used for training",
    "ablation": "which probes the default needs, and how long each takes",
    "cost": "time of the default beside C2ST, and how it grows",
    "speed": "time of a whole report beside sbi's SBC and TARP",
    "rates": "false alarms and misses of sbi's own checks, and of ours",
    "published": "posteriors of sbi on problems of the sbi benchmark, and their truth",
    "sampling": "time of posterior draws, here and in sbi",
    "predictive": "features and probes of the data side, on many simulators",
    "findings": "what is named for posteriors with one known error each",
    "named": "what is named for posteriors of the sbi benchmark, and is it true",
    "advice": "does the advice of a report help, for defects of trained posteriors",
    "plausibility": "could the simulator have made x_o: level and power beside sbi",
    "focus": "power at one observation: focused, at and sbi's LC2ST",
    "observations": "distances at observations beside the truth there",
    "curvature": "how strongly the curved family is bent",
}


def add_benchmarks(commands: Any) -> None:
    """Add the benchmarks to the subparsers of a command line."""
    text = "Measure speed and power of this package, beside sbi and the CoLT paper."
    benchmark = commands.add_parser(
        "benchmark", help="measure speed and power", description=text
    )
    benchmarks = benchmark.add_subparsers(
        dest="benchmark", required=True, parser_class=_StudyParser
    )
    for name, help_text in _COMMANDS.items():
        benchmarks.add_parser(name, help=help_text).study = name


class _StudyParser(argparse.ArgumentParser):
    """The parser of one study, which imports the study when it is asked to parse."""

    study = ""

    def parse_known_args(self, *args: Any, **kept: Any) -> Any:
        """Add the study's description and options, then parse."""
        study = import_module(f"sbi_colt.benchmark.studies.{self.study}")
        self.description = study.__doc__
        for flag, settings in study.OPTIONS.items():
            self.add_argument(flag, **settings)

        def run(options: argparse.Namespace) -> int:
            for line in study.run(options):
                print(line, flush=True)
            return 0

        self.set_defaults(run=run)
        return super().parse_known_args(*args, **kept)
