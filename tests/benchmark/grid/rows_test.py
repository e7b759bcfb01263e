"""Files of results: what is read, and what is refused."""

import csv
from pathlib import Path

import pytest

from sbi_colt.benchmark.grid.rows import Cell, Row, packed, read_rows, unpacked
from sbi_colt.cli import main

RESULTS = Path(__file__).parents[3] / "tutorials" / "results"


def test_other_files_are_no_results(tmp_path, capsys):
    path = tmp_path / "other.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b"], [1, 2]])
    with pytest.raises(ValueError, match="expected a file of sbi-colt benchmark"):
        read_rows(path)
    assert main(["benchmark", "table", str(path)]) == 2
    assert "expected a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",3,3,", ",x1,3,", "x1"),
        (",3,3,", ",3,", "14 instead of 15 columns"),
        (",3,3,", ",3,3,3,", "16 instead of 15 columns"),
        (",100,all,all,1,", ",100,all,all,7,", "a power of 7"),
    ],
)
def test_a_damaged_row_is_named(old, new, message, tmp_path):
    path = tmp_path / "damaged.csv"
    lines = (RESULTS / "power.csv").read_text(encoding="utf-8").splitlines()[:5]
    assert old in lines[3]
    lines[3] = lines[3].replace(old, new, 1)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"damaged.csv, line 4: .*{message}"):
        read_rows(path)


@pytest.mark.parametrize("rejected", [[False] * 7, [False, True, False, False, True]])
def test_which_batches_are_rejected_is_kept(rejected):
    cell = Cell("mean", 3, 3, 0.1, "sbc", 0, len(rejected), None)
    row = Row(cell, 0.5, 0.1, 0.0, 0.0, 0.0, packed(rejected))
    assert unpacked(row) == rejected
    assert unpacked(Row(cell, 0.5, 0.1, 0.0, 0.0, 0.0)) == []
