"""The committed results: whole, at the level, and as the documents say."""

from pathlib import Path

import pytest

from sbi_colt.benchmark.runner import (
    EXACT,
    default_cells,
    read_rows,
    trained_cells,
)
from sbi_colt.benchmark.tables import summarise

RESULTS = Path(__file__).parent.parent / "tutorials" / "results"


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
