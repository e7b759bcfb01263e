"""Rows on the published problems, written and read again."""

import math
from dataclasses import fields, replace

import pytest

from sbi_colt.benchmark.grid.published import PublishedRow, append_row, read_published

NUMBERS = [field.name for field in fields(PublishedRow)][5:]


@pytest.fixture
def row():
    numbers = [(50 + i) / 100 for i in range(len(NUMBERS))]
    return PublishedRow("slcp", "npe-maf", 1000, "default", 0, *numbers)


def test_rows_come_back_as_they_were(tmp_path, row):
    path = tmp_path / "new" / "rows.csv"
    assert read_published(path) == []
    second = replace(row, seed=1, lc2st_share=math.nan)
    append_row(path, row, "sbi-colt benchmark published")
    append_row(path, second, "sbi-colt benchmark published")
    append_row(path, replace(row, seed=2), "sbi-colt benchmark published --seeds 3")
    first, found, third = read_published(path)
    assert first == row
    assert found.key == second.key
    assert math.isnan(found.lc2st_share)
    assert third.seed == 2
    lines = path.read_text().splitlines()
    comments = [line for line in lines if line.startswith("# sbi-colt")]
    assert comments == [
        "# sbi-colt benchmark published",
        "# sbi-colt benchmark published --seeds 3",
    ]


def test_a_line_that_was_cut_off_is_written_again(tmp_path, row):
    path = tmp_path / "rows.csv"
    append_row(path, row, "c")
    with path.open("a") as file:
        file.write("slcp,npe-ma")
    assert read_published(path) == [row]
    append_row(path, replace(row, seed=1), "c")
    assert [found.seed for found in read_published(path)] == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "expected a file of sbi-colt benchmark published"),
        ("", "expected a file of sbi-colt benchmark published"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_published(path)


def test_a_wrong_row_is_named(tmp_path, row):
    path = tmp_path / "rows.csv"
    append_row(path, row, "c")
    with path.open("a") as file:
        file.write("slcp,npe-maf,many\n")
    with pytest.raises(ValueError, match="3 instead of 26 columns"):
        read_published(path)
