"""The tables of power, efficiency and cost."""

import matplotlib.image

from sbi_colt.benchmark.grid import runner
from sbi_colt.benchmark.grid.rows import Row, read_rows
from sbi_colt.benchmark.grid.runner import run_cells
from sbi_colt.benchmark.methods import METHODS
from sbi_colt.benchmark.studies import ablation, power, share
from sbi_colt.benchmark.studies.power import (
    SIZES,
    efficiency_cells,
    efficiency_lines,
    power_cells,
    power_lines,
)
from sbi_colt.cli import main


def test_the_grid_has_every_family_dimension_and_perturbation():
    cells = power_cells()
    tasks = {family + name for family in ("", "curved-") for name in SIZES}
    assert len(set(cells)) == len(cells)
    tree = [c for c in cells if c.task == "tree"]
    assert len(cells) - len(tree) == 2 * 8 * 4 * 3 * len(METHODS)
    assert {c.task for c in cells} == {*tasks, "tree"}
    assert {c.method for c in tree if c.alpha == 0.5} == set(METHODS) - {"paper-id"}
    nulls = {(c.task, c.dim) for c in cells if c.alpha == 0}
    # Two families, in which both pairs with 10 parameters are one here, and the tree.
    assert len(nulls) == 7
    for dim_x in (3, 10, 50, 100):
        assert {c.seed for c in cells if c.dim_x == dim_x} == {0, 1, 2}


def rows(default=0.9, dims=None):
    powers = {"default": default, "paper-id": 0.8}
    return [
        Row(cell, powers.get(cell.method, 0.5), 0.2, 0.1, 1.0, 0.1)
        for cell in power_cells(dims)
    ]


def test_the_table_has_means_and_marks_what_is_behind():
    lines = list(power_lines(rows()))
    assert max(map(len, lines)) <= 80
    means = [line.split() for line in lines if ", mean" in line]
    assert [mean[2:5] for mean in means] == 2 * [["0.900", "0.500", "0.800"]]
    assert not any("*" in line for line in lines)
    behind = "\n".join(power_lines(rows(default=0.7)))
    # False alarms have no star, and the tree has no paper-id.
    assert behind.count("*") == 2 * 4 * len(SIZES)
    assert "The paper's variants see 10 draws" in behind


def test_the_table_of_some_dimensions(monkeypatch, tmp_path, capsys):
    """Also where the file has a part of the others."""
    some = [(10, 10), (5, 2)]
    monkeypatch.setattr(runner, "run_cells", lambda *args, **options: rows()[:20] + own)
    own = rows(dims=some)
    path = tmp_path / "power.png"
    words = ["benchmark", "power", "--dims", "10,10", "5,2", "--plot", str(path)]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert shown == "\n".join(power_lines(own)) + "\n"
    assert "x of dimension 5, theta of dimension 2" in shown
    assert "dimension 3" not in shown
    assert "Tree" not in shown
    assert matplotlib.image.imread(path).std() > 0.05


def test_means_are_drawn(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(runner, "run_cells", lambda *args, **options: rows())
    path = tmp_path / "power.png"
    assert main(["benchmark", "power", "--plot", str(path)]) == 0
    assert matplotlib.image.imread(path).std() > 0.05
    assert "Gaussian, mean" in capsys.readouterr().out


def test_a_table_of_some_cells_leaves_the_others_empty():
    some = [row for row in rows() if row.cell.method == "sbc"]
    lines = list(power_lines(some))
    assert not any(", mean" in line for line in lines)


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


def test_cost_is_told_as_a_ratio_and_exponents(monkeypatch, capsys):
    for name in ("_default", "_c2st"):
        monkeypatch.setattr(power, name, lambda train, test: sum(range(1000)))
    assert main(["benchmark", "cost", "--quiet"]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert "ratio" in first
    assert [line[0] for line in others] == ["N", "K", "d"]


def test_the_table_of_shares_fits_a_terminal(monkeypatch):
    few = [share.Problem("covariance", 0.0, (3, 3), 40)]
    few += [share.Problem("curved-anisotropic", 1.5, (10, 10), 40)]
    monkeypatch.setattr(share, "_PROBLEMS", tuple(few))
    lines = list(share.share_lines(repetitions=2, num_workers=1))
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[2:] == ["20%", "30%", "50%", "70%"]
    assert lines[1].startswith("none (3, 3) 40")
    assert lines[2][36:] == lines[3][36:]  # the mean of one error is its own


def test_the_table_of_probes_fits_a_terminal(monkeypatch):
    """The drift probe alone sees a posterior that ignores x."""
    few = (
        share.Problem("blind", 1.0, (3, 3), 40),
        share.Problem("t", 0.01, (3, 3), 20),
    )
    monkeypatch.setattr(ablation, "_PROBLEMS", few)
    monkeypatch.setattr(ablation, "_SEEDS", (20,))
    options = {"num_batches": 3, "num_workers": 1, "show_progress_bar": False}
    lines = list(ablation.ablation_lines(**options))
    assert max(map(len, lines)) <= 80
    (default,) = [line for line in lines if line.startswith("the default")]
    (without,) = [line for line in lines if line.startswith("without relief")]
    assert float(default.split()[2]) == float(without.split()[2]) >= 0.5
    (drift,) = [line for line in lines if line.startswith("without drift")]
    assert "blind 1.00 to " in drift
    assert drift.split()[4] == "s"
