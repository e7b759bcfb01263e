"""The study of names for posteriors of the sbi benchmark."""

import pytest

from sbi_colt.benchmark.row_files import read_rows
from sbi_colt.benchmark.studies import named
from sbi_colt.benchmark.studies.named import NamedKey, NamedRow, named_lines
from sbi_colt.benchmark.tasks.published.trained import TRAINED, Trained
from sbi_colt.cli import main
from sbi_colt.results.finding import Finding

WHICH = Trained("two-moons", "npe-maf", 1000)


def row(seed, families, parameters, agrees):
    return NamedRow(
        NamedKey(WHICH, seed), 0.8, 0.01, families, "it", parameters, agrees
    )


def test_what_comes_back_and_what_agrees():
    rows = [
        row(0, "shape; width", "0+1; 2", "1"),
        row(1, "width; shape", "2; 1", "1"),
        row(2, "shape", "2", "0"),
        row(3, "", "", ""),
    ]
    lines = list(named_lines(rows))
    assert lines[1].split()[3:] == ["0.80", "3/4", "2/3", "0.83", "0.33"]
    assert "in 2 of 3 runs" in lines[-3]


@pytest.mark.slow
@pytest.mark.long
def test_the_command_compares_with_true_draws(tmp_path, monkeypatch, capsys):
    which = [
        one for one in TRAINED if one == Trained("gaussian-linear", "npe-maf", 1000)
    ]
    monkeypatch.setattr(named, "TRAINED", which)
    path = tmp_path / "named.csv"
    command = ["benchmark", "named", "--seeds", "1", "--quiet", "--out", str(path)]
    assert main([*command, "--models", str(tmp_path)]) == 0
    (found,) = read_rows(path, NamedRow)
    assert "gaussian-linear npe-maf 1k" in capsys.readouterr().out
    assert found.p_value < 0.05
    # Its true draws are N(x / 2, 0.05): a finding in the other direction is refused.
    posterior, _ = named.load_or_train(which[0], tmp_path)
    wide = Finding("width", 0.01, tuple(range(10)), sign=1, size=1.1, unit="ratio")
    narrow = Finding("width", 0.01, tuple(range(10)), sign=-1, size=0.9, unit="ratio")
    answers = [
        named._agrees(one, which[0], posterior, tmp_path) for one in (wide, narrow)
    ]
    assert sorted(answers) == [False, True]
