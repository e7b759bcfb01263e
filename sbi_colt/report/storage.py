"""Reports on disk: arrays and JSON in one ``.npz`` file, never pickled objects."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from sbi_colt.checks import check_choice
from sbi_colt.colt import prepare
from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws
from sbi_colt.files import load_file, prefixed, refused, save_file, unprefixed
from sbi_colt.probes.coordinates import Scales
from sbi_colt.probes.networks import x_features
from sbi_colt.probes.training import History
from sbi_colt.randomness import generator_from, isolated_rng
from sbi_colt.results.colt_result import CoLTResult, ProbeResult
from sbi_colt.results.finding import Finding
from sbi_colt.results.focus import Focus
from sbi_colt.results.local import Evidence
from sbi_colt.results.plausibility_result import PlausibilityResult, StandingOut
from sbi_colt.results.test_result import TestResult
from sbi_colt.stats.ranks import RankTable

if TYPE_CHECKING:
    from sbi_colt.report.diagnostic import DiagnosticReport

__all__ = ["load_report", "save_report"]

_FORMAT = "sbi_colt.DiagnosticReport/3"
_NUMBERS = (
    "p_value",
    "test_p_value",
    "training_p_value",
    "statistic",
    "distance",
    "distance_lower",
    "chance_distance",
    "num_train",
    "num_test",
    "num_posterior_samples",
    "seed",
)
_TEST_FIELDS = ("name", "p_value", "statistic", "details")
_DRAWS = ("thetas", "xs", "samples")
_OBSERVATION = ("x_o", "references", "replicates")
_PLAIN = ("level", "names", "seed", "x_shape", "left_out", "failed_share")


def save_report(report: DiagnosticReport, path: str | os.PathLike) -> None:
    """Write a report to a file."""
    header = {
        "format": _FORMAT,
        **{name: getattr(report, name) for name in _PLAIN},
        "findings": [vars(finding) for finding in report.findings],
        "cost": {**vars(report.cost), "seconds": dict(report.cost.seconds)},
        "focus": report.focus and vars(report.focus),
        "nearness": report.nearness,
        "observation": None,
        "results": {},
    }
    tensors: dict[str, Tensor] = {}
    if report.observation is not None:
        header["observation"], own = _pack_observation(report.observation)
        tensors |= prefixed("observation", own)
    for name, result in report.results.items():
        header["results"][name], own = _pack_result(result)
        tensors |= {f"{name}/{key}": value for key, value in own.items()}
    if report.replicates is not None:
        names = (*_DRAWS, "mask", "index")
        own = {name: getattr(report.replicates, name) for name in names}
        if report.replicates.drawn is not None:
            own["drawn"] = report.replicates.drawn
        tensors |= prefixed("replicates", own)
    save_file(path, header, tensors)


def load_report(
    path: str | os.PathLike,
    embedding_net: nn.Module | None = None,
    embedding: nn.Module | Callable[[Tensor], Tensor] | None = None,
) -> dict[str, Any]:
    """Return the fields of a report from a file; the cost is a dict."""
    header, tensors = load_file(path, _FORMAT)
    results = {}
    for name, own in header["results"].items():
        start = f"{name}/"
        parts = {
            key.removeprefix(start): value
            for key, value in tensors.items()
            if key.startswith(start)
        }
        with refused(name):
            results[name] = _unpack_result(own, parts, embedding_net, embedding)
        ranks = results[name].ranks
        if ranks is not None and ((ranks < 0) | (ranks > 1)).any():
            raise ValueError(f"{name}: expected ranks in [0, 1], got others.")
    findings = []
    for number, plain in enumerate(header["findings"]):
        with refused(f"findings[{number}]"):
            findings.append(Finding(**plain))
    with refused("focus"):
        focus = Focus(**header["focus"]) if header.get("focus") else None
    replicates: dict[str, Any] = unprefixed("replicates", tensors)
    observation = None
    if header.get("observation") is not None:
        with refused("observation"):
            own = unprefixed("observation", tensors)
            observation = _unpack_observation(header["observation"], own)
    return {
        **{name: header[name] for name in _PLAIN},
        "results": results,
        "findings": tuple(findings),
        "names": tuple(header["names"]),
        "cost": header["cost"],
        "x_shape": tuple(header["x_shape"]),
        "replicates": Draws(**replicates) if replicates else None,
        "focus": focus,
        "nearness": header.get("nearness"),
        "observation": observation,
    }


def _pack_observation(
    result: PlausibilityResult,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the test of one observation as a JSON-ready header and tensors."""
    header = dict(vars(result))
    tensors = {name: header.pop(name) for name in _OBSERVATION}
    for name, values in header.pop("score_values").items():
        tensors[f"score {name}"] = values
    header["standing_out"] = [vars(one) for one in result.standing_out]
    return header, {name: own for name, own in tensors.items() if own is not None}


