"""The study of findings: its table, and the true sizes that it compares with."""

import pytest
import torch

from sbi_colt.benchmark.row_files import read_rows
from sbi_colt.benchmark.studies.findings import FindingsRow, findings_lines
from sbi_colt.benchmark.tasks.error_sizes import true_size
from sbi_colt.benchmark.tasks.errors import ERRORS, NULLS, ErrorTask
from sbi_colt.cli import main
from sbi_colt.results.finding import FAMILIES


def test_the_command_writes_a_table(tmp_path, capsys):
    path = tmp_path / "findings.csv"
    options = "--dims 1 --pairs 60 --repetitions 1 --jobs 1 --quiet --kinds none"
    command = ["benchmark", "findings", *options.split(), "one shifted"]
    assert main([*command, "--out", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "one shifted" in printed
    rows = read_rows(path, FindingsRow)
    assert "\n".join(findings_lines(rows)) in printed
    assert main([*command, "--out", str(path)]) == 0  # nothing is left to do
    assert capsys.readouterr().out == printed
    assert read_rows(path, FindingsRow) == rows


def test_what_is_right_is_a_family():
    for error in ERRORS.values():
        assert error.right
        assert error.right <= set(FAMILIES)
    assert not any(error.right for error in NULLS.values())
    assert len(ERRORS) >= 20


@pytest.mark.parametrize("kind", [*ERRORS, *NULLS])
def test_tasks_have_one_error_and_finite_numbers(kind):
    generator = torch.Generator().manual_seed(0)
    task = ErrorTask(kind, {**ERRORS, **NULLS}[kind].sizes[0], 2)
    draws = task.draws(50, 20, generator)
    assert draws.samples.shape == (20, 50, 2)
    assert draws.xs.shape == (50, 3)


@pytest.mark.parametrize("kind", ["two modes merged", "skewed", "one tail"])
def test_a_merged_shape_has_the_right_mean_and_variance(kind):
    generator = torch.Generator().manual_seed(0)
    truth, _, _ = ErrorTask(kind, ERRORS[kind].sizes[1], 1).errors(
        100_000, 1, generator
    )
    assert float(truth.mean()) == pytest.approx(0, abs=0.02)
    assert float(truth.var()) == pytest.approx(1, abs=0.04)


def test_true_sizes():
    shifted = true_size(ErrorTask("one shifted", 0.4, 3, 1))
    assert (shifted.base, shifted.parameters) == ("shift", (1,))
    assert shifted.value("") == 0.4
    skewed = true_size(ErrorTask("skewed", 2.0, 1))
    assert skewed.value("skew") == pytest.approx(0.63, abs=0.01)
