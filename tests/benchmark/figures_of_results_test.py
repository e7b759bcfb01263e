"""Figures of results: what each of them shows."""

import matplotlib.pyplot as plt
import pytest
from benchmark_helpers import rows_of_all_families

from sbi_colt.benchmark.figures import plot_results, style_of
from sbi_colt.benchmark.grid.rows import EXACT
from sbi_colt.benchmark.methods import METHODS


@pytest.fixture
def kept(monkeypatch):
    """The figures by name, which stay open until the test ends."""
    monkeypatch.setattr("sbi_colt.benchmark.figures.plt.close", lambda figure: None)
    yield lambda paths: dict(
        zip([p.stem for p in paths], map(plt.figure, plt.get_fignums()), strict=True)
    )
    monkeypatch.undo()
    plt.close("all")


def curve(ax, label):
    (container,) = [c for c in ax.containers if c.get_label() == label]
    return [list(map(float, values)) for values in container.lines[0].get_data()]


def test_each_panel_has_the_curve_of_its_rows(kept, tmp_path):
    figures = kept(plot_results(rows_of_all_families(), tmp_path / "figures"))
    assert list(figures) == ["gaussian", "curved", "tree", "diffusion", "trained"]
    assert all((tmp_path / "figures" / f"{name}.png").exists() for name in figures)
    panels = {ax.get_title(): ax for ax in figures["gaussian"].axes}
    alphas, powers = curve(panels["mean (3, 3)"], "default")
    assert alphas == sorted({0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3})
    assert powers == pytest.approx([0.05 + alpha / 5 for alpha in alphas])
    # The covariance has no row but that without an error, which all panels share.
    assert curve(panels["t (3, 3)"], "sbc")[0] == [0.0]
    assert {c.get_label() for c in panels["mean (3, 3)"].containers} == set(METHODS)


def test_the_papers_numbers_stand_beside_ours(kept, tmp_path):
    figures = kept(plot_results(rows_of_all_families(), tmp_path))
    (ax,) = figures["tree"].axes
    (reported,) = [
        line for line in ax.lines if line.get_label() == "paper-full, in the paper"
    ]
    assert list(zip(*reported.get_data(), strict=True)) == [(1.5, 0.877), (4.0, 1.0)]
    (diffusion,) = figures["diffusion"].axes
    assert set(curve(diffusion, "default")[1]) == {0.5}  # the statistic, not the power


def test_a_part_of_the_results_is_plotted_too(tmp_path):
    """An unfinished run may have trained posteriors with one column only."""
    rows = rows_of_all_families()
    exact = [r for r in rows if r.cell.task == "two-moons-npe" and not r.cell.alpha]
    assert plot_results(exact, tmp_path) == []
    one = [r for r in rows if r.cell.task == "two-moons-npe" and r.cell.method == EXACT]
    assert [path.stem for path in plot_results(one, tmp_path)] == ["trained"]


def test_a_new_method_needs_no_style():
    assert style_of("mine").label == "mine"
    assert len({style_of(method) for method in METHODS}) == len(METHODS)
