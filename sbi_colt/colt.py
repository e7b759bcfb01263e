"""CoLT: train probes on some pairs, test them on others.

`CoLT.fit` is the paper's Algorithm 1 and `CoLT.test` its Algorithm 2; `train_and_test`
does both. Pairs are worked on in blocks, so that memory beyond the draws themselves
stays small.

*Every pair counts.* Learned probes are tested on pairs that training has not seen.
Fixed probes learn nothing, so they are tested on the training pairs too. Given the
training pairs, the p-value of the test pairs is uniform under the null hypothesis,
whatever was learned. So it is independent of the p-value that the fixed probes give on
the training pairs, and `two_halves_p_value` combines both into one exact p-value.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from sbi_colt.checks import check_share, checked_device
from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws
from sbi_colt.files import load_file, prefixed, refused, save_file, unprefixed
from sbi_colt.pair_keys import check_fresh
from sbi_colt.probes import Probe
from sbi_colt.probes.bags import Bags
from sbi_colt.probes.coordinates import Coordinates, Scales
from sbi_colt.probes.networks import x_features
from sbi_colt.probes.ranking import fit_all, rank_all, training_ranks, truth_first
from sbi_colt.probes.training import History
from sbi_colt.randomness import digest, generator_from, isolated_rng, resolve_seed
from sbi_colt.results.colt_result import CoLTResult, ProbeResult
from sbi_colt.results.local import Evidence
from sbi_colt.stats.combine import two_halves_p_value
from sbi_colt.stats.intervals import distance_margin
from sbi_colt.stats.ranks import RankTable
from sbi_colt.stats.redraw import combined_p_value, redraw_statistics
from sbi_colt.stats.uniformity import (
    ks_p_value,
    ks_statistic,
    pooled_anderson_darling,
    worst_ball,
)

__all__ = ["CoLT", "train_and_test"]

_FORMAT = "sbi_colt.CoLT/2"
_NUM_CHANCE = 99  # re-drawings that tell how large a distance chance makes


class CoLT:
    r"""The conditional localization test (Chen, Bansal and Scott, NeurIPS 2025).

    For a centre θ_l(x) and an embedding φ the ball-probability rank

    .. math:: U = P_{θ \sim q(·|x)}(d_φ(θ_l(x), θ) \le d_φ(θ_l(x), θ^*))

    is uniform if q = p. `fit` looks for centres and embeddings under which U deviates
    most from uniform, and for other probes (`sbi_colt.probes`); `test` measures the
    deviation on pairs that `fit` has not seen.

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
        >>> config = CoLTConfig(settings={"ball": {"max_epochs": 5}})
        >>> test = CoLT(config, seed=0).fit(pairs(100), show_progress_bar=False)
        >>> test.test(pairs(100)).p_value <= 0.001
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
        self.device = checked_device(device)
        self.probes: tuple[Probe, ...] = ()
        self.history: dict[str, History] = {}
        self.scales: Scales | None = None
        self.num_train = 0
        self.training_p_value: float | None = None
        self._balls: tuple[tuple[float, int], ...] = ()  # of the training pairs
        self._pair_keys: Tensor | None = None

    def fit(self, draws: Draws, *, show_progress_bar: bool = True) -> CoLT:
        """Train the probes (Algorithm 1).

        Fixed probes have nothing to learn, so they are tested on the training pairs as
        well: ``training_p_value`` is the p-value of the fixed probes alone, `None`
        where there are none. Null hypothesis: q(θ | x) = p(θ | x) for almost every x.
        It is exact: scales treat all members alike, and nothing else was taken from
        these pairs. Sample size ``len(draws)``; resolution 1 / (num_redraws + 1).

        Ctrl-C stops training; the best state so far is kept, and a warning says so.

        Args:
            draws: Training pairs with their posterior draws. If they have a data side,
                its replicates are further simulations to learn from.
            show_progress_bar: Whether to show a bar per probe.

        Returns:
            Itself.
        """
        _check_draws(draws)
        draws = draws.to(self.device)
        generator = generator_from(self.seed, "fit")
        with isolated_rng(generator):
            scales = Scales.of(draws.thetas, draws.xs, draws.samples)
            probes = self._build(scales, draws.xs[:2], generator)
            key = digest(draws.thetas, draws.xs)
            own = generator_from(self.seed, "untrained", key)
            with isolated_rng(own), torch.no_grad():
                bags, ranks, p_value = self._rank_fixed(probes, draws, scales, own)
            simulated = _replicates(draws, scales)
            for kind, part in bags.items():
                bags[kind] = replace(part, simulated=simulated)
            history = fit_all(probes, bags, generator, show_progress_bar)
            learned = [probe for probe in probes if not probe.is_fixed]
            with torch.no_grad():
                more = training_ranks(learned, bags, generator)
            names = (probe.name for probe in learned)
            ranks.update(zip(names, more, strict=True))
        # Only now, so that a fit that fails leaves nothing that could be tested.
        self._balls = tuple(worst_ball(ranks[probe.name]) for probe in probes)
        self.probes, self.scales, self.history = probes, scales, history
        self.num_train, self.training_p_value = len(draws), p_value
        self._pair_keys = draws.keys
        return self

    def test(self, draws: Draws) -> CoLTResult:
        """Test on pairs that training has not seen (Algorithm 2).

        Args:
            draws: Test pairs with their posterior draws; any number of draws per x.

        Returns:
            The result; its p-value is exact under q(θ | x) = p(θ | x).
        """
        scales = self._check_fits(draws)
        check_fresh(draws.keys, self._pair_keys, draws.xs)
        draws = draws.to(self.device)
        generator = generator_from(self.seed, "test", digest(draws.thetas, draws.xs))
        with isolated_rng(generator), torch.no_grad():
            truth = draws.place_truths(generator)
            _, table = rank_all(self.probes, (), draws, truth, scales, generator)
            assert table is not None
            p_value = self._p_value(table, truth, generator)
            chance = redraw_statistics(
                table,
                lambda ranks: ks_statistic(ranks).amax(dim=-1),
                _NUM_CHANCE,
                generator_from(self.seed, "chance", digest(draws.thetas)),
            )
            probes = self._probe_results(table.take(truth))
            leading = max(range(len(probes)), key=lambda i: probes[i].statistic)
            embed = self._embed(scales)
            evidence = Evidence(
                draws=draws,
                truth=truth,
                table=table,
                features=embed(draws.xs),
                embed=embed,
                probe=self.probes[leading],
                scales=scales,
            )
        return CoLTResult(
            p_value=p_value,
            test_p_value=p_value,
            training_p_value=None,
            statistic=probes[leading].statistic,
            distance=probes[leading].distance,
            distance_lower=probes[leading].distance_lower,
            chance_distance=float(chance.median()),
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
            "training_p_value": self.training_p_value,
            "history": {name: vars(h) for name, h in self.history.items()},
            "balls": self._balls,
        }
        tensors = prefixed("scales", vars(self.scales))
        if self._pair_keys is not None:
            tensors["pair_keys"] = self._pair_keys
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
        with refused(path):
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
                name: History.from_dict(plain)
                for name, plain in header["history"].items()
            }
            colt.num_train = header["num_train"]
            colt.training_p_value = header["training_p_value"]
            colt._balls = tuple((mass, sign) for mass, sign in header["balls"])
            colt._pair_keys = tensors.get("pair_keys")
            if colt.training_p_value is not None:
                check_share("training_p_value", colt.training_p_value)
            for mass, _ in colt._balls:
                check_share("balls", mass)
        return colt

    def _build(
        self, scales: Scales, x_example: Tensor, generator: torch.Generator
    ) -> tuple[Probe, ...]:
        dim = len(scales.theta_mean)
        probes = self.config.make_probes(dim)
        if not probes:
            raise ValueError(
                f"probes: none of {list(self.config.probes)} is for parameters of "
                f"dimension {dim}; add another, such as 'density'."
            )
        return tuple(
            prepare(probe, self.config, scales, x_example, generator).to(self.device)
            for probe in probes
        )

    def _embed(self, scales: Scales) -> Callable[[Tensor], Tensor]:
        """Return the function from xs to the features in which near xs are alike."""
        net = copy.deepcopy(self.config.embedding_net)
        if net is not None:
            net = net.to(self.device).eval()
        return partial(x_features, scales=scales, embedding_net=net)

    def _rank_fixed(
        self,
        probes: Sequence[Probe],
        draws: Draws,
        scales: Scales,
        generator: torch.Generator,
    ) -> tuple[dict[Coordinates, Bags], dict[str, Tensor], float | None]:
        """Return the training bags, truth first, with what fixed probes say of them.

        That is the truths' ranks by probe, and their p-value. The ranks of all members
        end with this method: beside the bags they would need much memory.
        """
        fixed = [probe for probe in probes if probe.is_fixed]
        truth = draws.place_truths(generator)
        bags, table = rank_all(fixed, probes, draws, truth, scales, generator)
        truth_first(bags, truth)
        if table is None:
            return bags, {}, None
        names = (probe.name for probe in fixed)
        ranks = dict(zip(names, table.take(truth), strict=True))
        return bags, ranks, self._p_value(table, truth, generator)

    def _p_value(
        self, table: RankTable, truth: Tensor, generator: torch.Generator
    ) -> float:
        return combined_p_value(
            table, truth, pooled_anderson_darling, self.config.num_redraws, generator
        )

    def _probe_results(self, ranks: Tensor) -> tuple[ProbeResult, ...]:
        """Return what each probe found, from its ranks ``(P, N)``."""
        n = ranks.shape[1]
        margin = distance_margin(n, len(self.probes), self.config.confidence)
        return tuple(
            ProbeResult(
                name=probe.name,
                statistic=statistic,
                p_value=ks_p_value(statistic, n),
                distance=statistic,
                distance_lower=max(0.0, statistic - margin),
                mass_q=mass_q,
                sign=sign,
                ranks=row.cpu(),
            )
            for probe, statistic, row, (mass_q, sign) in zip(
                self.probes,
                ks_statistic(ranks).tolist(),
                ranks,
                self._balls,
                strict=True,
            )
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


def _replicates(draws: Draws, scales: Scales) -> tuple[Tensor, Tensor] | None:
    """Return θ' and replicates of the data side as networks see them, if there is one.

    They are simulations like any others. Given them, and the xs and bags as sets, the
    place of each truth is still uniform, so p-values stay exact, and independent of
    those of the data side.
    """
    data = draws.predictive
    if data is None:
        return None
    thetas = data.xs.repeat(len(data.samples), 1)  # (M m, d)
    xs = data.samples.reshape(len(thetas), *draws.xs.shape[1:])
    return scales.network_thetas(thetas), scales.network_xs(xs)


def train_and_test(
    train: Draws,
    test: Draws,
    *,
    config: CoLTConfig,
    seed: int,
    device: str | torch.device,
    show_progress_bar: bool,
) -> CoLTResult:
    """Train on some pairs and test on others, with one p-value of all pairs.

    The arguments are those of `sbi_colt.run_colt`.
    """
    colt = CoLT(config, seed=seed, device=device)
    result = colt.fit(train, show_progress_bar=show_progress_bar).test(test)
    training = colt.training_p_value
    if training is None:
        return result
    return replace(
        result,
        p_value=two_halves_p_value(result.test_p_value, training),
        training_p_value=training,
    )


def prepare(
    probe: Probe,
    config: CoLTConfig,
    scales: Scales,
    x_example: Tensor,
    generator: torch.Generator,
) -> Probe:
    """Prepare a probe for data of these scales, with a configuration's networks."""
    example = scales.network_xs(x_example, probe.coordinates).cpu()
    probe.prepare(scales, example, generator, config.embedding_net, config.embedding)
    return probe


def _check_draws(draws: Draws) -> None:
    if not isinstance(draws, Draws):
        raise TypeError(
            f"draws: expected Draws(thetas, xs, samples), got {type(draws).__name__}."
        )
