"""CoLT: train probes on some pairs, test them on others.

`CoLT.fit` is the paper's Algorithm 1 and `CoLT.test` its Algorithm 2; ``run`` does both
on one set of pairs.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws, pair_keys
from sbi_colt.files import load_file, prefixed, save_file, unprefixed
from sbi_colt.probes.ball import Probe, x_features
from sbi_colt.probes.coordinates import Coordinates, Scales, make_frame
from sbi_colt.probes.training import History, build_probe, train_probe
from sbi_colt.randomness import digest, generator_from, isolated_rng, resolve_seed
from sbi_colt.results.colt_result import CoLTResult, ProbeResult
from sbi_colt.results.local import Evidence
from sbi_colt.stats.intervals import distance_margin
from sbi_colt.stats.ranks import bag_ranks
from sbi_colt.stats.redraw import combined_p_value, take_members
from sbi_colt.stats.uniformity import (
    ks_p_value,
    ks_statistic,
    pooled_anderson_darling,
    worst_level,
)

__all__ = ["CoLT"]

_FORMAT = "sbi_colt.CoLT/1"
# Draws of each training pair that tell at which level its ball is worst.
_NUM_BALL_DRAWS = 200


class CoLT:
    r"""The conditional localization test (Chen, Bansal and Scott, NeurIPS 2025).

    For a centre θ_l(x) and an embedding φ the ball-probability rank

    .. math:: U = P_{θ \sim q(·|x)}(d_φ(θ_l(x), θ) \le d_φ(θ_l(x), θ^*))

    is uniform if q = p. `fit` looks for centres and embeddings under which it deviates
    most; `test` measures the deviation on pairs that `fit` has not seen.

    Null hypothesis: q(θ | x) = p(θ | x) for almost every x. The p-value is exact for
    every number of pairs and draws, whatever training did.

    Args:
        config: Settings; the default is the strongest found in the benchmark.
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
        self.probes: tuple[Probe, ...] = ()
        self.history: dict[str, History] = {}
        self.scales: Scales | None = None
        self.num_train = 0
        self._balls: tuple[tuple[float, int], ...] = ()  # of the training pairs
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
        keys = pair_keys(draws.thetas, draws.xs)
        draws = draws.to(self.device)
        generator = generator_from(self.seed, "fit")
        history: dict[str, History] = {}
        with isolated_rng(generator):
            scales = Scales.of(draws.thetas, draws.xs, draws.samples)
            probes = self._build(scales, draws.xs[:2], generator)
            members = torch.cat([draws.thetas.unsqueeze(0), draws.samples])
            members = members.transpose(0, 1)  # (N, K + 1, d), the truth first
            inputs = _inputs(probes, members, draws.xs, scales)
            interrupted = False
            for probe in probes:
                if probe.is_trainable and interrupted:
                    history[probe.spec.name] = History()
                    continue
                trained = train_probe(
                    probe,
                    *inputs[probe.spec.coordinates],
                    self.config,
                    generator,
                    show_progress_bar,
                )
                history[probe.spec.name] = trained
                interrupted = interrupted or trained.stopped == "interrupted"
            with torch.no_grad():
                samples = draws.samples[:_NUM_BALL_DRAWS]
                few = Draws(draws.thetas, draws.xs, samples, shuffle=False)
                members, truth = few.bags(generator)
                tables = _rank_tables(probes, members, draws.xs, scales, generator)
        # Only now, so that a fit that fails leaves nothing that could be tested.
        self._balls = tuple(map(_worst_ball, take_members(tables, truth)))
        self.probes, self.scales, self.history = probes, scales, history
        self.num_train, self._pair_keys = len(draws), frozenset(keys)
        return self

    def test(self, draws: Draws) -> CoLTResult:
        """Test on pairs that training has not seen (Algorithm 2).

        Args:
            draws: Test pairs with their posterior draws; any number of draws per x.

        Returns:
            The result; its p-value is exact under q(θ | x) = p(θ | x).
        """
        scales = self._check_fits(draws)
        self._check_fresh(draws)
        draws = draws.to(self.device)
        generator = generator_from(self.seed, "test", digest(draws.thetas, draws.xs))
        with isolated_rng(generator), torch.no_grad():
            members, truth = draws.bags(generator)
            tables = _rank_tables(self.probes, members, draws.xs, scales, generator)
            ranks = take_members(tables, truth)  # (P, N)
            statistics = ks_statistic(ranks)
            p_value = combined_p_value(
                tables,
                truth,
                pooled_anderson_darling,
                self.config.num_redraws,
                generator,
            )
            leading = int(statistics.argmax())
            net = copy.deepcopy(self.config.embedding_net)
            if net is not None:
                net = net.to(self.device).eval()
            embed = partial(x_features, scales=scales, embedding_net=net)
            evidence = Evidence(
                members=members,
                truth=truth,
                xs=draws.xs,
                tables=tables,
                features=embed(draws.xs),
                embed=embed,
                probe=self.probes[leading],
                scales=scales,
            )
        margin = distance_margin(len(draws), len(self.probes), self.config.confidence)
        probes = tuple(
            ProbeResult(
                name=probe.spec.name,
                statistic=(value := float(statistic)),
                p_value=ks_p_value(value, len(draws)),
                distance=value,
                distance_lower=max(0.0, value - margin),
                level=level,
                sign=sign,
                ranks=row.cpu(),
            )
            for probe, statistic, row, (level, sign) in zip(
                self.probes, statistics, ranks, self._balls, strict=True
            )
        )
        return CoLTResult(
            p_value=p_value,
            test_p_value=p_value,
            training_p_value=None,
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
            mask=draws.mask,
            index=draws.index,
            history=dict(self.history),
            evidence=evidence,
        )

    def untrained_p_value(self, draws: Draws) -> float | None:
        """Return the p-value of the untrained probes alone, on any pairs.

        Null hypothesis: q(θ | x) = p(θ | x) for almost every x. Exact on the training
        pairs too: scales are of all members alike, and nothing else was taken from
        them. Sample size ``len(draws)``; resolution 1 / (num_redraws + 1).

        Args:
            draws: Pairs with their posterior draws.

        Returns:
            The p-value, `None` where every probe is trained or solved for.
        """
        scales = self._check_fits(draws)
        probes = [probe for probe in self.probes if probe.is_fixed]
        if not probes:
            return None
        draws = draws.to(self.device)
        key = digest(draws.thetas, draws.xs)
        generator = generator_from(self.seed, "untrained", key)
        with isolated_rng(generator), torch.no_grad():
            members, truth = draws.bags(generator)
            tables = _rank_tables(probes, members, draws.xs, scales, generator)
            return combined_p_value(
                tables,
                truth,
                pooled_anderson_darling,
                self.config.num_redraws,
                generator,
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
            "balls": self._balls,
            "pair_keys": sorted(key.hex() for key in self._pair_keys),
        }
        tensors = prefixed("scales", vars(self.scales))
        for i, probe in enumerate(self.probes):
            tensors |= prefixed(f"probe{i}", probe.state_dict())
        save_file(path, header, tensors)

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
        header, tensors = load_file(path, _FORMAT)
        config = CoLTConfig.from_dict(header["config"], embedding_net, embedding)
        colt = cls(config, seed=header["seed"], device=device)
        colt.scales = Scales(
            **{k: v.to(device) for k, v in unprefixed("scales", tensors).items()}
        )
        x_example = colt.scales.x_mean.expand(2, *colt.scales.x_mean.shape)
        generator = generator_from(colt.seed, "load")
        with isolated_rng(generator):
            colt.probes = colt._build(colt.scales, x_example, generator)
        for i, probe in enumerate(colt.probes):
            probe.load_state_dict(unprefixed(f"probe{i}", tensors))
        colt.history = {
            name: History.from_dict(plain) for name, plain in header["history"].items()
        }
        colt.num_train = header["num_train"]
        colt._balls = tuple((level, sign) for level, sign in header["balls"])
        colt._pair_keys = frozenset(map(bytes.fromhex, header["pair_keys"]))
        return colt

    def _build(
        self, scales: Scales, x_example: Tensor, generator: torch.Generator
    ) -> tuple[Probe, ...]:
        dim = len(scales.theta_mean)
        specs = [spec for spec in self.config.specs if spec.fits(dim)]
        if not specs:
            raise ValueError(
                f"probes: none of {[spec.name for spec in self.config.specs]} is for θ "
                f"of dimension {dim}; add another, such as 'density'."
            )
        return tuple(
            build_probe(spec, self.config, scales, x_example, generator).to(self.device)
            for spec in specs
        )

    def _check_fits(self, draws: Draws) -> Scales:
        """Return the scales, if there is a trained test that such draws fit."""
        if not self.probes or self.scales is None:
            raise RuntimeError("CoLT.test: call fit(draws) before test(draws).")
        _check_draws(draws)
        expected = (len(self.scales.theta_mean), tuple(self.scales.x_mean.shape))
        got = (draws.dim, tuple(draws.xs.shape[1:]))
        if got != expected:
            raise ValueError(
                f"draws: the test was trained on θ of dimension {expected[0]} and x of "
                f"shape {expected[1]}, got {got[0]} and {got[1]}."
            )
        return self.scales

    def _check_fresh(self, draws: Draws) -> None:
        keys = pair_keys(draws.thetas, draws.xs)
        shared = sum(key in self._pair_keys for key in keys)
        if shared:
            raise ValueError(
                f"draws: {shared} of {len(draws)} test pairs were used in training, "
                "which makes the p-value wrong; test on fresh pairs "
                "(train, test = draws.split(0.5))."
            )


