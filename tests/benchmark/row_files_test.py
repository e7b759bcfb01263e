"""Files of rows, written and read again; rows of the published problems serve."""

import math
from dataclasses import fields, replace

import pytest

from sbi_colt.benchmark.published_table import PublishedRow, Run
from sbi_colt.benchmark.row_files import append_rows, read_rows, rows_so_far
from sbi_colt.benchmark.tasks.published.trained import Trained

POSTERIOR = Trained("slcp", "npe-maf", 1000)


def with_seed(row, seed):
    return replace(row, run=replace(row.run, seed=seed))


def rows_of(path):
    return rows_so_far(path, PublishedRow)


@pytest.fixture
def row():
    numbers = [(50 + i) / 100 for i in range(len(fields(PublishedRow)) - 1)]
    return PublishedRow(Run(POSTERIOR, "default", 0), *numbers)


def test_rows_come_back_as_they_were(tmp_path, row):
    path = tmp_path / "new" / "rows.csv"
    assert rows_of(path) == []
    second = replace(with_seed(row, 1), lc2st_share=math.nan)
    append_rows(path, [row, second], "sbi-colt benchmark published")
    append_rows(path, [with_seed(row, 2)], "sbi-colt benchmark published --seeds 3")
    first, found, third = rows_of(path)
    assert first == row
    assert found.run == second.run
    assert math.isnan(found.lc2st_share)
    assert third.run.seed == 2
    lines = path.read_text().splitlines()
    assert lines[2].startswith("task,estimator,num_simulations,budget,seed,c2st,narro")
    assert lines[3].startswith("slcp,npe-maf,1000,default,0,0.5,0.51,")
    comments = [line for line in lines if line.startswith("# sbi-colt")]
    assert comments == [
        "# sbi-colt benchmark published",
        "# sbi-colt benchmark published --seeds 3",
    ]


def test_a_line_that_was_cut_off_is_written_again(tmp_path, row):
    path = tmp_path / "rows.csv"
    append_rows(path, [row], "c")
    with path.open("a") as file:
        file.write("slcp,npe-ma")
    assert rows_of(path) == [row]
    append_rows(path, [with_seed(row, 1)], "c")
    assert [found.run.seed for found in rows_of(path)] == [0, 1]


@pytest.mark.parametrize("text", ["a,b\n1,2\n", ""])
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="expected a file of sbi-colt benchmark"):
        read_rows(path, PublishedRow)


def test_a_wrong_row_is_named(tmp_path, row):
    path = tmp_path / "rows.csv"
    append_rows(path, [row], "c")
    with path.open("a") as file:
        file.write("slcp,npe-maf,many\n")
    with pytest.raises(ValueError, match="3 instead of 26 columns"):
        rows_of(path)
