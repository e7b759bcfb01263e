"""The checker of claims, on made-up rows for which they hold and do not hold."""

import math
from dataclasses import replace

import pytest

from sbi_colt.benchmark.claims import Claim, claim_lines, false_alarms
from sbi_colt.benchmark.grid.cells import default_cells, trained_cells
from sbi_colt.benchmark.grid.rows import EXACT, Row
from sbi_colt.benchmark.studies.efficiency import efficiency_cells, efficiency_claims
from sbi_colt.benchmark.studies.power import power_cells, power_claims
from sbi_colt.benchmark.studies.table import table_claims


def change(rows, where, **values):
    """The rows with other numbers in the cells that ``where`` chooses."""
    changed = [replace(row, **values) if where(row.cell) else row for row in rows]
    assert changed != rows
    return changed


def contradicted(claims):
    return {claim.text: " ".join(claim.against) for claim in claims if claim.against}


def test_a_claim_says_whether_it_holds():
    good, bad = Claim("A is larger than B"), Claim("C falls", ("1 at 2", "3 at 4"))
    assert str(good) == "A is larger than B: holds."
    assert str(bad) == "C falls: does not hold: 1 at 2; 3 at 4."
    head, *lines = claim_lines([good, bad])
    assert head.startswith("Claims")
    assert lines == [f"- {good}", f"- {bad}"]
    assert list(claim_lines([])) == []


@pytest.mark.parametrize(
    ("count", "holds"), [(0, False), (1, True), (5, True), (11, True), (12, False)]
)
def test_false_alarms_are_held_against_their_band(count, holds):
    """Binomial(100, 0.05) is within 0 to 11 with probability 99%; 1 and 11 are in."""
    claim = false_alarms("The level holds", {"mean": (count, 100)}, band=0.98)
    assert (not claim.against) == holds
    assert ("mean has" in " ".join(claim.against)) != holds


def power_row(cell):
    if cell.alpha == 0 or (cell.task == "curved-blind" and cell.dim_x > 10):
        power = 0.05
    else:
        power = 1.0 if cell.method == "default" else 0.5
    return Row(cell, power, 0.2, 0.1, 1.0, 0.1)


@pytest.fixture
def power():
    return [power_row(cell) for cell in power_cells()]


def test_claims_of_the_table_of_power_hold(power):
    claims = power_claims(power)
    assert len(claims) == 10
    assert contradicted(claims) == {}


@pytest.mark.parametrize(
    ("where", "value", "text", "against"),
    [
        (
            lambda c: c.task == "t" and c.dim == 3 and c.method == "sbc",
            1.0,
            "",
            None,
        ),
        (
            lambda c: c.task == "t" and c.dim == 3 and c.method == "default",
            0.44,
            "No other method is ahead",
            "t 0.3 (3, 3) c2st has 0.50, the default 0.44",
        ),
        (
            lambda c: c.task == "tree" and c.alpha == 0 and c.method == "default",
            0.2,
            "false alarms",
            "tree 0 (1, 2) default has 20 of 100",
        ),
        (
            lambda c: c.task == "blind" and c.method == "default" and c.alpha,
            0.9,
            "finds the Gaussian blind prior",
            "has 0.90",
        ),
        (
            lambda c: c.task == "curved-blind" and c.dim == 100 and c.method == "tarp",
            0.3,
            "No method finds the curved blind prior",
            "(100, 100) tarp has 0.30",
        ),
        (
            lambda c: c.task == "tree" and c.alpha == 0.5 and c.method == "default",
            0.8,
            "every blur of the tree",
            "tree 0.5",
        ),
        (
            lambda c: c.method == "paper-id" and c.alpha,
            0.8,
            "1.5 times",
            "against 0.8",
        ),
        (
            lambda c: c.method == "default" and c.alpha and "curved" in c.task,
            0.6,
            "on curved posteriors",
            "the mean is 0.600",
        ),
    ],
)
def test_a_contradicted_claim_of_the_power_is_named(power, where, value, text, against):
    found = contradicted(power_claims(change(power, where, power=value)))
    if against is None:  # as good as the default, but not ahead of it
        assert found == {}
        return
    (shown,) = [shown for claim, shown in found.items() if text in claim]
    assert against in shown


