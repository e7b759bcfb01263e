"""The test of one observation as numbers and arrays, for files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sbi_colt.files import refused
from sbi_colt.results.plausibility_result import PlausibilityResult, StandingOut

__all__ = ["load_observation", "pack_observation"]

_TENSORS = ("x_o", "references", "replicates")


def pack_observation(
    result: PlausibilityResult,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the numbers, ready for JSON, and the arrays of a result."""
    plain = dict(vars(result))
    arrays = {name: plain.pop(name) for name in _TENSORS}
    scores = plain.pop("score_values")
    plain["standing_out"] = [vars(one) for one in result.standing_out]
    arrays |= {f"score {name}": values for name, values in scores.items()}
    return plain, {name: own for name, own in arrays.items() if own is not None}


def load_observation(
    plain: Mapping[str, Any] | None, arrays: Mapping[str, Tensor]
) -> PlausibilityResult | None:
    """Return the result that `pack_observation` took apart."""
    if plain is None:
        return None
    scores = {
        name.removeprefix("score "): values
        for name, values in arrays.items()
        if name.startswith("score ")
    }
    with refused("observation"):
        own = {**plain, **{name: arrays.get(name) for name in _TENSORS}}
        out = tuple(StandingOut(**one) for one in plain["standing_out"])
        return PlausibilityResult(
            **{**own, "standing_out": out, "score_values": scores}
        )
