import math
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import anderson, kstest, norm

from sbi_colt.stats.intervals import distance_margin
from sbi_colt.stats.nearness import nearness_weights
from sbi_colt.stats.ranks import RankTable
from sbi_colt.stats.redraw import redraw_statistics, redrawn_p_value
from sbi_colt.stats.uniformity import (
    anderson_darling,
    ks_p_value,
    ks_statistic,
    largest_ks,
    pooled_anderson_darling,
    worst_ball,
)


@pytest.mark.parametrize("n", [1, 2, 15, 400])
def test_ks_agrees_with_scipy(generator, n):
    ranks = torch.rand(n, generator=generator, dtype=torch.float64) ** 1.3
    expected = kstest(ranks.numpy(), "uniform", method="exact")
    statistic = ks_statistic(ranks).item()
    assert statistic == pytest.approx(expected.statistic, abs=1e-12)
    assert ks_p_value(statistic, n) == pytest.approx(expected.pvalue, abs=1e-9)


def test_equal_weights_give_the_unweighted_statistic(generator):
    ranks = torch.rand(3, 50, generator=generator, dtype=torch.float64)
    weights = torch.full((50,), 0.3, dtype=torch.float64)
    torch.testing.assert_close(ks_statistic(ranks, weights), ks_statistic(ranks))


def test_integer_weights_repeat_ranks(generator):
    ranks = torch.rand(20, generator=generator, dtype=torch.float64)
    weights = torch.randint(1, 4, (20,), generator=generator)
    repeated = ranks.repeat_interleave(weights)
    torch.testing.assert_close(
        ks_statistic(ranks, weights.double()), ks_statistic(repeated)
    )


def test_weight_zero_leaves_a_rank_out(generator):
    ranks = torch.rand(20, generator=generator, dtype=torch.float64)
    weights = torch.ones(20, dtype=torch.float64)
    weights[5:] = 0
    torch.testing.assert_close(ks_statistic(ranks, weights), ks_statistic(ranks[:5]))


def test_many_ranks_are_counted_instead_of_sorted(generator, monkeypatch):
    ranks = torch.rand(2, 3, 5000, generator=generator, dtype=torch.float64) ** 1.05
    ranks[0, 0, :2] = torch.tensor([0.0, 1.0])
    counted = anderson_darling(ranks)
    monkeypatch.setattr("sbi_colt.stats.uniformity._NUM_CELLS", 10**9)
    torch.testing.assert_close(
        counted[1], anderson_darling(ranks)[1], atol=0.02, rtol=0
    )
    assert counted.isfinite().all()