def test_a_part_of_the_table_has_no_claims_about_the_whole():
    rows = [power_row(cell) for cell in power_cells([(3, 3)])]
    texts = " ".join(claim.text for claim in power_claims(rows))
    assert "No other method" in texts
    assert "mean power" not in texts
    assert "tree" not in texts


def efficiency_rows(needed):
    """Rows in which each method has power 0.9 from a number of pairs on."""
    return [
        Row(cell, 0.9 if cell.num_pairs >= needed[cell.method] else 0.1, 0, 0, 0, 0)
        for cell in efficiency_cells()
    ]


@pytest.mark.parametrize(
    ("needed", "against"),
    [
        ({"default": 50, "paper-full": 200, "paper-id": 400}, None),
        ({"default": 50, "paper-full": 9999, "paper-id": 9999}, None),
        ({"default": 100, "paper-full": 200, "paper-id": 100}, "the default needs 183"),
        ({"default": 9999, "paper-full": 200, "paper-id": 100}, "never reaches it"),
    ],
)
def test_half_the_simulations_are_checked(needed, against):
    (claim,) = efficiency_claims(efficiency_rows(needed))
    assert (not claim.against) == (against is None)
    assert (against or "") in " ".join(claim.against)


def table_row(cell):
    statistic = {"diffusion": cell.alpha / 10}.get(cell.task, 0.3)
    if cell.task in {c.task for c in trained_cells()} and cell.alpha:
        statistic = 100 / cell.alpha
    power = 0.04 if cell.alpha == 0 else 1.0
    if cell.num_batches == 5 and not cell.alpha:
        power = 0.0
    if cell.task == "tree" and cell.method == "c2st":
        power = 0.1
    return Row(
        cell, math.nan if cell.method == EXACT else power, statistic, 0.1, 1.0, 0.1
    )


@pytest.fixture
def results():
    return [table_row(cell) for cell in (*default_cells(), *trained_cells())]


def test_claims_of_the_results_hold(results):
    claims = table_claims(results)
    assert len(claims) == 3 * 2 + 3 + 1 + 2
    assert contradicted(claims) == {}


@pytest.mark.parametrize(
    ("where", "values", "text", "against"),
    [
        (
            lambda c: c.task == "covariance" and c.alpha == 0 and c.method == "sbc",
            {"power": 0.16},
            "False alarms of sbc are within the band of 0.05 in each cell",
            "covariance 0 (10, 10) sbc has 16 of 100",
        ),
        (
            lambda c: c.alpha == 0 and c.num_batches == 100 and c.method == "tarp",
            {"power": 0.09},
            "False alarms of tarp, over all cells",
            "tarp has 81 of",
        ),
        (
            lambda c: c.task == "tree" and c.alpha == 0.5 and c.method == "c2st",
            {"power": 0.6},
            "C2ST misses",
            "tree 0.5 (1, 2) c2st has 0.60",
        ),
        (
            lambda c: c.task == "diffusion" and c.alpha == 3 and c.method == "default",
            {"statistic": 0.15},
            "missing steps",
            "0.150 at 3 is below 0.200 at 2",
        ),
        (
            lambda c: c.task == "outliers-npe" and c.alpha == 20000,
            {"statistic": 0.9},
            "CoLT's distance falls",
            "outliers-npe has 0.500 with 200 simulations and 0.900 with 20000",
        ),
    ],
)
def test_a_contradicted_claim_of_the_results_is_named(
    results, where, values, text, against
):
    found = contradicted(table_claims(change(results, where, **values)))
    (shown,) = [shown for claim, shown in found.items() if text in claim]
    assert against in shown
