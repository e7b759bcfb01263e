"""SBC, TARP, expected coverage and C2ST on shared draws.

The first three are fixed probes and run through the same exact ranks and tests as CoLT:
SBC ranks each parameter by itself, TARP the distance from a random reference point,
coverage the Mahalanobis distance from the posterior mean. Nothing is trained, so every
pair is a test pair. C2ST trains a classifier on some pairs and tests it on the others;
the classifier's logit is a probe too, and its ranks are exact as well.

sbi's own `check_sbc` compares discrete ranks with a continuous distribution, and its
`check_tarp` runs a two-sample test on two grids of N / 10 points. On the same draws as
`sbc` and `tarp` here (d = 3, N = 1000, K draws, the second posterior's covariance times
1.4; level 0.05, 200 repetitions) they reject this often::

    posterior        K   sbi check_sbc     sbc   sbi check_tarp    tarp
    correct         10           1.000   0.025            0.000   0.035
    correct         30           0.500   0.045            0.000   0.020
    correct        100           0.060   0.040            0.000   0.020
    correct       1000           0.035   0.045            0.000   0.070
    too wide        10           1.000   0.720            0.000   0.860
    too wide        30           0.975   0.875            0.000   0.870
    too wide       100           0.910   0.925            0.000   0.940
    too wide      1000           0.935   0.965            0.000   0.940

`sbi-colt benchmark rates` makes this table.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from sbi_colt.draws import Draws
from sbi_colt.probes.coordinates import Scales, make_frame
from sbi_colt.probes.networks import MLP, embed_xs
from sbi_colt.randomness import digest, generator_from, isolated_rng, resolve_seed
from sbi_colt.results.test_result import TestResult
from sbi_colt.stats.combine import holm
from sbi_colt.stats.ranks import RankTable, randomized_ranks
from sbi_colt.stats.redraw import combined_p_value
from sbi_colt.stats.uniformity import ks_p_value, ks_statistic, largest_ks

__all__ = ["C2ST", "c2st", "coverage", "sbc", "tarp"]

_NUM_RANKED = 200  # draws per x among which C2ST ranks the truth
_CHUNK = 2**16  # members that the classifier sees at once


def sbc(draws: Draws, *, seed: int | None = None, num_redraws: int = 999) -> TestResult:
    """Simulation-based calibration (Talts et al. 2018).

    Null hypothesis: the marginals of q(θ | x) and p(θ | x) agree on average over x, a
    necessary condition of q = p. The p-value is that of the largest of the d
    parameters' Kolmogorov–Smirnov statistics, exact by re-drawing the bags; sample size
    N, resolution 1 / (num_redraws + 1) (continuous for one parameter).

    Args:
        draws: Pairs with posterior draws.
        seed: Seed of the randomised ranks.
        num_redraws: Re-drawings behind the p-value.

    Returns:
        The result, with ranks ``(N, d)`` and, in ``details``, each parameter's
        statistic, exact p-value and Holm-adjusted p-value.

    Example:
        >>> bags = torch.rand(21, 100, 2, generator=torch.Generator().manual_seed(0))
        >>> samples = bags[1:] + torch.tensor([0, 1])  # the second is shifted
        >>> shifted = Draws(bags[0], torch.zeros(100, 1), samples)
        >>> result = sbc(shifted, seed=0)
        >>> result.p_value <= 0.001, result.ranks.shape
        (True, torch.Size([100, 2]))
        >>> [p < 0.001 for p in result.details["adjusted_p_values"]]
        [False, True]
    """
    generator = _generator(draws, seed, "sbc")
    truth = draws.place_truths(generator)
    table = RankTable.of(draws.bags(truth).unbind(dim=-1), generator)
    ranks = table.take(truth)  # (d, N)
    statistics = ks_statistic(ranks)
    p_values = [ks_p_value(float(s), len(draws)) for s in statistics]
    return TestResult(
        "sbc",
        combined_p_value(table, truth, largest_ks, num_redraws, generator),
        float(statistics.max()),
        ranks.T.cpu(),
        {
            "statistics": statistics.tolist(),
            "p_values": p_values,
            "adjusted_p_values": holm(p_values),
        },
    )


def tarp(
    draws: Draws, *, references: Any = None, seed: int | None = None
) -> TestResult:
    """Tests of accuracy with random points (Lemos et al. 2023).

    Null hypothesis: balls around the reference points have the same expected coverage
    under q and p. The p-value is that of the exact Kolmogorov–Smirnov test of
    randomised ranks; sample size N, continuous.

    References are uniform over a box, and parameters are scaled to it, as sbi does. The
    box is that of true parameters and draws together: sbi's is that of the true
    parameters alone, which treats θ* unlike its draws.

    Args:
        draws: Pairs with posterior draws.
        references: Reference points of your own, with shape ``(N, d)``; they must not
            depend on the true parameters.
        seed: Seed of the references and the randomised ranks.

    Example:
        >>> thetas, samples = torch.rand(100, 2), 5 + torch.rand(20, 100, 2)
        >>> tarp(Draws(thetas, torch.zeros(100, 1), samples), seed=0).p_value < 0.01
        True
    """
    generator = _generator(draws, seed, "tarp")
    members = torch.cat([draws.thetas.unsqueeze(0), draws.samples])  # (S + 1, N, d)
    low, high = members.amin(dim=(0, 1)), members.amax(dim=(0, 1))
    size = (high - low).clamp_min(torch.finfo(low.dtype).tiny)
    if references is None:
        points = torch.rand(draws.thetas.shape, generator=generator).to(members)
    else:
        points = torch.as_tensor(references).to(members)
        if points.shape != draws.thetas.shape:
            raise ValueError(
                f"references: expected shape {tuple(draws.thetas.shape)}, one point "
                f"per pair, got {tuple(points.shape)}."
            )
        points = (points - low) / size
    distances = ((members - low) / size - points).norm(dim=-1)  # (S + 1, N)
    ranks = randomized_ranks(distances[0], distances[1:], generator)
    return _single_probe("tarp", ranks)


def coverage(draws: Draws, *, seed: int | None = None) -> TestResult:
    """Expected coverage of credible regions around the posterior mean.

    The regions are balls of the Mahalanobis distance with each bag's own pooled
    moments. Null hypothesis: they have the same expected coverage under q and p. Exact
    Kolmogorov–Smirnov test of randomised ranks; sample size N, continuous. Ranks that
    are too small on average mean that q is too wide.

    Args:
        draws: Pairs with posterior draws.
        seed: Seed of the randomised ranks.

    Example:
        >>> thetas, samples = torch.randn(100, 2), 3 * torch.randn(20, 100, 2)
        >>> result = coverage(Draws(thetas, torch.zeros(100, 1), samples), seed=0)
        >>> result.p_value < 0.001, bool(result.ranks.mean() < 0.3)
        (True, True)
    """
    members = torch.cat([draws.thetas.unsqueeze(0), draws.samples]).transpose(0, 1)
    scales = Scales.of(draws.thetas, draws.xs, draws.samples)
    points = make_frame(members, "bag", scales).to_points(members)  # (N, S + 1, d)
    distances = points.norm(dim=-1).T
    generator = _generator(draws, seed, "coverage")
    ranks = randomized_ranks(distances[0], distances[1:], generator)
    return _single_probe("coverage", ranks)


def _single_probe(name: str, ranks: Tensor) -> TestResult:
    statistic = float(ks_statistic(ranks))
    return TestResult(name, ks_p_value(statistic, len(ranks)), statistic, ranks.cpu())


class C2ST:
    """Classifier two-sample test (Lopez-Paz and Oquab 2017) with an exact p-value.

    A perceptron learns to tell (θ*, x) from (θ, x), θ ~ q(θ | x), one draw per x. Its
    accuracy on held-out pairs is the statistic. The p-value is that of the rank of θ*
    in its bag, in the order of the classifier's logits, as in conformal C2ST (arXiv
    2507.17026): the exact Kolmogorov–Smirnov test of randomised ranks. Null hypothesis:
    q(θ | x) = p(θ | x) for almost every x. Sample size N, the held-out pairs, with at
    most 200 draws each; continuous.

    Args:
        num_hidden: Units in each of the two hidden layers.
        epochs: Passes over the training pairs.
        learning_rate: Step size of Adam.
        embedding_net: A network from xs to vectors; a copy of it is trained along.
        seed: Seed.

    Example:
        >>> thetas, samples = torch.randn(200, 1), 3 + torch.randn(1, 200, 1)
        >>> draws = Draws(thetas, torch.zeros(200, 1), samples)
        >>> train, test = draws.split(0.5, seed=0)
        >>> C2ST(epochs=20, seed=0).fit(train).test(test).statistic > 0.8
        True
    """

    def __init__(
        self,
        *,
        num_hidden: int = 256,
        epochs: int = 200,
        learning_rate: float = 1e-3,
        embedding_net: nn.Module | None = None,
        seed: int | None = None,
    ):
        self.num_hidden = num_hidden
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.embedding_net = embedding_net
        self.seed = resolve_seed(seed)
        self._scales: Scales | None = None
        self._network: _PairClassifier | None = None

    def fit(self, draws: Draws) -> C2ST:
        """Train the classifier on pairs and the first draw of each x."""
        scales = Scales.of(draws.thetas, draws.xs, draws.samples[:1])
        thetas, xs, labels = _labelled(draws, scales)
        generator = generator_from(self.seed, "c2st")
        with isolated_rng(generator):
            network = _PairClassifier(
                thetas[:2], xs[:2], self.embedding_net, self.num_hidden, generator
            ).to(thetas.device)
            optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
            loss = nn.BCEWithLogitsLoss()
            for _ in range(self.epochs):
                optimizer.zero_grad()
                loss(network(thetas, xs), labels).backward()
                optimizer.step()
        self._scales, self._network = scales, network.eval()
        return self

    def test(self, draws: Draws) -> TestResult:
        """Test on pairs that training has not seen."""
        if self._network is None or self._scales is None:
            raise RuntimeError("C2ST.test: call fit(draws) before test(draws).")
        few = replace(draws, samples=draws.samples[:_NUM_RANKED])
        generator = _generator(few, self.seed, "c2st ranks")
        truth = few.place_truths(generator)
        with torch.no_grad():
            logits = self._logits(few.bags(truth), few.xs)  # (N, K + 1)
        table = RankTable.of(logits.unsqueeze(0), generator)
        ranks = table.take(truth)[0]
        rows = torch.arange(len(few), device=truth.device)
        draw = (truth + 1) % table.bag_size  # any member but the truth
        right = torch.stack([logits[rows, truth] > 0, logits[rows, draw] <= 0])
        p_value = ks_p_value(float(ks_statistic(ranks)), len(few))
        return TestResult("c2st", p_value, float(right.double().mean()))

    def _logits(self, members: Tensor, xs: Tensor) -> Tensor:
        """Return the classifier's logits of bags ``(N, M, d)``, with shape (N, M)."""
        assert self._network is not None
        assert self._scales is not None
        step = max(1, _CHUNK // members.shape[1])
        parts = []
        for block, own in zip(members.split(step), xs.split(step), strict=True):
            thetas = self._scales.network_thetas(block.flatten(0, 1))
            own = self._scales.network_xs(own).repeat_interleave(block.shape[1], dim=0)
            parts.append(self._network(thetas, own).reshape(block.shape[:2]))
        return torch.cat(parts)


def c2st(
    draws: Draws,
    *,
    seed: int | None = None,
    train_fraction: float = 0.5,
    **options: Any,
) -> TestResult:
    """Split the pairs, train a `C2ST` on one part and test it on the other.

    Args:
        draws: Pairs with posterior draws.
        seed: Seed.
        train_fraction: Share of the pairs to train on.
        **options: Options of `C2ST`.
    """
    seed = resolve_seed(seed)
    train, test = draws.split(train_fraction, seed=seed)
    return C2ST(seed=seed, **options).fit(train).test(test)


class _PairClassifier(nn.Module):
    def __init__(
        self,
        thetas: Tensor,
        xs: Tensor,
        embedding_net: nn.Module | None,
        num_hidden: int,
        generator: torch.Generator,
    ):
        super().__init__()
        self.embedding_net = copy.deepcopy(embedding_net)
        with torch.no_grad():
            num_inputs = thetas.shape[1] + embed_xs(xs, self.embedding_net).shape[1]
        self.head = MLP(num_inputs, 1, num_hidden, 3, generator)

    def forward(self, thetas: Tensor, xs: Tensor) -> Tensor:
        features = embed_xs(xs, self.embedding_net)
        return self.head(torch.cat([thetas, features], dim=1)).squeeze(1)


def _labelled(draws: Draws, scales: Scales) -> tuple[Tensor, Tensor, Tensor]:
    """Return standardised parameters, xs and labels: 1 for the truth, 0 for a draw."""
    thetas = scales.network_thetas(torch.cat([draws.thetas, draws.samples[0]]))
    xs = scales.network_xs(draws.xs)
    labels = torch.zeros(len(thetas), device=thetas.device)
    labels[: len(draws)] = 1
    return thetas, torch.cat([xs, xs]), labels


def _generator(draws: Draws, seed: int | None, name: str) -> torch.Generator:
    draws.check_equal_weights()
    key = digest(draws.thetas, draws.xs)
    return generator_from(resolve_seed(seed), name, key)
