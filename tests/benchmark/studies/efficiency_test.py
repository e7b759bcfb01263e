"""The table of power by the number of simulations."""

from sbi_colt.benchmark.grid.rows import Row, read_rows
from sbi_colt.benchmark.grid.runner import run_cells
from sbi_colt.benchmark.studies.efficiency import efficiency_cells, efficiency_lines


def test_efficiency_tells_where_power_is_reached():
    found = {"default": 0.9, "paper-id": 0.4, "paper-full": 0.1}
    made = [
        Row(cell, min(1.0, found[cell.method] * cell.num_pairs / 200), 0, 0, 0, 0)
        for cell in efficiency_cells()
    ]
    header, *lines = efficiency_lines(made)
    assert header.split()[:3] == ["simulations", "50", "100"]
    ends = {line.split()[0]: line.split()[-1] for line in lines}
    assert 200 < float(ends["default"]) < 400 < float(ends["paper-id"]) <= 800
    low = [row for row in made if row.cell.num_pairs <= 100]
    assert list(efficiency_lines(low))[2].endswith("never")


def test_the_number_of_pairs_is_kept_in_the_file(tmp_path):
    cell = next(c for c in efficiency_cells() if c.method == "default")
    (row,) = run_cells([cell], tmp_path / "e.csv", show_progress_bar=False)
    assert row.cell == cell
    assert read_rows(tmp_path / "e.csv") == [row]
