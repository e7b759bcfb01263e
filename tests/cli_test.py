import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.cli import main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("draws")
    for name, alpha in (("good", 0.0), ("bad", 2.0)):
        task = GaussianTask("covariance", alpha)
        draws = task.draws(200, 50, torch.Generator().manual_seed(1))
        draws.save(folder / f"{name}.npz")
    return folder


def test_demo_tells_the_two_posteriors_apart(capsys, tmp_path):
    assert main(["demo", "--quick", "--quiet", "--out", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "PROPER" in output.splitlines()[5]
    columns = output.split("\nPROPER")[1].split("-" * 80)[0].splitlines()
    proper = " ".join(line[:41] for line in columns[1:])
    blind = [line[41:] for line in columns[1:]]
    assert "not rejected at the 5%" in proper
    assert "What is wrong: it ignores x (correcting" in " ".join(blind)
    p_values = {line.split()[0]: line.split()[1] for line in blind[4:10]}
    assert float(p_values["sbc"]) > 0.05
    assert float(p_values["tarp"]) > 0.05
    assert float(p_values["colt"]) < 0.01
    assert float(p_values["predictive"]) < 0.01
    assert "proper is closer than blind" in output
    text = [line for line in output.splitlines() if str(tmp_path) not in line]
    assert max(map(len, text)) <= 80
    assert len(list(tmp_path.glob("*.html"))) == 2


def test_report_exits_with_the_verdict(files, capsys):
    assert main(["report", str(files / "good.npz"), "--quiet"]) == 0
    assert main(["report", str(files / "bad.npz"), "--quiet"]) == 1
    assert "REJECTED" in capsys.readouterr().out


def test_report_writes_a_page_and_numbers(files, tmp_path):
    page, numbers = tmp_path / "out.html", tmp_path / "out.json"
    arguments = ["report", str(files / "bad.npz"), "--quiet", "--methods", "sbc,tarp"]
    assert main([*arguments, "--html", str(page), "--json", str(numbers)]) == 1
    assert "<html" in page.read_text()
    assert set(json.loads(numbers.read_text())["methods"]) == {"sbc", "tarp"}


def test_report_takes_weights(tmp_path, capsys):
    """θ ~ N(0, 1), x = θ + noise; pairs come from N(1, 1), with and without weights."""
    generator = np.random.default_rng(0)
    thetas = 1 + generator.standard_normal((300, 1))
    xs = thetas + generator.standard_normal((300, 1))
    samples = xs / 2 + 0.5**0.5 * generator.standard_normal((400, 300, 1))
    members = np.concatenate([thetas[None], samples])[..., 0]
    arrays = {"thetas": thetas, "xs": xs, "samples": samples}
    np.savez(tmp_path / "naive.npz", **arrays)
    np.savez(tmp_path / "weighted.npz", log_weights=members - 0.5, **arrays)
    options = ["--quiet", "--methods", "colt,sbc"]
    assert main(["report", str(tmp_path / "naive.npz"), *options]) == 1
    assert main(["report", str(tmp_path / "weighted.npz"), *options]) == 0
    assert "pairs from your proposal, with weights" in capsys.readouterr().out
    np.savez(tmp_path / "wrong.npz", log_weights=members[1:], **arrays)
    assert main(["report", str(tmp_path / "wrong.npz"), *options]) == 2
    assert "log_weights: expected shape (401, 300)" in capsys.readouterr().err


def wrong_file(folder, kind):
    path = folder / f"{kind}.npz"
    if kind == "text":
        path.write_text("no archive")
    elif kind == "missing":
        np.savez(path, thetas=np.zeros((3, 1)))
    elif kind == "shapes":
        np.savez(path, thetas=np.zeros((3, 1)), xs=np.zeros(3), samples=np.zeros(3))
    return path


@pytest.mark.parametrize("kind", ["text", "missing", "shapes", "absent"])
def test_wrong_files_get_one_clear_line(kind, tmp_path, capsys):
    assert main(["report", str(wrong_file(tmp_path, kind)), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("sbi-colt: error: ")
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    "options", [["--methods", "colt,none"], ["--level", "7"], ["--html", "/no/x.html"]]
)
def test_wrong_options_get_one_clear_line(options, files, capsys):
    arguments = ["report", str(files / "good.npz"), "--quiet", "--methods", "tarp"]
    assert main([*arguments, *options]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["demo", "report", "benchmark", "--debug"]),
        (["demo", "--help"], ["--quick", "--out", "shuffled data"]),
        (
            ["report", "-h"],
            [
                "samples (S, N, d)",
                "log_weights (S + 1, N)",
                "--html",
                "Exit code 0",
                "--level",
            ],
        ),
    ],
)
def test_help_names_what_there_is(capsys, arguments, words):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert [word for word in words if word not in text] == []


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


def test_an_unexpected_error_is_not_a_rejection(files, capsys, monkeypatch):
    def broken(*arguments, **options):
        raise FloatingPointError("a statistic is NaN")

    monkeypatch.setattr("sbi_colt.cli.diagnose_draws", broken)
    assert main(["report", str(next(files.glob("*.npz")))]) == 2
    assert capsys.readouterr().err == "sbi-colt: error: a statistic is NaN\n"


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [1, 2, 0]])
def test_debug_lets_the_traceback_through(order, tmp_path):
    words = ["--debug", "report", str(tmp_path / "absent.npz")]
    with pytest.raises(FileNotFoundError, match="absent"):
        main([words[i] for i in order])


def test_numbers_that_cannot_be_written_leave_the_old_ones(
    files, tmp_path, monkeypatch, capsys
):
    def fail(*arguments):
        raise OSError("the disk is full")

    numbers = tmp_path / "out.json"
    numbers.write_text("old")
    monkeypatch.setattr("os.replace", fail)
    arguments = ["report", str(files / "bad.npz"), "--quiet", "--methods", "sbc"]
    assert main([*arguments, "--json", str(numbers)]) == 2
    assert numbers.read_text() == "old"
    assert "the disk is full" in capsys.readouterr().err


def test_a_missing_folder_is_noticed_before_the_work(files, capsys, tmp_path):
    arguments = ["report", str(next(files.glob("*.npz")))]
    assert main([*arguments, "--html", str(tmp_path / "none" / "a.html")]) == 2
    assert "--html: there is no folder" in capsys.readouterr().err
