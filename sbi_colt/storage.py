"""Results on disk: arrays and JSON in one ``.npz`` file, never pickled objects."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sbi_colt.config import CoLTConfig
from sbi_colt.coordinates import Scales
from sbi_colt.evidence import Evidence
from sbi_colt.localization import x_features
from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.results import CoLTResult, ProbeResult, TestResult
from sbi_colt.training import History, build_probe

__all__ = [
    "load_file",
    "pack_result",
    "prefixed",
    "save_file",
    "unpack_result",
    "unprefixed",
]

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
_EVIDENCE = ("members", "truth", "xs", "tables", "features")


def save_file(
    path: str | os.PathLike, header: dict[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Write a header and tensors to a file, in NumPy's ``.npz`` format."""
    arrays: dict[str, Any] = {
        f"tensor/{name}": tensor.detach().cpu().numpy()
        for name, tensor in tensors.items()
    }
    with open(path, "wb") as file:
        np.savez_compressed(file, header=np.array(json.dumps(header)), **arrays)


def load_file(
    path: str | os.PathLike, kind: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a header of a kind and its tensors; nothing in the file is executed."""
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            tensors = {
                name.removeprefix("tensor/"): torch.from_numpy(file[name])
                for name in file.files
                if name != "header"
            }
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy's own words suggest to allow pickle
        raise ValueError(f"{path}: expected a file of {kind}.") from error
    if not isinstance(header, dict) or header.get("format") != kind:
        raise ValueError(f"{path}: expected a file of {kind}.")
    return header, tensors


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
    tensors |= {name: getattr(evidence, name) for name in _EVIDENCE}
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
    (spec,) = [spec for spec in config.specs if spec.name == header["leading"]]
    generator = generator_from(header["seed"], "load")
    with isolated_rng(generator):
        probe = build_probe(spec, config, scales, tensors["xs"][:2], generator)
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
            **{name: tensors[name] for name in _EVIDENCE},
            embed=partial(x_features, scales=scales, embedding_net=embedding_net),
            probe=probe.eval(),
            scales=scales,
        ),
    )


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors under names that begin with a prefix and a dot."""
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def unprefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a prefix under their own names."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): value
        for name, value in tensors.items()
        if name.startswith(start)
    }
