from dataclasses import replace

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from configs import make_config

from sbi_colt import CoLTConfig, TestResult
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.diagnose import diagnose_draws
from sbi_colt.report.figures import (
    plot_discrepancy_map,
    plot_localization,
    plot_ranks,
    plot_training,
)

matplotlib.use("Agg")
QUICK = make_config(max_epochs=5, num_redraws=199)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def reports():
    def make(dim, dim_x):
        task = GaussianTask("covariance", 1.0, dim_x, dim)
        draws = task.draws(80, 30, torch.Generator().manual_seed(0))
        return diagnose_draws(draws, config=QUICK, seed=0, show_progress_bar=False)

    return {(dim, dim_x): make(dim, dim_x) for dim, dim_x in ((1, 1), (2, 2), (20, 5))}


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (20, 5)])
def test_a_report_is_one_figure_in_any_dimension(reports, size):
    figure = reports[size].plot()
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert titles[:3] == ["CoLT", "SBC", "TARP"]
    leading = reports[size].colt.leading.name
    is_ball = leading in ("ball", "mahalanobis")
    assert titles[3].startswith("Worst ball" if is_ball else "Worst region")
    assert titles[4:] == ["Discrepancy over x", "Training"]


@pytest.mark.parametrize(
    "plot", [plot_ranks, plot_localization, plot_discrepancy_map, plot_training]
)
def test_plots_draw_where_they_are_told(reports, plot):
    _, ax = plt.subplots()
    assert plot(reports[2, 2].colt, ax) is ax
    assert plot(reports[2, 2].colt) is not ax


def test_the_band_holds_the_curves_of_a_correct_posterior(
    generator, within_binomial_band
):
    inside = 0
    for _ in range(200):
        ranks = torch.rand(60, generator=generator, dtype=torch.float64)
        ax = plot_ranks(TestResult("own", 1.0, 0.0, ranks), level=0.2)
        band = ax.collections[0].get_paths()[0].vertices[:, 1].max()
        inside += abs(ax.lines[-1].get_ydata()).max() <= band
    assert within_binomial_band(inside, 200, 0.8)


def test_names_are_used(reports):
    ax = plot_localization(reports[2, 2].colt, names=["mass", "spin"])
    assert {ax.get_xlabel(), ax.get_ylabel()} == {"error of mass", "error of spin"}


@pytest.mark.parametrize(
    "names", [["$x_$", "$\\foo$"], ["_a", "b $"], ["a" * 200, "b"]], ids=str
)
def test_any_name_can_be_drawn(reports, names):
    figure = replace(reports[2, 2], names=tuple(names)).plot()
    figure.canvas.draw()
    legend = figure.axes[1].get_legend()
    assert len(legend.get_texts()) == 2


@pytest.mark.parametrize("features", [[0, 1, 0], [7], []])
def test_unknown_features_are_named(reports, features):
    with pytest.raises(ValueError, match="features: expected one or two positions"):
        plot_discrepancy_map(reports[2, 2].colt, features=features)


def test_the_map_of_a_correct_posterior_is_grey():
    draws = GaussianTask("covariance", 0.0, 4, 2).draws(
        400, 50, torch.Generator().manual_seed(0)
    )
    report = diagnose_draws(
        draws, methods=("colt",), config=QUICK, seed=0, show_progress_bar=False
    )
    chance, clear = plot_discrepancy_map(report.colt).collections[:2]
    assert len(clear.get_offsets()) < 0.25 * len(chance.get_offsets())


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_any_integer_is_a_number_of_neighbours(reports, kind):
    colt = reports[1, 1].colt
    curves = [
        plot_discrepancy_map(colt, features=feature, num_neighbours=number).lines[1]
        for feature, number in ((0, 40), (kind(0), kind(40)))
    ]
    assert (curves[0].get_ydata() == curves[1].get_ydata()).all()


@pytest.mark.parametrize("number", [0, -3, 2.5, True])
def test_other_numbers_of_neighbours_are_refused(reports, number):
    with pytest.raises((TypeError, ValueError), match="num_neighbours: expected"):
        plot_discrepancy_map(reports[1, 1].colt, num_neighbours=number)


def test_results_without_ranks_are_named(reports):
    with pytest.raises(ValueError, match="'c2st' has no ranks"):
        plot_ranks(reports[2, 2]["c2st"])


def test_the_map_shows_the_edge_of_an_error(generator):
    """q is too wide for x > 0 only: the curve leaves the band there alone."""
    from sbi_colt import Draws

    xs = 2 * torch.randn(1200, 1, generator=generator)
    noise = torch.randn(101, 1200, 2, generator=generator)
    width = torch.where(xs > 0, 2.5, 1.0)
    draws = Draws(noise[0], xs, width * noise[1:])
    config = CoLTConfig(probes=("mahalanobis", "random"))
    report = diagnose_draws(
        draws, methods=("colt",), config=config, seed=0, show_progress_bar=False
    )
    ax = plot_discrepancy_map(report.colt)
    (curve,) = [line for line in ax.lines if len(line.get_xdata()) == 840][:1]
    x, y = curve.get_xdata(), curve.get_ydata()
    assert abs(y[x < -0.7]).mean() < 0.1
    assert y[x > 0.7].min() > 0.2


def test_the_page_stands_alone_and_escapes_names(tmp_path):
    task = GaussianTask("mean", 0.5, 2, 2)
    draws = task.draws(200, 50, torch.Generator().manual_seed(0))
    report = diagnose_draws(
        draws,
        config=QUICK,
        seed=0,
        show_progress_bar=False,
        parameter_names=["<script>alert(1)</script>", "b & c"],
    )
    report.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("data:image/png;base64,") == 6
    assert "REJECTED" in page
    assert "REJECTED" in report._repr_html_()
    assert "<script" not in report._repr_html_()
