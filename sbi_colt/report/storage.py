"""Results on disk: arrays and JSON in one ``.npz`` file, never pickled objects."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from sbi_colt.colt import prepare
from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws
from sbi_colt.files import prefixed, unprefixed
from sbi_colt.probes.coordinates import Scales
from sbi_colt.probes.networks import x_features
from sbi_colt.probes.training import History
from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.results.colt_result import CoLTResult, ProbeResult
from sbi_colt.results.local import Evidence
from sbi_colt.results.test_result import TestResult
from sbi_colt.stats.ranks import RankTable

__all__ = ["pack_result", "unpack_result"]

_NUMBERS = (
    "p_value",
    "test_p_value",
    "training_p_value",
    "statistic",
    "distance",
    "distance_lower",
    "num_train",
    "num_test",
    "num_posterior_samples",
    "seed",
)
_DRAWS = ("thetas", "xs", "samples")


def pack_result(
    result: TestResult | CoLTResult,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return a result as a JSON-ready header and tensors."""
    if isinstance(result, TestResult):
        header = {
            "kind": "test",
            "name": result.name,
            "p_value": result.p_value,
            "statistic": result.statistic,
            "details": result.details,
        }
        return header, {} if result.ranks is None else {"ranks": result.ranks}
    evidence = result.evidence
    header = {
        "kind": "colt",
        **{name: getattr(result, name) for name in _NUMBERS},
        "config": result.config.to_dict(),
        "history": {name: vars(history) for name, history in result.history.items()},
        "probes": [
            {name: value for name, value in vars(probe).items() if name != "ranks"}
            for probe in result.probes
        ],
        "leading": result.leading.name,
    }
    tensors = {"mask": result.mask, "index": result.index}
    tensors |= {name: getattr(evidence.draws, name) for name in _DRAWS}
    tensors |= {"truth": evidence.truth, "features": evidence.features}
    tensors |= prefixed("table", vars(evidence.table))
    tensors |= prefixed("scales", vars(evidence.scales))
    tensors |= {f"ranks.{probe.name}": probe.ranks for probe in result.probes}
    tensors |= prefixed("probe", evidence.probe.state_dict())
    if result.config.embedding_net is not None:
        tensors |= prefixed("embedding_net", result.config.embedding_net.state_dict())
    return header, tensors


def unpack_result(
    header: dict[str, Any],
    tensors: Mapping[str, Tensor],
    embedding_net: nn.Module | None = None,
    embedding: nn.Module | Callable[[Tensor], Tensor] | None = None,
) -> TestResult | CoLTResult:
    """Rebuild a result; networks of the user's own must be passed again."""
    if header["kind"] == "test":
        return TestResult(
            header["name"],
            header["p_value"],
            header["statistic"],
            tensors.get("ranks"),
            header["details"],
        )
    if embedding_net is not None:
        embedding_net = copy.deepcopy(embedding_net).eval()
        embedding_net.load_state_dict(unprefixed("embedding_net", tensors))
    config = CoLTConfig.from_dict(header["config"], embedding_net, embedding)
    scales = Scales(**unprefixed("scales", tensors))
    (probe,) = [p for p in config.make_probes() if p.name == header["leading"]]
    generator = generator_from(header["seed"], "load")
    with isolated_rng(generator):
        prepare(probe, config, scales, tensors["xs"][:2], generator)
    probe.load_state_dict(unprefixed("probe", tensors))
    probes = tuple(
        ProbeResult(**plain, ranks=tensors[f"ranks.{plain['name']}"])
        for plain in header["probes"]
    )
    (leading,) = [p for p in probes if p.name == header["leading"]]
    return CoLTResult(
        **{name: header[name] for name in _NUMBERS},
        ranks=leading.ranks,
        probes=probes,
        config=config,
        mask=tensors["mask"],
        index=tensors["index"],
        history={
            name: History.from_dict(plain) for name, plain in header["history"].items()
        },
        evidence=Evidence(
            draws=Draws(
                *(tensors[name] for name in _DRAWS),
                mask=tensors["mask"],
                index=tensors["index"],
            ),
            truth=tensors["truth"],
            table=RankTable(**unprefixed("table", tensors)),
            features=tensors["features"],
            embed=partial(x_features, scales=scales, embedding_net=embedding_net),
            probe=probe.eval(),
            scales=scales,
        ),
    )