def test_anderson_darling_is_that_of_scipy(generator):
    normal = torch.randn(50, generator=generator, dtype=torch.float64).numpy()
    # SciPy fits mean and scale; the ranks of the fitted law have the same statistic.
    ranks = norm.cdf((normal - normal.mean()) / normal.std(ddof=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about its other results
        expected = anderson(normal, "norm").statistic
    found = float(anderson_darling(torch.from_numpy(ranks)))
    assert found == pytest.approx(expected)


def test_anderson_darling_has_its_limiting_law(generator, within_binomial_band):
    ranks = torch.rand(2000, 100, generator=generator, dtype=torch.float64)
    above = int((anderson_darling(ranks) > 2.492).sum())  # its upper 5% point
    assert within_binomial_band(above, 2000, 0.05)
    assert anderson_darling(torch.tensor([0.0, 1.0])).isfinite()


def test_pooled_statistics_lie_between_the_largest_and_the_sum(generator):
    ranks = torch.rand(5, 3, 40, generator=generator, dtype=torch.float64)
    single = anderson_darling(ranks)
    pooled = 2 * pooled_anderson_darling(ranks)
    assert (pooled >= single.amax(dim=1)).all()
    assert (pooled <= single.amax(dim=1) + 2 * math.log(3)).all()


def test_redrawn_statistics_have_the_exact_null_distribution(generator):
    scores = torch.randn(40, 200, generator=generator)
    table = RankTable.of([scores], generator)
    null = redraw_statistics(table, largest_ks, 2000, generator)
    # p-values of re-drawn KS statistics by SciPy's exact law are uniform.
    p_values = [ks_p_value(float(statistic), 40) for statistic in null]
    assert kstest(p_values, "uniform").pvalue > 0.01


def test_redraws_keep_the_dependence_of_probes(generator):
    scores = torch.randn(40, 50, generator=generator)
    table = RankTable.of([scores], generator)
    both = table.under([0, 0])
    null = redraw_statistics(both, ks_statistic, 50, generator)
    assert torch.equal(null[:, 0], null[:, 1])


def test_redrawing_in_chunks_gives_all_redraws(generator, monkeypatch):
    monkeypatch.setattr("sbi_colt.stats.redraw._CHUNK", 1000)
    table = RankTable.of([torch.randn(40, 9, generator=generator)], generator)
    null = redraw_statistics(table, largest_ks, 101, generator)
    assert null.shape == (101,)


def test_redrawn_p_value_is_exact_at_its_resolution(generator, within_binomial_band):
    rejections = 0
    for _ in range(2000):
        statistics = torch.rand(20, generator=generator)
        rejections += (
            redrawn_p_value(float(statistics[0]), statistics[1:], generator) <= 0.05
        )
    assert within_binomial_band(rejections, 2000, 0.05)


def test_the_worst_ball_attains_the_statistic(generator):
    for power in (0.5, 2.0):  # too little and too much mass in small balls
        ranks = torch.rand(60, generator=generator, dtype=torch.float64) ** power
        mass, sign = worst_ball(ranks)
        assert sign == (1 if power > 1 else -1)
        inside = (ranks <= mass) if sign > 0 else (ranks < mass)
        deviation = sign * (float(inside.double().mean()) - mass)
        assert deviation == pytest.approx(ks_statistic(ranks).item())


def test_margin_falls_with_pairs_and_grows_with_probes():
    assert distance_margin(400, 1, 0.95) == pytest.approx(
        distance_margin(100, 1, 0.95) / 2
    )
    assert distance_margin(100, 4, 0.95) > distance_margin(100, 1, 0.95)
    assert distance_margin(100, 1, 0.95) == pytest.approx(
        np.sqrt(np.log(2 / 0.05) / 200)
    )


def test_redrawn_p_value_breaks_ties_at_random(generator, within_binomial_band):
    rejections = 0
    for _ in range(2000):
        statistics = torch.randint(3, (20,), generator=generator).float()
        p = redrawn_p_value(float(statistics[0]), statistics[1:], generator)
        rejections += p <= 0.05
    assert within_binomial_band(rejections, 2000, 0.05)


def test_a_nan_statistic_has_no_p_value(generator):
    with pytest.raises(FloatingPointError, match="NaN"):
        redrawn_p_value(float("nan"), torch.zeros(5), generator)
    with pytest.raises(FloatingPointError, match="NaN"):
        redrawn_p_value(0.1, torch.tensor([0.2, torch.nan]), generator)


def test_nearness_weights_fall_with_distance_and_end():
    features = torch.tensor([[3.0], [0.0], [1.0], [2.0], [10.0]])
    weights = nearness_weights(features, torch.tensor([[0.2]]), num_neighbours=3)[0]
    assert weights.argsort(descending=True)[:3].tolist() == [1, 2, 3]
    assert weights[0] == weights[4] == 0


def test_nearness_weights_survive_equal_and_far_xs():
    weights = nearness_weights(torch.zeros(5, 2), torch.zeros(1, 2), 3)[0]
    assert torch.equal(weights, torch.ones(5).double())
    far = nearness_weights(torch.randn(5, 2), torch.tensor([[1e20, 0.0]]), 3)
    assert far.isfinite().all()
    assert far.sum() > 0
