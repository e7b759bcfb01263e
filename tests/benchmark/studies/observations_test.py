"""The study of distances at single observations: its table and its command."""

import pytest

from sbi_colt.benchmark.row_files import read_rows
from sbi_colt.benchmark.studies import observations
from sbi_colt.benchmark.studies.observations import (
    ObservationKey,
    ObservationRow,
    observation_lines,
)
from sbi_colt.benchmark.tasks.published.trained import Trained
from sbi_colt.cli import main

WHICH = Trained("two-moons", "npe-maf", 1000)


def row(method, observation, distance, posterior=WHICH):
    truth = (0.6, 0.7, 0.8, 0.9)[observation]
    return ObservationRow(
        ObservationKey(posterior, method, observation), truth, distance, 400
    )


def test_the_table_has_rank_correlations_and_their_means():
    other = Trained("slcp", "npe-nsf", 1000)
    rows = [row("truth", i, float("nan"), p) for p in (WHICH, other) for i in range(4)]
    rows += [row("focused", i, 0.1 * i) for i in range(4)]
    rows += [row("focused", i, -0.1 * i, other) for i in range(4)]
    rows += [row("at", i, 0.2) for i in range(4)]  # it tells no observation from others
    rows += [row("lc2st", i, d) for i, d in enumerate((1, 2, 4, 3))]
    first, second, mean, *_ = list(observation_lines(rows))[1:]
    assert first.split()[3:] == ["0.75", "0.30", "1.00", "0.00", "0.80"]
    assert second.split()[-1] == "-1.00"
    assert mean.split() == ["mean", "0.00", "0.00", "0.80"]


@pytest.mark.slow
@pytest.mark.long
def test_the_command_measures_and_is_resumed(tmp_path, monkeypatch, capsys):
    which = Trained("gaussian-mixture", "npe-maf", 1000)
    settings = {"TRAINED": [which], "_SPAN": 0.0, "_NUM_OTHERS": 500}
    settings |= {"_NUM_PAIRS": 100, "_NUM_DRAWS": 200}
    for name, value in settings.items():
        monkeypatch.setattr(observations, name, value)
    path = tmp_path / "observations.csv"
    command = ["benchmark", "observations", "--jobs", "1", "--quiet"]
    command += ["--out", str(path), "--models", str(tmp_path)]
    assert main(command) == 0
    rows, text = read_rows(path, ObservationRow), path.read_text(encoding="utf-8")
    assert len({r.key for r in rows}) == len(rows) == 5 * 10  # four methods, the truth
    assert "gaussian-mixture npe-maf 1k" in capsys.readouterr().out
    assert main(command) == 0
    assert path.read_text(encoding="utf-8") == text
