"""Both algorithms on one set of pairs: every pair counts, and the level holds."""

import pytest
import torch
from configs import make_config

from sbi_colt import CoLT, CoLTConfig, run_colt
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.diagnose import diagnose_draws
from sbi_colt.run_colt import colt_on_draws
from sbi_colt.stats.combine import two_halves_p_value

SMALL = make_config(max_epochs=5, num_hidden=8, num_redraws=99)


def run(draws, config=SMALL, seed=0):
    return colt_on_draws(draws, config=config, seed=seed, show_progress_bar=False)


def test_two_halves_are_exact_for_uniform_p_values(generator, within_binomial_band):
    halves = torch.rand(20000, 2, generator=generator, dtype=torch.float64)
    pooled = [two_halves_p_value(*half) for half in halves.tolist()]
    for level in (0.001, 0.05, 0.5):
        rejected = sum(p <= level for p in pooled)
        assert within_binomial_band(rejected, len(pooled), level)


@pytest.mark.parametrize("test", [0.001, 0.2, 1.0])
def test_a_half_that_shows_nothing_costs_a_factor_of_two_at_most(test):
    assert test <= two_halves_p_value(test, 1.0) <= 2 * test
    assert two_halves_p_value(test, 0.5) > two_halves_p_value(test, 0.01)


@pytest.mark.slow
def test_the_level_holds_and_the_halves_are_independent(
    make_draws, generator, within_binomial_band
):
    """The untrained probes are exact on the very pairs that training saw."""
    results = [run(make_draws(40, 10, 2, generator), seed=i) for i in range(400)]
    for level in (0.05, 0.2):
        rejected = sum(result.p_value <= level for result in results)
        assert within_binomial_band(rejected, 400, level)
    halves = torch.tensor([[r.test_p_value, r.training_p_value] for r in results])
    correlation = float(torch.corrcoef(halves.T)[0, 1])
    assert abs(correlation) < 2.58 / 20  # 99% of correlations of 400 independent pairs
    assert float((halves[:, 1] - 0.5).mean()) == pytest.approx(0, abs=2.58 * 0.29 / 20)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(20, 5, 1), (60, 20, 3)], ids=str)
def test_the_level_holds_in_other_settings(
    make_draws, generator, within_binomial_band, size
):
    results = [run(make_draws(*size, generator), seed=i) for i in range(400)]
    for level in (0.05, 0.2):
        rejected = sum(result.p_value <= level for result in results)
        assert within_binomial_band(rejected, 400, level)


def test_untrained_probes_gain_from_the_training_pairs():
    task, generator = GaussianTask("t", 0.35), torch.Generator().manual_seed(0)
    probes = ("mahalanobis", "density", "fine-density", "blend")
    half = make_config(probes, train_fraction=0.5, num_redraws=99)
    results = [run(task.draws(80, 60, generator), half, seed=i) for i in range(40)]
    alone = sum(r.test_p_value <= 0.05 for r in results)
    assert sum(r.p_value <= 0.05 for r in results) >= alone + 4


def test_the_papers_variants_have_no_untrained_probe(make_draws, generator):
    draws = make_draws(40, 10, 2, generator)
    config = CoLTConfig.paper("id", epochs=2)
    result = run(draws, config)
    assert result.training_p_value is None
    assert result.p_value == result.test_p_value


def test_a_test_of_its_own_is_about_the_test_pairs(make_draws, generator):
    train, test = (make_draws(30, 10, 2, generator) for _ in range(2))
    colt = CoLT(SMALL, seed=0)
    result = colt.fit(train, show_progress_bar=False).test(test)
    assert result.p_value == result.test_p_value
    assert result.training_p_value is None
    again = CoLT(SMALL, seed=0).fit(train, show_progress_bar=False)
    assert again.training_p_value == colt.training_p_value
    only_trained = make_config(probes=("drift",))
    assert CoLT(only_trained).fit(train).training_p_value is None


def test_run_colt_and_diagnose_agree(make_draws, generator):
    draws = make_draws(60, 10, 2, generator, 2.0)
    report = diagnose_draws(
        draws, methods="colt", config=SMALL, seed=3, show_progress_bar=False
    )

    def posterior(xs, num):
        return draws.samples[:, [find(x) for x in xs]]

    def find(x):
        return int((draws.xs - x).abs().sum(dim=1).argmin())

    result = run_colt(
        draws.thetas, draws.xs, posterior, 10, 1, False, config=SMALL, seed=3
    )
    assert result.num_test == report["colt"].num_test
    for found in (result, report["colt"]):
        assert found.p_value == two_halves_p_value(
            found.test_p_value, found.training_p_value
        )


def test_a_saved_report_keeps_both_halves(make_draws, generator, tmp_path):
    report = diagnose_draws(
        make_draws(40, 10, 2, generator),
        methods="colt",
        config=SMALL,
        seed=0,
        show_progress_bar=False,
    )
    report.save(tmp_path / "report.npz")
    again = type(report).load(tmp_path / "report.npz")["colt"]
    assert again.training_p_value == report["colt"].training_p_value
    assert report.to_dict()["methods"]["colt"]["test_p_value"] == again.test_p_value
