"""The study of focused runs: its problems, its table, and that it can be resumed."""

import pytest
import torch

from sbi_colt.benchmark.row_files import read_rows
from sbi_colt.benchmark.studies import focus
from sbi_colt.benchmark.studies.focus import (
    PROBLEMS,
    FocusKey,
    FocusRow,
    bend,
    focus_lines,
)
from sbi_colt.cli import main


def test_bending_back_is_the_inverse(generator):
    points = torch.randn(20, 3, generator=generator)
    assert torch.allclose(bend(bend(points), -1.0), points, atol=1e-5)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_posterior_is_wrong_near_x_o_alone(name):
    torch.manual_seed(0)
    problem = PROBLEMS[name]
    x_o = torch.zeros(problem.dim)
    near, far = x_o.clone(), x_o + 3
    xs = torch.stack([near, far])
    exact = problem.posterior(x_o, False)(xs, 20_000)
    wrong = problem.posterior(x_o, True)(xs, 20_000)
    if problem.is_bent:
        exact, wrong = bend(exact, -1.0), bend(wrong, -1.0)
    scale = exact.std(dim=0)  # (2, d)
    ratio = wrong.std(dim=0) / scale
    shift = (wrong.mean(dim=0) - exact.mean(dim=0)) / scale
    assert torch.allclose(ratio[0], torch.tensor(problem.width), atol=0.05)
    assert abs(float(shift[0, 0]) - problem.shift) < 0.05
    assert torch.allclose(ratio[1], torch.ones(problem.dim), atol=0.05)
    assert float(shift[1].abs().max()) < 0.05


def test_the_table_has_power_and_false_alarms():
    rows = [
        FocusRow(FocusKey("gaussian", error, method, 100, run), p_value, spent)
        for run in range(4)
        for error, method, p_value, spent in (
            ("near", "focused", 0.01, 132),
            ("near", "at", 0.01 if run else 0.5, 396),
            ("near", "lc2st", 0.5, 396),
            ("none", "focused", 0.5, 132),
        )
    ]
    lines = list(focus_lines(rows))
    assert lines[2].split() == ["gaussian", "100", "132", "1.00", "0.75", "0.00"]
    assert lines[4].split() == ["gaussian", "100", "132", "0.00"]


@pytest.mark.slow
def test_the_command_is_resumed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(focus, "_NUMBERS", (60,))
    monkeypatch.setattr(focus, "_NUM_TRIALS", 2)
    monkeypatch.setattr(focus, "_NUM_DRAWS", 150)
    path = tmp_path / "focus.csv"
    command = ["benchmark", "focus", "--runs", "1", "--jobs", "1", "--quiet", "--out"]
    assert main([*command, str(path)]) == 0
    printed = capsys.readouterr().out
    rows = read_rows(path, FocusRow)
    assert len(rows) == 8  # two problems: focused twice, and both others
    assert "\n".join(focus_lines(rows)) in printed
    assert main([*command, str(path)]) == 0  # nothing is left to do
    assert read_rows(path, FocusRow) == rows
