"""A finding: what would be right, and whether its size is clear."""

import json
import math

import pytest

from sbi_colt.results.finding import Finding


@pytest.mark.parametrize(
    ("family", "unit", "pattern", "interval", "is_clear"),
    [
        ("width", "ratio", "", (0.9, 1.2), False),
        ("width with x", "ratio", "", (1.1, 1.2), True),
        ("shift", "standard deviations", "", (-0.1, 0.2), False),
        ("shape", "share", "skew", (0.45, 0.6), False),
        ("shape", "share", "tails", (0.45, 0.6), True),
        ("shape with x", "share", "tails", (0.3, 0.4), False),
        ("radial", "share", "tails", (0.3, 0.4), True),
        ("missing", "share", "", (0.01, 0.2), True),
    ],
)
def test_a_size_is_clear_if_its_interval_leaves_out_the_right_one(
    family, unit, pattern, interval, is_clear
):
    found = Finding(family, 0.01, unit=unit, pattern=pattern, interval=interval)
    assert found.is_clear == is_clear


def test_json_without_nan_gives_nan():
    plain = json.loads('{"size": null, "gain": null, "interval": [null, null]}')
    found = Finding("width", 0.01, **plain)
    assert all(map(math.isnan, (found.size, found.gain, *found.interval)))
