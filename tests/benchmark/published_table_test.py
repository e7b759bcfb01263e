"""The table of the published problems, and its summaries."""

import math
from dataclasses import fields, replace

import pytest

from sbi_colt.benchmark.published_table import (
    PublishedRow,
    Run,
    published_lines,
    rank_correlation,
)
from sbi_colt.benchmark.tasks.published.trained import Trained

POSTERIOR = Trained("gaussian-mixture", "npe-maf", 10_000)
NAMES = [field.name for field in fields(PublishedRow)][1:]


def make_row(c2st, bound=0.0, distance=0.1, p_value=0.5, seed=0, **others):
    zeros = dict.fromkeys(NAMES, 0.5)
    row = PublishedRow(Run(POSTERIOR, "default", seed), **zeros)
    return replace(
        row,
        c2st=c2st,
        distance_lower=bound,
        distance=distance,
        p_value=p_value,
        **others,
    )


def test_sizes_are_ranked_by_the_bound_and_then_by_the_estimate():
    """The estimate decides only among equal bounds."""
    sizes = [(0.0, 0.3), (0.0, 0.4), (0.1, 0.2), (0.2, 0.1)]
    assert rank_correlation(list(zip((1, 2, 3, 4), sizes, strict=True))) == 1
    assert rank_correlation(list(zip((4, 3, 2, 1), sizes, strict=True))) == -1
    # One exchange of neighbours among four: 1 - 6 * 2 / (4 * 15).
    found = rank_correlation(list(zip((2, 1, 3, 4), sizes, strict=True)))
    assert found == pytest.approx(0.8)


def test_ties_and_missing_sizes():
    nan = math.nan
    assert math.isnan(rank_correlation([(1, (0.0,)), (2, (0.0,)), (3, (0.0,))]))
    assert math.isnan(rank_correlation([(1, (0.0,)), (1, (1.0,)), (1, (2.0,))]))
    assert math.isnan(rank_correlation([(1, (0.0,)), (2, (1.0,)), (3, (nan,))]))
    kept = [(1, (0.0,)), (2, (1.0,)), (3, (2.0,)), (0, (nan,))]
    assert rank_correlation(kept) == pytest.approx(1)


def test_lines_fit_and_name_what_was_missed():
    nan = math.nan
    rows = [
        make_row(0.95, 0.6, 0.8, 0.0001, widest=123.4, narrowest=0.0123),
        make_row(0.72, 0.0, 0.1, 0.2, colt_p=1.0, predictive_p=0.0042),
        make_row(0.55, 0.0, 0.05, 0.9, lc2st_share=nan, sbc_p=nan, colt_distance=nan),
    ]
    lines = list(published_lines(rows))
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    assert "Not rejected at level 0.05, of 2 with C2ST > 0.7: 1" in text
    assert "gaussian-mixture npe-maf 10k, seed 0: C2ST 0.72, p 0.200" in text
    assert "headline distance     1.00   3 posteriors" in text
    assert "L-C2ST, by share       nan   2 posteriors" in text
    assert list(published_lines([])) == ["No rows."]


def test_the_columns_stand_below_their_heads():
    _, head, line, *_ = published_lines([make_row(0.95, 0.6, 0.8, 0.04)])
    for name, shown in (("C2ST", "0.95"), ("bound", "0.50"), ("TARP", "0.50")):
        end = head.index(f" {name}") + len(name) + 1
        assert line[:end].endswith(f" {shown}"), name
    assert len(head) == len(line)


def test_correlations_are_the_mean_over_seeds():
    up = [make_row(0.5 + i / 10, i / 10) for i in range(3)]
    down = [make_row(0.5 + i / 10, 0.3 - i / 10, seed=1) for i in range(3)]
    lines = [line for line in published_lines(up + down) if "headline" in line]
    assert lines == ["  headline distance     0.00   3 posteriors"]


def test_names_are_short():
    assert POSTERIOR.label == "gaussian-mixture npe-maf 10k"
