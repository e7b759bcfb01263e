"""Checks of what a report's file holds, before any of it is used.

A file may be damaged, or changed by hand. Whatever a report says must be numbers that
a report can have, so each check names the entry and what was expected there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sbi_colt.report.findings import KINDS
from sbi_colt.report.trends import TREND_KINDS

__all__ = ["check_header", "check_result"]


def check_header(header: Mapping[str, Any], path: str | os.PathLike) -> None:
    """Raise `ValueError` where the numbers of a report are not such numbers."""
    with_path = _Checks(f"{path}: ")
    names = with_path.strings(header, "names")
    shape = with_path.entry(header, "x_shape", list)
    sizes = [with_path.integer("x_shape", size, 1) for size in shape]
    level = with_path.number("level", with_path.entry(header, "level"))
    with_path.expect(0 < level < 1, "level", "a number in (0, 1)", level)
    with_path.integer("seed", with_path.entry(header, "seed"), 0)
    results = with_path.entry(header, "results", dict)
    with_path.expect(bool(results), "results", "at least one method", results)
    _check_cost(with_path, with_path.entry(header, "cost", dict))
    num_features = math.prod(sizes)
    for number, finding in enumerate(with_path.entry(header, "findings", list)):
        own = _Checks(f"{path}: findings[{number}]: ")
        _check_finding(own, finding, len(names), num_features)
    trend = with_path.entry(header, "trend")
    if trend is not None:
        _check_trend(_Checks(f"{path}: trend: "), trend, len(names), num_features)


def check_result(
    name: str,
    header: Any,
    tensors: Mapping[str, Tensor],
    dim: int,
    path: str | os.PathLike,
) -> None:
    """Raise `ValueError` where the result of a method cannot be one.

    Args:
        name: The method's name.
        header: Its numbers.
        tensors: Its arrays by name.
        dim: Number of parameters.
        path: The file, for the message.
    """
    checks = _Checks(f"{path}: {name}: ")
    checks.expect(isinstance(header, dict), "the result", "a dict", header)
    checks.share("p_value", checks.entry(header, "p_value"))
    checks.number("statistic", checks.entry(header, "statistic"))
    kind = checks.entry(header, "kind")
    checks.expect(kind in ("test", "colt"), "kind", "'test' or 'colt'", kind)
    if kind == "test":
        checks.entry(header, "name", str)
        checks.entry(header, "details", dict)
        if "ranks" in tensors:
            checks.ranks("ranks", tensors["ranks"])
    else:
        _check_colt(checks, header, tensors, dim)


def _check_colt(
    checks: _Checks, header: Mapping[str, Any], tensors: Mapping[str, Tensor], dim: int
) -> None:
    for key in ("test_p_value", "distance", "distance_lower"):
        checks.share(key, checks.entry(header, key))
    training = checks.entry(header, "training_p_value")
    if training is not None:
        checks.share("training_p_value", training)
    num_test = checks.integer("num_test", checks.entry(header, "num_test"), 1)
    size = checks.entry(header, "num_posterior_samples")
    size = checks.integer("num_posterior_samples", size, 1) + 1
    checks.integer("num_train", checks.entry(header, "num_train"), 1)
    checks.integer("seed", checks.entry(header, "seed"), 0)
    probes = checks.entry(header, "probes", list)
    for probe in probes:
        name = checks.entry(probe, "name", str)
        for key, value in probe.items():
            if key == "sign":
                checks.expect(value in (-1, 1), f"{name}.sign", "-1 or 1", value)
            elif key != "name":
                checks.share(f"{name}.{key}", value)
        ranks = checks.tensor(tensors, f"ranks.{name}", (num_test,))
        checks.ranks(f"ranks.{name}", ranks)
    leading = checks.entry(header, "leading")
    names = [probe["name"] for probe in probes]
    checks.expect(leading in names, "leading", f"one of {names}", leading)
    checks.tensor(tensors, "index", (num_test,))
    truth = checks.tensor(tensors, "truth", (num_test,))
    inside = bool(((truth >= 0) & (truth < size)).all())
    checks.expect(inside, "truth", f"places below {size}", truth)
    checks.tensor(tensors, "thetas", (num_test, dim))
    checks.tensor(tensors, "samples", (size - 1, num_test, dim))
    places = checks.tensor(tensors, "table.places", (len(probes), num_test, size))
    inside = bool(((places >= 0) & (places < size)).all())
    checks.expect(inside, "table.places", f"places below {size}", places)
    offsets = checks.tensor(tensors, "table.offsets", (len(probes), num_test))
    checks.ranks("table.offsets", offsets)
    for key in ("mask", "xs", "features"):
        checks.tensor(tensors, key)
    for key in ("xs", "features"):
        num = len(tensors[key])
        checks.expect(num == num_test, key, f"{num_test} rows", num)


def _check_finding(checks: _Checks, finding: Any, dim: int, num_features: int) -> None:
    checks.expect(isinstance(finding, dict), "the finding", "a dict", finding)
    keys = {"kind", "sign", "p_value", "parameter", "feature", "size"}
    checks.expect(set(finding) == keys, "entries", str(sorted(keys)), list(finding))
    kind, sign = finding["kind"], finding["sign"]
    checks.expect(kind in KINDS, "kind", f"one of {', '.join(KINDS)}", kind)
    checks.expect(sign in (-1, 1), "sign", "-1 or 1", sign)
    fixed = {"missing_mass": -1, "spurious_mass": 1}.get(kind, sign)
    checks.expect(sign == fixed, "sign", f"{fixed} for {kind}", sign)
    checks.share("p_value", finding["p_value"])
    checks.number("size", finding["size"])
    about_one = kind in ("shift", "x_error", "correlation")
    checks.place("parameter", finding["parameter"], dim, optional=not about_one)
    number = dim if kind == "correlation" else num_features
    has_feature = kind in ("x_error", "correlation")
    checks.place("feature", finding["feature"], number, optional=not has_feature)


def _check_trend(checks: _Checks, trend: Any, dim: int, num_features: int) -> None:
    checks.expect(isinstance(trend, dict), "the trend", "a dict", trend)
    keys = {"feature", "kind", "parameter", "p_value", "shares"}
    checks.expect(set(trend) == keys, "entries", str(sorted(keys)), list(trend))
    kinds = ", ".join(TREND_KINDS)
    checks.expect(trend["kind"] in TREND_KINDS, "kind", kinds, trend["kind"])
    checks.place("feature", trend["feature"], num_features)
    checks.place("parameter", trend["parameter"], dim, optional=True)
    checks.share("p_value", trend["p_value"])
    shares = checks.entry(trend, "shares", list)
    checks.expect(len(shares) == 3, "shares", "three", shares)
    for share in shares:
        checks.share("shares", share)


def _check_cost(checks: _Checks, cost: Mapping[str, Any]) -> None:
    keys = {"num_simulations", "num_posterior_samples", "seconds"}
    checks.expect(set(cost) == keys, "cost", str(sorted(keys)), list(cost))
    for key in ("num_simulations", "num_posterior_samples"):
        checks.integer(f"cost.{key}", cost[key], 1)
    for key, value in checks.entry(cost, "seconds", dict).items():
        seconds = checks.number(f"cost.seconds.{key}", value)
        fits = math.isfinite(seconds) and seconds >= 0
        checks.expect(fits, f"cost.seconds.{key}", "a number of at least 0", value)


class _Checks:
    """Checks whose messages begin with the place where the entry stands."""

    def __init__(self, start: str):
        self._start = start

    def expect(self, fits: bool, key: str, expected: str, got: Any) -> None:
        if not fits:
            text = str(got).replace("\n", " ")
            raise ValueError(f"{self._start}{key}: expected {expected}, got {text}.")

    def entry(self, header: Any, key: str, kind: type = object) -> Any:
        found = isinstance(header, dict) and key in header
        self.expect(found, key, "an entry of this name", "none")
        fits = isinstance(header[key], kind)
        self.expect(fits, key, f"a {kind.__name__}", header[key])
        return header[key]

    def number(self, key: str, value: Any) -> float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        self.expect(fits, key, "a number", repr(value))
        return value

    def share(self, key: str, value: Any) -> None:
        fits = 0 <= self.number(key, value) <= 1
        self.expect(fits, key, "a number in [0, 1]", value)

    def integer(self, key: str, value: Any, least: int) -> int:
        fits = isinstance(value, int) and not isinstance(value, bool)
        fits = fits and value >= least
        self.expect(fits, key, f"an integer of at least {least}", repr(value))
        return value

    def place(self, key: str, value: Any, number: int, optional: bool = False) -> None:
        if optional and value is None:
            return
        fits = self.integer(key, value, 0) < number
        self.expect(fits, key, f"a position below {number}", value)

    def strings(self, header: Any, key: str) -> list[str]:
        values = self.entry(header, key, list)
        fits = bool(values) and all(isinstance(value, str) for value in values)
        self.expect(fits, key, "a list of names", values)
        return values

    def tensor(
        self,
        tensors: Mapping[str, Tensor],
        key: str,
        shape: tuple[int, ...] | None = None,
    ) -> Tensor:
        self.expect(key in tensors, key, "an array of this name", "none")
        got = tuple(tensors[key].shape)
        self.expect(shape is None or got == shape, key, f"shape {shape}", got)
        return tensors[key]

    def ranks(self, key: str, ranks: Tensor) -> None:
        inside = bool(((ranks >= 0) & (ranks <= 1)).all())
        self.expect(inside, key, "ranks in [0, 1]", "others")
