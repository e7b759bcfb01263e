"""Draws at pairs from a proposal: exact after thinning, and powerful."""

import pytest
import torch
from configs import make_config

from sbi_colt import Draws
from sbi_colt.baselines import coverage, sbc
from sbi_colt.run_colt import colt_on_draws
from sbi_colt.stats.thinning import thin
from sbi_colt.stats.uniformity import ks_p_value, ks_statistic
from sbi_colt.weighted import thinned

NUM_REPETITIONS = 400

# The prior is N(0, I), x = θ + noise N(0, I), so the posterior is N(x / 2, I / 2).


def normal(size, dim, generator):
    return torch.randn(*size, dim, generator=generator, dtype=torch.float64)


def log_density(thetas, scale=1.0):
    return -(thetas / scale).square().sum(dim=-1) / 2


def narrow(size, dim, generator):
    """θ ~ N(0, 0.7²)."""
    thetas = 0.7 * normal(size, dim, generator)
    return thetas, lambda t: log_density(t, 0.7) - log_density(t)


def wide(size, dim, generator):
    thetas = 2.0 * normal(size, dim, generator)
    return thetas, lambda t: log_density(t, 2.0) - log_density(t)


def shifted(size, dim, generator):
    thetas = 1.0 + normal(size, dim, generator)
    return thetas, lambda t: log_density(t - 1) - log_density(t)


def truncated(size, dim, generator):
    """θ ~ N(0, I) given that the first parameter is positive: w in {0, 1}."""
    thetas = normal(size, dim, generator)
    thetas[:, 0] = thetas[:, 0].abs()
    return thetas, lambda t: torch.where(t[..., 0] > 0, 0.0, -torch.inf)


def heavy(size, dim, generator):
    """Independent Cauchy parameters, far heavier than the prior."""
    uniform = torch.rand(*size, dim, generator=generator, dtype=torch.float64)
    thetas = torch.tan(torch.pi * (uniform - 0.5))
    return thetas, lambda t: (-t.square().log1p()).sum(dim=-1) - log_density(t)


def make(proposal, num_pairs, num_draws, dim, generator, width=1.0):
    thetas, log_weight = proposal((num_pairs,), dim, generator)
    xs = thetas + normal((num_pairs,), dim, generator)
    noise = normal((num_draws, num_pairs), dim, generator)
    samples = xs / 2 + width * 0.5**0.5 * noise
    log_weights = log_weight(torch.cat([thetas.unsqueeze(0), samples]))
    return Draws(thetas, xs, samples, log_weights=log_weights)


@pytest.mark.parametrize("num_draws", [5, 50, 500])
@pytest.mark.parametrize("dim", [1, 3, 10])
@pytest.mark.parametrize("proposal", [narrow, wide, shifted, truncated, heavy])
def test_what_is_kept_is_exchangeable(
    proposal, dim, num_draws, generator, within_binomial_band
):
    """Ranks of the truths among the draws that are kept are uniform, for any K."""
    ranks = []
    for _ in range(10):
        draws = make(proposal, 200, num_draws, dim, generator)
        truths, kept = thin(draws.log_weights, generator)
        members = torch.cat([draws.thetas.unsqueeze(0), draws.samples])
        scores = (members - draws.xs / 2).sum(dim=2).abs()  # (S + 1, N)
        below = (kept & (scores[1:] < scores[0])).sum(dim=0)
        chance = torch.rand(200, generator=generator)
        ranks.append(((below + chance) / (kept.sum(dim=0) + 1))[truths])
    ranks = torch.cat(ranks)
    for level in (0.05, 0.2):
        count = int(((ranks - 0.5).abs() > 0.5 - level / 2).sum())
        assert within_binomial_band(count, len(ranks), level, band=0.9998)
    statistic = float(ks_statistic(ranks.double()))
    assert ks_p_value(statistic, len(ranks)) > 2e-4  # 45 cells


@pytest.mark.parametrize("proposal", [narrow, truncated, shifted])
def test_thinned_draws_are_exact(proposal, generator, within_binomial_band):
    alarms = dict.fromkeys((0.05, 0.2), 0)
    for seed in range(400):
        draws = thinned(make(proposal, 40, 250, 2, generator), seed)
        p_value = coverage(draws, seed=seed).p_value
        for level in alarms:
            alarms[level] += p_value <= level
    for level, count in alarms.items():
        assert within_binomial_band(count, 400, level)


# Three corners: few draws and one parameter, more of both, and weights of 0 or 1.
CORNERS = {
    "few draws": (narrow, 1, 60),
    "more parameters": (narrow, 3, 150),
    "truncated": (truncated, 2, 150),
}


@pytest.mark.slow
@pytest.mark.parametrize("corner", CORNERS)
def test_the_whole_of_colt_is_exact_on_weighted_bags(
    corner, generator, within_binomial_band
):
    """All probes of the default, the solved and the trained ones included."""
    proposal, dim, num_draws = CORNERS[corner]
    config = make_config(max_epochs=3, num_redraws=99)
    alarms = dict.fromkeys((0.05, 0.2), 0)
    for seed in range(NUM_REPETITIONS):
        draws = make(proposal, 60, num_draws, dim, generator)
        result = colt_on_draws(
            thinned(draws, seed), config=config, seed=seed, show_progress_bar=False
        )
        for level in alarms:
            alarms[level] += result.p_value <= level
    for level, count in alarms.items():
        assert within_binomial_band(count, NUM_REPETITIONS, level, band=0.998)


def test_weights_are_needed(generator):
    """The same pairs, taken for pairs from the prior, reject a correct posterior."""
    draws = make(shifted, 400, 400, 2, generator)
    naive = Draws(draws.thetas, draws.xs, draws.samples)
    assert sbc(naive, seed=0).p_value <= 0.001
    assert sbc(thinned(draws, 0), seed=0).p_value > 0.01


def test_a_wrong_posterior_is_found(generator):
    draws = make(narrow, 300, 100, 2, generator, width=1.6)
    assert coverage(thinned(draws, 0), seed=0).p_value < 1e-4


def test_weights_are_saved_and_selected(generator, tmp_path):
    draws = make(wide, 30, 50, 2, generator)
    draws.save(tmp_path / "draws.npz")
    again = Draws.load(tmp_path / "draws.npz")
    assert torch.equal(again.log_weights, draws.log_weights)
    few = draws.select(torch.tensor([4, 2]))
    assert torch.equal(few.log_weights, draws.log_weights[:, [4, 2]])


def test_weighted_draws_are_not_tested_as_they_are(generator):
    draws = make(wide, 30, 50, 2, generator)
    for test in (sbc, coverage):
        with pytest.raises(ValueError, match="come from a proposal"):
            test(draws, seed=0)


def test_too_few_draws_are_refused(generator):
    draws = make(narrow, 40, 5, 3, generator)
    with pytest.raises(ValueError, match="or a proposal wider than"):
        thinned(draws, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w[1:], r"log_weights: expected shape \(51, 30\)"),
        (lambda w: w.index_fill(0, torch.tensor(0), -torch.inf), "have weight 0"),
        (lambda w: w * torch.nan, "got NaN"),
    ],
)
def test_wrong_weights_are_named(change, message, generator):
    draws = make(wide, 30, 50, 2, generator)
    with pytest.raises(ValueError, match=message):
        Draws(
            draws.thetas,
            draws.xs,
            draws.samples,
            log_weights=change(draws.log_weights),
        )
