"""The table and the figure of power at the paper's budget."""

import matplotlib.pyplot as plt
import pytest

from sbi_colt.benchmark.claims import claim_lines
from sbi_colt.benchmark.grid import runner
from sbi_colt.benchmark.grid.rows import Row
from sbi_colt.benchmark.methods import METHODS
from sbi_colt.benchmark.studies.power import (
    SIZES,
    plot_power,
    power_cells,
    power_claims,
    power_lines,
)
from sbi_colt.cli import main


def test_the_grid_has_every_family_dimension_and_perturbation():
    cells = power_cells()
    tasks = {family + name for family in ("", "curved-") for name in SIZES}
    assert len(set(cells)) == len(cells)
    tree = [c for c in cells if c.task == "tree"]
    bias = [c for c in cells if c.task == "bias"]
    families = len(cells) - len(tree) - len(bias)
    assert families == 2 * 8 * 4 * 3 * len(METHODS)
    assert {c.task for c in cells} == {*tasks, "tree", "bias"}
    assert {(c.dim, c.alpha) for c in bias} == {(10, 0), (10, 0.2), (30, 0), (30, 0.25)}
    assert {c.method for c in tree if c.alpha == 0.5} == set(METHODS) - {"paper-id"}
    nulls = {(c.task, c.dim) for c in cells if c.alpha == 0}
    # Two families, in which both pairs with 10 parameters are one here, two biases, and
    # the tree.
    assert len(nulls) == 9
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


def test_a_table_of_some_cells_leaves_the_others_empty():
    some = [row for row in rows() if row.cell.method == "sbc"]
    lines = list(power_lines(some))
    assert not any(", mean" in line for line in lines)


def test_the_command_shows_the_dimensions_that_are_asked_for(
    monkeypatch, tmp_path, capsys
):
    """The file may have a part of the others."""
    own = rows(dims=[(10, 10), (5, 2)])
    monkeypatch.setattr(runner, "run_cells", lambda *args, **kept: rows()[:20] + own)
    path = tmp_path / "power.png"
    words = ["benchmark", "power", "--dims", "10,10", "5,2", "--plot", str(path)]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    claims = "\n".join(claim_lines(power_claims(own))).splitlines()
    assert lines == [*power_lines(own), "", *claims]
    assert "Gaussian, x of dimension 5, theta of dimension 2" in lines
    assert not any("dimension 3" in line or "Tree" in line for line in lines)
    assert path.exists()


def test_the_figure_has_a_bar_for_each_mean():
    figure = plot_power(rows())
    for ax in figure.axes:
        heights = {
            c.get_label(): [bar.get_height() for bar in c] for c in ax.containers
        }
        assert len(heights) == len(METHODS)
        assert heights["CoLT here"] == pytest.approx(4 * [0.9])
        assert heights["CoLT ID (paper)"] == pytest.approx(4 * [0.8])
        assert heights["SBC"] == pytest.approx(4 * [0.5])
    plt.close(figure)


def test_a_missing_folder_is_named_before_the_work_begins(tmp_path, capsys):
    where = str(tmp_path / "none" / "power.png")
    assert main(["benchmark", "power", "--plot", where]) == 2
    assert "--plot: there is no folder" in capsys.readouterr().err