def _unpack_observation(
    header: dict[str, Any], tensors: Mapping[str, Tensor]
) -> PlausibilityResult:
    own: dict[str, Any] = {name: tensors.get(name) for name in _OBSERVATION}
    own["standing_out"] = tuple(StandingOut(**one) for one in header["standing_out"])
    own["score_values"] = {
        name.removeprefix("score "): values
        for name, values in tensors.items()
        if name.startswith("score ")
    }
    return PlausibilityResult(**{**header, **own})


def _pack_result(
    result: TestResult | CoLTResult,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return a result as a JSON-ready header and tensors."""
    if isinstance(result, TestResult):
        header = {name: getattr(result, name) for name in _TEST_FIELDS}
        header["kind"] = "test"
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
        "data_names": list(result.data_names),
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


def _unpack_result(
    header: dict[str, Any],
    tensors: Mapping[str, Tensor],
    embedding_net: nn.Module | None = None,
    embedding: nn.Module | Callable[[Tensor], Tensor] | None = None,
) -> TestResult | CoLTResult:
    """Rebuild a result; networks of the user's own must be passed again."""
    if header["kind"] == "test":
        plain = {name: header[name] for name in _TEST_FIELDS}
        return TestResult(ranks=tensors.get("ranks"), **plain)
    if header["config"]["embedding_net"] is None:
        embedding_net = None  # it belongs to another result of the report
    if header["config"]["embedding"] is None:
        embedding = None
    if embedding_net is not None:
        embedding_net = copy.deepcopy(embedding_net).eval()
        embedding_net.load_state_dict(unprefixed("embedding_net", tensors))
    config = CoLTConfig.from_dict(header["config"], embedding_net, embedding)
    probes = tuple(
        ProbeResult(**plain, ranks=tensors[f"ranks.{plain['name']}"])
        for plain in header["probes"]
    )
    evidence = _unpack_evidence(header, tensors, config)
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
        evidence=evidence,
    )


def _unpack_evidence(
    header: dict[str, Any], tensors: Mapping[str, Tensor], config: CoLTConfig
) -> Evidence:
    """Rebuild the test pairs and the leading probe."""
    scales = Scales(**unprefixed("scales", tensors))
    made = {probe.name: probe for probe in config.make_probes(len(scales.theta_mean))}
    check_choice("leading", header["leading"], tuple(made))
    probe = made[header["leading"]]
    generator = generator_from(header["seed"], "load")
    with isolated_rng(generator):
        prepare(probe, config, scales, tensors["xs"][:2], generator)
    probe.load_state_dict(unprefixed("probe", tensors))
    net = config.embedding_net
    return Evidence(
        draws=Draws(
            *(tensors[name] for name in _DRAWS),
            mask=tensors["mask"],
            index=tensors["index"],
        ),
        truth=tensors["truth"],
        table=RankTable(**unprefixed("table", tensors)),
        features=tensors["features"],
        embed=partial(x_features, scales=scales, embedding_net=net),
        probe=probe.eval(),
        scales=scales,
        data_names=tuple(header["data_names"]),
    )
