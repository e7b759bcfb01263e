"""The committed results: whole, at the level, and as the documents say."""

from pathlib import Path
from statistics import fmean

import pytest

from sbi_colt.benchmark.grid.cells import EXACT, default_cells, trained_cells
from sbi_colt.benchmark.grid.rows import read_rows
from sbi_colt.benchmark.grid.runner import run_group
from sbi_colt.benchmark.methods import METHODS
from sbi_colt.benchmark.studies.power import (
    SIZES,
    efficiency_cells,
    efficiency_lines,
    power_cells,
)
from sbi_colt.benchmark.tables import summarise
from sbi_colt.benchmark.tasks.settings import DIMS

RESULTS = Path(__file__).parents[2] / "tutorials" / "results"


@pytest.fixture(scope="module")
def rows():
    return read_rows(RESULTS / "benchmark.csv")


def test_the_benchmark_is_whole(rows):
    assert {row.cell for row in rows} == {*default_cells(), *trained_cells()}
    assert len({row.cell for row in rows}) == len(rows)


@pytest.mark.parametrize("method", ["default", "sbc", "tarp"])
def test_exact_methods_hold_the_level(rows, method, within_binomial_band):
    """At α = 0 every task's q is its p."""
    nulls = [r for r in rows if r.cell.alpha == 0 and r.cell.method == method]
    assert len(nulls) >= 9
    trials = sum(row.cell.num_batches for row in nulls)
    alarms = sum(round(row.power * row.cell.num_batches) for row in nulls)
    assert within_binomial_band(alarms, trials, 0.05)
    # And none of them by itself, with Bonferroni's adjustment for their number.
    for row in nulls:
        count = round(row.power * row.cell.num_batches)
        band = 1 - 0.01 / len(nulls)
        assert within_binomial_band(count, row.cell.num_batches, 0.05, band)


def test_the_blind_prior_is_always_found(rows):
    powers = [
        row.power
        for row in rows
        if row.cell.task == "blind" and row.cell.alpha and row.cell.method == "default"
    ]
    assert len(powers) == 4
    assert min(powers) >= 0.98


def test_the_tree_is_found_at_the_smallest_blur(rows):
    entries = summarise(rows)
    for alpha in (0.5, 1.5, 4.0):
        assert entries["tree", 1, 2, alpha, "default"].power >= 0.9
    assert entries["tree", 1, 2, 0.5, "c2st"].power <= 0.2


def test_the_diffusion_models_statistic_rises(rows):
    entries = summarise(rows)
    curve = [entries["diffusion", 1, 2, float(a), "default"] for a in range(6)]
    statistics = [entry.statistic for entry in curve]
    assert statistics == sorted(statistics)


@pytest.mark.parametrize("problem", ["two-moons", "outliers"])
@pytest.mark.parametrize("estimator", ["npe", "fmpe"])
def test_more_simulations_bring_a_smaller_distance(rows, problem, estimator):
    entries = summarise(rows)
    dim = 2 if problem == "two-moons" else 5
    for method in ("default", EXACT):
        few, many = (
            entries[f"{problem}-{estimator}", dim, dim, num, method].statistic
            for num in (200.0, 20000.0)
        )
        assert many < few


@pytest.fixture(scope="module")
def power():
    return read_rows(RESULTS / "power.csv")


def perturbed(entries, family, method):
    return [
        entries[(family + name, *dims, size, method)].power
        for dims in DIMS
        for name, size in SIZES.items()
    ]


def test_the_table_of_power_is_whole(power):
    assert {row.cell for row in power} == set(power_cells())
    assert len({row.cell for row in power}) == len(power)


def test_false_alarms_in_the_table_of_power_are_at_the_level(
    power, within_binomial_band
):
    nulls = [r for r in power if r.cell.alpha == 0 and r.cell.method == "default"]
    entries = summarise(nulls)
    assert len(entries) == 9  # two families in four dimensions, and the tree
    for entry in entries.values():
        alarms = round(entry.power * entry.num_batches)
        assert within_binomial_band(alarms, entry.num_batches, 0.05)


def test_no_other_method_is_ahead_by_more_than_a_twentieth(power):
    entries = summarise(power)
    for family in ("", "curved-"):
        for dims in DIMS:
            for name, size in SIZES.items():
                key = (family + name, *dims, size)
                best = max(entries[(*key, m)].power for m in METHODS if m != "default")
                assert entries[(*key, "default")].power >= best - 0.05, key


def test_mean_power_is_what_the_readme_says(power):
    entries = summarise(power)
    means = {
        (family, method): fmean(perturbed(entries, family, method))
        for family in ("", "curved-")
        for method in METHODS
    }
    assert means["", "default"] >= 0.92
    assert means["curved-", "default"] >= 0.75
    ours, full, own = (
        (means["", method] + means["curved-", method]) / 2
        for method in ("default", "paper-full", "paper-id")
    )
    assert ours >= 1.5 * max(full, own)
    text = (RESULTS.parent.parent / "README.md").read_text(encoding="utf-8")
    for family, title in (
        ("", "Gaussian posteriors"),
        ("curved-", "curved posteriors"),
    ):
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {title}")]
        shown = [cell.strip(" *") for cell in line.split("|")[2:-1]]
        assert shown == [f"{means[family, method]:.2f}" for method in METHODS]


def test_the_blind_prior_and_the_tree_are_found(power):
    entries = summarise(power)
    for dims in DIMS:
        assert entries[("blind", *dims, 1.0, "default")].power >= 0.98
        # Of curved posteriors nobody finds it in many dimensions, as the page says.
        curved = [entries[("curved-blind", *dims, 1.0, m)].power for m in METHODS]
        assert curved[0] >= 0.9 if dims[0] <= 10 else max(curved) <= 0.1
    assert entries["tree", 1, 2, 0.5, "default"].power >= 0.9
    for alpha in (1.0, 1.5, 4.0):
        assert entries["tree", 1, 2, alpha, "default"].power == 1


def test_a_committed_row_comes_out_again():
    """Ties the tables to the code: a default that changes needs them anew."""
    rows = read_rows(RESULTS / "efficiency.csv")
    (row,) = [
        row
        for row in rows
        if (row.cell.method, row.cell.num_pairs, row.cell.seed) == ("default", 25, 0)
    ]
    (again,) = run_group((row.cell,))
    assert again.power == pytest.approx(row.power, abs=0.06)
    assert again.statistic == pytest.approx(row.statistic, rel=0.02)


def test_half_the_simulations_do():
    rows = read_rows(RESULTS / "efficiency.csv")
    assert {row.cell for row in rows} == set(efficiency_cells())
    reached = {
        line.split()[0]: line.split()[-1] for line in list(efficiency_lines(rows))[1:]
    }
    paper = [reached[name] for name in ("paper-full", "paper-id")]
    least = min(float("inf") if text == "never" else float(text) for text in paper)
    assert float(reached["default"]) <= least / 2
