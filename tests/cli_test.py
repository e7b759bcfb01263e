import subprocess
import sys

import pytest

from sbi_colt.cli import main


def test_demo_tells_the_two_posteriors_apart(capsys):
    assert main(["demo", "--quiet"]) == 0
    output = capsys.readouterr().out
    correct, wide = output.split("Too wide a posterior")
    assert "not rejected" in correct
    assert "REJECTED" in wide
    assert "of posterior mass is misplaced" in wide
    assert max(map(len, output.splitlines())) <= 80


def test_help_stands_alone(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "demo" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["dmo"], ["demo", "--seed", "-1"]])
def test_wrong_arguments_exit_with_2_and_one_clear_line(capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "error: " in capsys.readouterr().err.splitlines()[-1]


def test_the_module_runs_as_a_script():
    done = subprocess.run(
        [sys.executable, "-m", "sbi_colt.cli", "demo", "--help"], capture_output=True
    )
    assert done.returncode == 0
