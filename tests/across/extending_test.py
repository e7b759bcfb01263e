"""A probe, a divergence, methods and a task of one's own, as CONTRIBUTING.md says."""

import numpy as np
import pytest
import torch
from configs import make_config

from sbi_colt import CoLT, CoLTConfig, Draws, TestResult, diagnose
from sbi_colt.benchmark.grid.cells import make_cells
from sbi_colt.benchmark.grid.runner import run_cells
from sbi_colt.benchmark.methods import METHODS
from sbi_colt.benchmark.tasks.settings import SETTINGS, Setting
from sbi_colt.probes import PROBES, Probe
from sbi_colt.probes.divergences import DIVERGENCES, uniform_grid


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class Shift:
    """θ | x ~ N(x, 1), and a posterior that is α too far to the right."""

    def __init__(self, alpha):
        self.alpha = alpha

    def draws(self, num_pairs, num_posterior_samples, generator):
        xs = torch.randn(num_pairs, 1, generator=generator)
        thetas = xs + torch.randn(num_pairs, 1, generator=generator)
        noise = torch.randn(num_posterior_samples, num_pairs, 1, generator=generator)
        return Draws(thetas, xs, xs + noise + self.alpha)


class RightmostProbe(Probe):
    """Near is what has the largest first parameter: it sees shifts to either side."""

    def __init__(self, name="rightmost"):
        super().__init__(name, coordinates="global")

    def scores(self, points, bags):
        return -points[..., 0]


class TowardsProbe(Probe):
    """Near is what lies where the training truths lie among their draws."""

    direction: torch.Tensor

    def __init__(self, name="towards"):
        super().__init__(name)
        self.register_buffer("direction", torch.zeros(1))

    def solve(self, bags, generator):
        truths, draws = bags.points[:, 0], bags.points[:, 1:]
        self.direction = (truths - draws.mean(dim=1)).mean(dim=0)

    def scores(self, points, bags):
        return -points @ self.direction


@pytest.fixture
def rightmost(monkeypatch):
    monkeypatch.setitem(PROBES, "rightmost", RightmostProbe)
    return "rightmost"


def test_a_probe_of_ones_own_sees_what_it_looks_for(rightmost, tmp_path):
    config = CoLTConfig(probes=(rightmost,))
    train, test = (Shift(0.8).draws(n, 50, seeded(n)) for n in (20, 100))
    colt = CoLT(config, seed=0).fit(train, show_progress_bar=False)
    result = colt.test(test)
    assert result.p_value < 1e-6
    assert [probe.name for probe in result.probes] == ["rightmost"]
    colt.save(tmp_path / "colt.npz")
    assert CoLT.load(tmp_path / "colt.npz").test(test).p_value == result.p_value


def test_a_probe_of_ones_own_may_learn(monkeypatch, tmp_path):
    monkeypatch.setitem(PROBES, "towards", TowardsProbe)
    config = CoLTConfig(probes=("towards",))
    train, test = (Shift(-0.8).draws(n, 50, seeded(n)) for n in (50, 100))
    colt = CoLT(config, seed=0).fit(train, show_progress_bar=False)
    assert not colt.probes[0].is_fixed
    assert colt.test(test).p_value < 1e-6
    colt.save(tmp_path / "colt.npz")
    again = CoLT.load(tmp_path / "colt.npz").test(test)
    assert again.p_value == colt.test(test).p_value


def test_it_holds_the_level(rightmost, within_binomial_band):
    config = CoLTConfig(probes=("mahalanobis", rightmost), num_redraws=99)
    generator, alarms = seeded(1), 0
    for seed in range(300):
        colt = CoLT(config, seed=seed)
        colt.fit(Shift(0).draws(10, 20, generator), show_progress_bar=False)
        alarms += colt.test(Shift(0).draws(20, 20, generator)).p_value <= 0.05
    assert within_binomial_band(alarms, 300, 0.05)


def test_an_unknown_name_is_refused_with_its_cure():
    with pytest.raises(ValueError, match="of your own needs an entry in sbi_colt"):
        CoLTConfig(probes=("leftmost",))


def test_a_divergence_of_ones_own_trains_probes(monkeypatch):
    calls = []

    def squared(ranks):
        calls.append(len(ranks))
        return (ranks.sort().values - uniform_grid(len(ranks), ranks)).square().mean()

    monkeypatch.setitem(DIVERGENCES, "squared", squared)
    config = make_config(probes=("ball",), divergence="squared", max_epochs=60)
    train, test = (Shift(1.5).draws(100, 50, seeded(i)) for i in (1, 2))
    colt = CoLT(config, seed=0).fit(train, show_progress_bar=False)
    assert calls
    assert colt.test(test).p_value < 0.01


def test_a_method_of_ones_own_joins_a_report():
    def sign(draws):
        right = (draws.thetas > draws.samples.median(dim=0).values).double()
        z = float((2 * right.mean() - 1) * len(draws) ** 0.5)
        return TestResult("sign", float(np.exp(-(z**2) / 2)), z)

    pairs = Shift(0.0).draws(100, 1, seeded())
    report = diagnose(
        lambda xs, num: xs + 1 + torch.randn(num, *xs.shape),
        thetas=pairs.thetas,
        xs=pairs.xs,
        num_posterior_samples=40,
        methods=("sbc", sign),
        seed=0,
        show_progress_bar=False,
    )
    assert report["sign"].p_value < 1e-3
    assert "sign" in str(report)


def test_a_task_and_a_method_of_ones_own_run_in_the_benchmark(monkeypatch, tmp_path):
    def always(train, setting, seed, draws_per_step):
        return lambda draws: TestResult("always", 0.0, 1.0)

    monkeypatch.setitem(METHODS, "always", always)
    task = Setting(
        lambda alpha, dims, seed: Shift(alpha),
        (0.0, 1.0),
        num_posterior_samples=20,
        dims=((1, 1),),
    )
    monkeypatch.setitem(SETTINGS, "shift", task)
    cells = make_cells(["shift"], methods=("sbc", "always"), num_batches=20)
    rows = run_cells(cells, tmp_path / "results.csv", show_progress_bar=False)
    power = {(row.cell.method, row.cell.alpha): row.power for row in rows}
    assert power["always", 0.0] == power["sbc", 1.0] == 1
    assert power["sbc", 0.0] <= 0.25
