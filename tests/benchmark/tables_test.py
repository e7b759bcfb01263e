"""Tables of power: entries, their standard errors, and the paper's numbers."""

from dataclasses import replace

import pytest
from benchmark_helpers import rows_of_all_families

from sbi_colt.benchmark.grid.cells import make_cells
from sbi_colt.benchmark.grid.rows import Row
from sbi_colt.benchmark.tables import PAPER, summarise, table_lines


def test_tables_stand_beside_the_papers():
    text = "\n".join(table_lines(rows_of_all_families()))
    assert "blind, x of dimension 100, theta of dimension 100" in text
    assert "0.97±0.01" in text  # the paper's, in dimension 3
    assert "0.88" in text  # and for the tree
    assert "The paper's variants see 5 draws per training step." in text
    lines = text.splitlines()
    blind = lines.index("blind, x of dimension 3, theta of dimension 3")
    ours = lines[blind + 4].split()
    assert ours[0] == "1"
    assert lines[blind + 5].split()[0] == "paper"
    assert "*" in lines[blind + 4]  # 0.2 against 0.975
    assert max(map(len, lines)) <= 80


def test_a_table_does_not_mix_settings():
    (cell,) = make_cells(["mean"], (0.5,), [(3, 3)], ["paper-id"], draws_per_step=10)
    rows = [
        Row(each, 0.5, 0.5, 0.1, 1.0, 0.1)
        for each in (cell, replace(cell, seed=1, draws_per_step=None))
    ]
    with pytest.raises(ValueError, match="mean, paper-id: expected rows with one numb"):
        summarise(rows)


def test_standard_errors_hold_batches_and_seeds():
    entries = summarise(rows_of_all_families())
    full = entries["blind", 3, 3, 1.0, "paper-full"]
    assert full.power == pytest.approx(0.2)
    assert full.error == pytest.approx(0.1)  # seeds at 0.1 and 0.3
    assert entries["mean", 3, 3, 0.05, "sbc"].error == pytest.approx(0.0238, abs=1e-3)


def test_the_papers_figures_are_those_of_its_tables():
    assert PAPER["blind", 50, 10, 1.0, "c2st"] == (0.847, 0.038)
    assert PAPER["blind", 3, 3, 0.0, "c2st"] == (0.077, 0.004)
    assert len(PAPER) == 2 * 5 * 4 + 4


def test_fewer_batches_of_a_seed_do_not_count_twice():
    few, many = (make_cells(["t"], (0.3,), num_batches=n)[0] for n in (2, 4))
    rows = [Row(few, 0.0, 0, 0, 0, 0), Row(many, 0.5, 0, 0, 0, 0)]
    (entry,) = summarise(rows).values()
    assert (entry.num_batches, entry.power) == (4, 0.5)
