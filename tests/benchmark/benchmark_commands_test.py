"""The command line of the benchmarks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sbi_colt.benchmark import commands, studies
from sbi_colt.cli import main

SHARED = {"__init__", "shared"}


def test_each_study_has_a_command_and_each_command_a_study(capsys):
    files = {path.stem for path in Path(str(studies.__file__)).parent.glob("*.py")}
    assert files - SHARED == set(commands._COMMANDS)
    for name in commands._COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main(["benchmark", name, "--help"])
        assert ended.value.code == 0
        assert len(capsys.readouterr().out.splitlines()) > 5


def test_a_study_is_imported_only_when_it_is_called():
    code = (
        "import sys; from sbi_colt.cli import main\n"
        "try: main(['benchmark', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not [n for n in sys.modules if n.startswith('sbi_colt.benchmark.') "
        "and n != 'sbi_colt.benchmark.commands'], 'imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in commands._COMMANDS)


# What each room may import: itself and the rooms to its right.
ROOMS = ["commands", "studies", "claims", "figures", "published_table", "tables"]
ROOMS += ["grid", "row_files", "methods", "posterior_zoo", "tasks"]


def test_imports_point_one_way():
    folder = Path(str(studies.__file__)).parents[1]
    for path in folder.rglob("*.py"):
        room = path.relative_to(folder).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        allowed = ROOMS[ROOMS.index(room) :]
        found = re.findall(
            r"^ *(?:from|import) sbi_colt\.benchmark(?:\.(\w+)| import (\w+))",
            path.read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        )
        for names in found:
            assert (names[0] or names[1]) in allowed, (path, names)


def test_the_commands_run_tabulate_and_plot(tmp_path, capsys):
    path = tmp_path / "results.csv"
    command = "benchmark run --task t --alpha 0 0.3 --dims 3,3 --methods sbc tarp"
    options = ["--batches", "2", "--jobs", "1", "--quiet", "--out", str(path)]
    assert main([*command.split(), *options]) == 0
    assert path.read_text().startswith(f"# sbi-colt {command}")
    assert main(["benchmark", "table", str(path)]) == 0
    assert "t, x of dimension 3" in capsys.readouterr().out
    assert main(["benchmark", "plot", str(path), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "gaussian.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--task trees", "task: expected one of mean"),
        ("--task t --methods sbb", "method: expected one of default"),
        ("--task t --alpha -1", "alpha: expected a number >= 0"),
        ("--task diffusion --alpha 0.5", "alpha: expected a number of steps"),
        ("--task mean --alpha nan", "alpha: expected a number >= 0, got nan"),
        ("--task tree --alpha inf", "alpha: expected a number >= 0, got inf"),
        ("--task modes --alpha 1.7", "alpha: expected a number >= 0 and <= 1"),
        ("--task mean --methods sbc exact-c2st", "is for trained posteriors alone"),
        ("--methods sbc --alpha 0", "--alpha, --methods: the grid without --task is"),
        ("--task tree --dims 5,5", "dims: the task 'tree' has the dimensions (1, 2)"),
        ("--paper --trained", "--trained: the grid of --paper is fixed"),
        ("--trained --task t", "--task: the grid of --trained is fixed"),
        ("--paper --batches 2", "--batches: the grid of --paper is fixed"),
    ],
)
def test_wrong_grids_get_one_clear_line(arguments, message, capsys, tmp_path):
    out = ["--out", str(tmp_path / "results.csv")]
    assert main(["benchmark", "run", *arguments.split(), *out]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "results.csv").exists()