def _check_draws(draws: Draws) -> None:
    if not isinstance(draws, Draws):
        raise TypeError(
            f"draws: expected Draws(thetas, xs, samples), got {type(draws).__name__}."
        )


def _rank_tables(
    probes: Sequence[Probe],
    members: Tensor,
    xs: Tensor,
    scales: Scales,
    generator: torch.Generator,
) -> Tensor:
    """Return the ranks of all members under each probe, ``(P, N, K + 1)``."""
    inputs = _inputs(probes, members, xs, scales)
    tables = []
    for probe in probes:
        scores = probe.eval()(*inputs[probe.spec.coordinates])  # (N, K + 1)
        if scores.isnan().any():
            raise FloatingPointError(
                f"The probe {probe.spec.name!r} returned NaN distances; check the "
                "scale of xs and thetas, or a custom embedding."
            )
        tables.append(bag_ranks(scores, generator))
    return torch.stack(tables)


def _worst_ball(ranks: Tensor) -> tuple[float, int]:
    """Return the level at which ranks deviate most, and the deviation's sign."""
    level, share = worst_level(ranks)
    return level, 1 if share >= level else -1


def _inputs(
    probes: Sequence[Probe], members: Tensor, xs: Tensor, scales: Scales
) -> dict[Coordinates, tuple[Tensor, Tensor]]:
    """Return bags and xs in each of the coordinates that the probes ask for."""
    kinds: set[Coordinates] = {probe.spec.coordinates for probe in probes}
    return {
        kind: (
            make_frame(members, kind, scales).to_points(members),
            scales.network_xs(xs, kind),
        )
        for kind in kinds
    }
