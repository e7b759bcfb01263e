"""CoLT: train probes on some pairs, test them on others.

`CoLT.fit` is the paper's Algorithm 1 and `CoLT.test` its Algorithm 2; `run_colt` does
both in the calling convention of sbi's `run_sbc` and `run_tarp`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws, clean_pairs
from sbi_colt.localization import BallProbe, Coordinates, Scales, embed_xs, make_frame
from sbi_colt.randomness import digest, generator_from, isolated_rng, resolve_seed
from sbi_colt.ranks import bag_ranks
from sbi_colt.results import CoLTResult, Evidence, ProbeResult
from sbi_colt.sampling import draw_posterior_samples
from sbi_colt.testing import (
    distance_margin,
    ks_p_value,
    ks_statistic,
    redraw_statistics,
    redrawn_p_value,
    take_members,
)
from sbi_colt.training import History, train_probe

__all__ = ["CoLT", "check_colt", "run_colt"]

_FORMAT = "sbi_colt.CoLT/1"
# Below this many pairs on either side a test is valid but says nothing.
_MIN_PAIRS = 5


class CoLT:
    r"""The conditional localization test (Chen, Bansal and Scott, NeurIPS 2025).

    For a centre θ_l(x) and an embedding φ the ball-probability rank

    .. math:: U = P_{θ \sim q(·|x)}(d_φ(θ_l(x), θ) \le d_φ(θ_l(x), θ^*))

    is uniform if q = p. `fit` looks for centres and embeddings under which it deviates
    most; `test` measures the deviation on pairs that `fit` has not seen.

    Null hypothesis: q(θ | x) = p(θ | x) for almost every x. The p-value is exact for
    every number of pairs and draws, whatever training did.

    Args:
        config: Settings; the default is the strongest test known here.
        seed: Seed of training and testing. The same seed and the same draws give the
            same result; each batch of draws gets random numbers of its own.
        device: Device to train and test on.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> def pairs(n):
        ...     xs = torch.randn(n, 2, generator=generator)
        ...     thetas = xs + torch.randn(n, 2, generator=generator)
        ...     samples = xs + 2 * torch.randn(50, n, 2, generator=generator)
        ...     return Draws(thetas, xs, samples)  # q is twice as wide as p
        >>> test = CoLT(CoLTConfig(max_epochs=5), seed=0)
        >>> result = test.fit(pairs(100), show_progress_bar=False).test(pairs(100))
        >>> result.p_value <= 0.001
        True
    """

    def __init__(
        self,
        config: CoLTConfig | None = None,
        *,
        seed: int | None = None,
        device: str | torch.device = "cpu",
    ):
        if config is not None and not isinstance(config, CoLTConfig):
            raise TypeError(
                f"config: expected a CoLTConfig or None, got {type(config).__name__}."
            )
        self.config = config or CoLTConfig()
        self.seed = resolve_seed(seed)
        self.device = torch.device(device)
        self.probes: tuple[BallProbe, ...] = ()
        self.history: dict[str, History] = {}
        self.scales: Scales | None = None
        self.num_train = 0
        self._pair_keys: frozenset[bytes] = frozenset()

    def fit(self, draws: Draws, *, show_progress_bar: bool = True) -> CoLT:
        """Train the probes (Algorithm 1).

        Ctrl-C stops training; the best state so far is kept, and a warning says so.

        Args:
            draws: Training pairs with their posterior draws.
            show_progress_bar: Whether to show a bar per probe.

        Returns:
            Itself.
        """
        _check_draws(draws)
        keys = _pair_keys(draws)
        draws = draws.to(self.device)
        generator = generator_from(self.seed, "fit")
        with isolated_rng(generator):
            self.scales = Scales.of(draws.thetas, draws.xs, draws.samples)
            self.probes = self._build(draws.dim, draws.xs[:2], generator)
            members = torch.cat([draws.thetas.unsqueeze(0), draws.samples])
            members = members.transpose(0, 1)  # (N, K + 1, d), the truth first
            self.history = {}
            interrupted = False
            for probe in self.probes:
                if not probe.is_trainable or interrupted:
                    self.history[probe.spec.name] = History()
                    continue
                frame = make_frame(members, probe.spec.coordinates, self.scales)
                history = train_probe(
                    probe,
                    frame.members,
                    draws.xs.float(),
                    self.config,
                    generator,
                    show_progress_bar,
                )
                self.history[probe.spec.name] = history
                interrupted = history.stopped == "interrupted"
        self.num_train = len(draws)
        # Where pairs repeat by chance (discrete data), a repeat proves nothing.
        self._pair_keys = frozenset(keys if len(set(keys)) == len(keys) else ())
        return self

    def test(self, draws: Draws) -> CoLTResult:
        """Test on pairs that training has not seen (Algorithm 2).

        Args:
            draws: Test pairs with their posterior draws; any number of draws per x.

        Returns:
            The result; its p-value is exact under q(θ | x) = p(θ | x).
        """
        if not self.probes or self.scales is None:
            raise RuntimeError("CoLT.test: call fit(draws) before test(draws).")
        _check_draws(draws)
        self._check_fits(draws)
        mask = draws.mask
        draws = draws.to(self.device)
        generator = generator_from(self.seed, "test", digest(draws.thetas, draws.xs))
        with isolated_rng(generator), torch.no_grad():
            members, truth = _bags(draws, generator)
            xs = draws.xs.float()
            kinds: set[Coordinates] = {p.spec.coordinates for p in self.probes}
            frames = {kind: make_frame(members, kind, self.scales) for kind in kinds}
            tables = []
            for probe in self.probes:
                probe.eval()
                frame = frames[probe.spec.coordinates]
                scores = probe(frame.members, xs)  # (N, K + 1)
                if scores.isnan().any():
                    raise FloatingPointError(
                        f"The probe {probe.spec.name!r} returned NaN distances; check "
                        "the scale of xs and thetas, or a custom embedding."
                    )
                tables.append(bag_ranks(scores, generator))
            tables = torch.stack(tables)  # (P, N, K + 1)
            ranks = take_members(tables, truth)  # (P, N)
            statistics = ks_statistic(ranks)
            p_value = self._p_value(tables, statistics, generator)
            embed = partial(_features, scales=self.scales, net=self._embedding_net())
            leading = int(statistics.argmax())
            probe = self.probes[leading]
            evidence = Evidence(
                tables=tables,
                truth=truth,
                features=embed(xs),
                embed=embed,
                probe=probe,
                frame=frames[probe.spec.coordinates],
                xs=xs,
                scales=self.scales,
            )
        margin = distance_margin(len(draws), len(self.probes), self.config.confidence)
        probes = tuple(
            ProbeResult(
                name=probe.spec.name,
                statistic=(value := float(statistic)),
                p_value=ks_p_value(value, len(draws)),
                distance=value,
                distance_lower=max(0.0, value - margin),
                ranks=row.cpu(),
            )
            for probe, statistic, row in zip(
                self.probes, statistics, ranks, strict=True
            )
        )
        return CoLTResult(
            p_value=p_value,
            statistic=probes[leading].statistic,
            distance=probes[leading].distance,
            distance_lower=probes[leading].distance_lower,
            ranks=probes[leading].ranks,
            probes=probes,
            num_train=self.num_train,
            num_test=len(draws),
            num_posterior_samples=draws.num_posterior_samples,
            config=self.config,
            seed=self.seed,
            mask=mask,
            history=dict(self.history),
            evidence=evidence,
        )

    def save(self, path: str | os.PathLike) -> None:
        """Write the trained test to a file: weights and JSON, no pickled objects.

        Networks of your own (``embedding_net``, ``embedding``) are stored by their
        weights; pass the modules again to `load`.
        """
        if self.scales is None:
            raise RuntimeError("CoLT.save: call fit(draws) before save(path).")
        header = {
            "format": _FORMAT,
            "config": self.config.to_dict(),
            "seed": self.seed,
            "num_train": self.num_train,
            "history": {name: vars(h) for name, h in self.history.items()},
            "pair_keys": sorted(key.hex() for key in self._pair_keys),
        }
        torch.save(
            {
                "header": json.dumps(header),
                "scales": dict(vars(self.scales)),
                "probes": [probe.state_dict() for probe in self.probes],
            },
            path,
        )

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        *,
        embedding_net: nn.Module | None = None,
        embedding: nn.Module | Callable[[Tensor], Tensor] | None = None,
        device: str | torch.device = "cpu",
    ) -> CoLT:
        """Read a trained test from a file.

        Args:
            path: The file that `save` wrote.
            embedding_net: The embedding net of the configuration, if it had one.
            embedding: The φ of the configuration, if it had one.
            device: Device to test on.
        """
        content = torch.load(path, map_location=device, weights_only=True)
        header = json.loads(content["header"]) if "header" in content else {}
        if header.get("format") != _FORMAT:
            raise ValueError(f"{path}: not a file that CoLT.save wrote.")
        config = CoLTConfig.from_dict(header["config"], embedding_net, embedding)
        colt = cls(config, seed=header["seed"], device=device)
        colt.scales = Scales(**content["scales"])
        x_example = colt.scales.x_mean.float().expand(2, *colt.scales.x_mean.shape)
        generator = generator_from(colt.seed, "load")
        with isolated_rng(generator):
            colt.probes = colt._build(len(colt.scales.theta_mean), x_example, generator)
        for probe, state in zip(colt.probes, content["probes"], strict=True):
            probe.load_state_dict(state)
        colt.history = {
            name: History(
                tuple(h["training"]),
                tuple(h["validation"]),
                h["best_epoch"],
                h["stopped"],
            )
            for name, h in header["history"].items()
        }
        colt.num_train = header["num_train"]
        colt._pair_keys = frozenset(map(bytes.fromhex, header["pair_keys"]))
        return colt

    def _build(
        self, dim: int, x_example: Tensor, generator: torch.Generator
    ) -> tuple[BallProbe, ...]:
        assert self.scales is not None
        return tuple(
            BallProbe(
                spec,
                dim,
                x_example,
                self.scales,
                generator,
                num_hidden=self.config.num_hidden,
                num_layers=self.config.num_layers,
                embedding_net=self.config.embedding_net,
                embedding=self.config.embedding,
            ).to(self.device)
            for spec in self.config.specs
        )

    def _embedding_net(self) -> nn.Module | None:
        net = self.config.embedding_net
        return None if net is None else copy.deepcopy(net).to(self.device).eval()

    def _p_value(
        self, tables: Tensor, statistics: Tensor, generator: torch.Generator
    ) -> float:
        if len(tables) == 1:
            return ks_p_value(float(statistics[0]), tables.shape[1])
        null = redraw_statistics(tables, self.config.num_redraws, generator)
        # All probes share N, so the largest statistic is the smallest p-value.
        return redrawn_p_value(float(statistics.max()), null.amax(dim=1))

    def _check_fits(self, draws: Draws) -> None:
        assert self.scales is not None
        expected = (len(self.scales.theta_mean), tuple(self.scales.x_mean.shape))
        got = (draws.dim, tuple(draws.xs.shape[1:]))
        if got != expected:
            raise ValueError(
                f"draws: the test was trained on θ of dimension {expected[0]} and x of "
                f"shape {expected[1]}, got {got[0]} and {got[1]}."
            )
        shared = sum(key in self._pair_keys for key in _pair_keys(draws))
        if shared:
            raise ValueError(
                f"draws: {shared} of {len(draws)} test pairs were used in training, "
                "which makes the p-value wrong; test on fresh pairs "
                "(train, test = draws.split(0.5))."
            )


def run_colt(
    thetas: Any,
    xs: Any,
    posterior: Any,
    num_posterior_samples: int = 1000,
    num_workers: int = 1,
    show_progress_bar: bool = True,
    use_batched_sampling: bool = True,
    *,
    config: CoLTConfig | None = None,
    seed: int | None = None,
    device: str | torch.device = "cpu",
) -> CoLTResult:
    """Test a posterior with CoLT, in the calling convention of sbi's `run_sbc`.

    Posterior draws are made for every x; ``config.train_fraction`` of the pairs train
    the probes, and the others test them.

    Args:
        thetas: True parameters, simulated from the prior, with shape ``(N, d)``.
        xs: Observations simulated from them, with shape ``(N, …)``.
        posterior: A posterior obtained from sbi.
        num_posterior_samples: Draws per x, K.
        num_workers: Processes for samplers that have no batched form.
        show_progress_bar: Whether to show progress.
        use_batched_sampling: Whether to sample all xs at once where possible.
        config: Settings; the default is the strongest test known here.
        seed: Seed of sampling, training and testing.
        device: Device to train and test on.

    Returns:
        The result. Null hypothesis: q(θ | x) = p(θ | x) for almost every x.
    """
    seed = resolve_seed(seed)
    colt = CoLT(config, seed=seed, device=device)
    thetas, xs, mask = clean_pairs(thetas, xs)
    num_train = round(colt.config.train_fraction * len(thetas))
    if min(num_train, len(thetas) - num_train) < _MIN_PAIRS:
        raise ValueError(
            f"thetas: {len(thetas)} pairs are too few to split into training "
            f"({num_train}) and test ({len(thetas) - num_train}); expected at least "
            f"{_MIN_PAIRS} on either side. Simulate more, 100 or better 1000."
        )
    samples = draw_posterior_samples(
        posterior,
        xs,
        num_posterior_samples,
        seed=seed,
        num_workers=num_workers,
        show_progress_bar=show_progress_bar,
        use_batched_sampling=use_batched_sampling,
    )
    draws = Draws(thetas, xs, samples)
    train, test = draws.split(colt.config.train_fraction, seed=seed)
    result = colt.fit(train, show_progress_bar=show_progress_bar).test(test)
    return replace(result, mask=mask)


def check_colt(result: CoLTResult, level: float = 0.05) -> dict[str, Any]:
    """Return the plain numbers of a result.

    Args:
        result: What `run_colt` or `CoLT.test` returned.
        level: Level of the verdict.

    Returns:
        A dict with ``p_value``, ``statistic``, ``distance``, ``distance_lower``,
        ``probe`` (the name of the leading probe) and ``verdict``: ``"rejected"`` or
        ``"not rejected"``.
    """
    if not 0 < level < 1:
        raise ValueError(f"level: expected a number in (0, 1), got {level}.")
    return {
        "p_value": result.p_value,
        "statistic": result.statistic,
        "distance": result.distance,
        "distance_lower": result.distance_lower,
        "probe": result.leading.name,
        "verdict": "rejected" if result.p_value <= level else "not rejected",
    }


def _check_draws(draws: Draws) -> None:
    if not isinstance(draws, Draws):
        raise TypeError(
            f"draws: expected Draws(thetas, xs, samples), got {type(draws).__name__}."
        )


def _bags(draws: Draws, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return bags ``(N, K + 1, d)`` with the truth in a random place, and the places.

    Arithmetic may round differently from place to place; a random place keeps the
    members exchangeable to the last bit.
    """
    num_pairs, size = len(draws), draws.num_posterior_samples + 1
    members = torch.cat([draws.thetas.unsqueeze(0), draws.samples])
    members = members.transpose(0, 1).clone()  # (N, K + 1, d), the truth first
    truth = torch.randint(size, (num_pairs,), generator=generator).to(members.device)
    rows = torch.arange(num_pairs, device=members.device)
    members[rows, 0] = members[rows, truth]
    members[rows, truth] = draws.thetas
    return members, truth


def _features(xs: Tensor, scales: Scales, net: nn.Module | None) -> Tensor:
    """Return the features in which xs are near or far, with shape ``(n, F)``."""
    with torch.no_grad():
        standardised = (xs - scales.x_mean.float()) / scales.x_scale.float()
        return embed_xs(standardised, net)


def _pair_keys(draws: Draws) -> list[bytes]:
    """Return one fingerprint per pair."""
    pairs = torch.cat(
        [draws.thetas.double(), draws.xs.double().reshape(len(draws), -1)], dim=1
    )
    rows = pairs.cpu().contiguous().numpy()
    return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows]
