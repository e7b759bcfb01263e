"""The study of published problems: what it runs, keeps and resumes."""

import math
from types import SimpleNamespace

import pytest
import torch

from sbi_colt.benchmark.published_table import PublishedRow, Run
from sbi_colt.benchmark.row_files import read_rows
from sbi_colt.benchmark.studies import published
from sbi_colt.benchmark.tasks.published.trained import Trained, Truth
from sbi_colt.cli import main

TRUTH = Truth(0.9, [0.9] * 10, [0.5, 1.5], 12.0, 3.0)


class FakeReport(dict):
    """The numbers of a report, with other numbers for each call."""

    def __init__(self, methods, offset):
        side = SimpleNamespace(p_value=0.01, distance=0.3 + offset, distance_lower=0.2)
        super().__init__(dict.fromkeys(methods, side))
        self.p_value, self.distance, self.distance_lower = 0.02, 0.3 + offset, 0.2
        steps = ("simulation", "sampling", *methods)
        self.cost = SimpleNamespace(seconds=dict.fromkeys(steps, 1.0))


@pytest.fixture
def calls(monkeypatch):
    """Replace training, truth, L-C2ST and `diagnose`; return the calls of the last."""
    made = []

    def diagnose(posterior, prior, simulator, **settings):
        made.append(settings)
        default = ("colt", "predictive", "sbc", "tarp", "c2st")
        return FakeReport(settings.get("methods", default), len(made) / 100)

    monkeypatch.setattr(published, "diagnose", diagnose)
    monkeypatch.setattr(published, "load_or_train", lambda *_: (None, 12.0))
    monkeypatch.setattr(published, "read_or_measure", lambda *_: TRUTH)
    monkeypatch.setattr(published, "_lc2st", lambda *_: (0.4, 7.0))
    return made


def run(tmp_path, *arguments):
    folders = ["--out", str(tmp_path / "rows.csv"), "--models", str(tmp_path)]
    return main(["benchmark", "published", "--quiet", *folders, *arguments])


def test_rows_are_measured_once(tmp_path, calls, capsys):
    assert run(tmp_path, "--task", "sir", "--simulations", "1000") == 0
    assert len(calls) == 2  # MAF and NSF
    before = (tmp_path / "rows.csv").read_text()
    assert run(tmp_path, "--task", "sir", "--simulations", "1000") == 0
    assert len(calls) == 2
    assert (tmp_path / "rows.csv").read_text() == before
    assert "sir npe-nsf 1k" in capsys.readouterr().out
    assert run(tmp_path, "--task", "sir") == 0
    assert len(calls) == 4
    rows = read_rows(tmp_path / "rows.csv", PublishedRow)
    assert len({row.run for row in rows}) == 4
    assert rows[0].narrowest == 0.5
    assert rows[0].widest == 1.5
    assert rows[0].lc2st_share == 0.4


def test_seeds_and_budgets_are_rows_of_their_own(tmp_path, calls):
    some = ("--task", "two-moons", "--simulations", "1000", "--estimator")
    assert run(tmp_path, *some, "npe-maf", "--seeds", "2") == 0
    assert calls[0]["seed"] != calls[1]["seed"]
    assert "num_simulations" not in calls[0]  # the default of `diagnose`
    assert run(tmp_path, *some, "npe-maf", "nle-maf", "--budget", "large") == 0
    assert len(calls) == 3  # without NLE
    assert calls[2]["num_simulations"] == 5000
    assert 6 * calls[2]["num_replicated_pairs"] == 4998  # the default number of each
    rows = read_rows(tmp_path / "rows.csv", PublishedRow)
    assert [(row.run.budget, row.run.seed) for row in rows] == [
        ("default", 0),
        ("default", 1),
        ("large", 0),
    ]
    assert math.isnan(rows[2].lc2st_share)


def test_slow_samplers_get_each_side_by_itself(tmp_path, calls):
    some = ("--task", "slcp", "--simulations", "1000", "--estimator", "nle-maf")
    assert run(tmp_path, *some) == 0
    parameters, data = calls
    assert parameters["methods"] == ("colt", "sbc", "tarp")
    assert parameters["num_simulations"] == 50
    assert parameters["num_posterior_samples"] == 100
    assert data["methods"] == ("predictive",)
    (row,) = read_rows(tmp_path / "rows.csv", PublishedRow)
    assert row.colt_distance == pytest.approx(0.31)
    assert row.predictive_distance == row.distance == pytest.approx(0.32)
    assert row.parameter_seconds == row.data_seconds == 3
    assert math.isnan(row.lc2st_share)


def test_training_only_and_tables_only(tmp_path, calls, capsys):
    assert run(tmp_path, "--task", "sir", "--train-only") == 0
    assert "sir npe-maf 10k" in (out := capsys.readouterr().out)
    assert "0.50-1.50" in out
    assert run(tmp_path, "--task", "sir", "--table-only") == 0
    assert capsys.readouterr().out == "No rows.\n"
    assert not calls
    assert not (tmp_path / "rows.csv").exists()


def test_lc2st_rejects_a_wrong_posterior_and_not_an_exact_one(monkeypatch):
    """The exact posterior of the Gaussian mixture, and the same moved by two units."""
    monkeypatch.setattr(published, "_NUM_LC2ST_PAIRS", 300)
    monkeypatch.setattr(published, "_NUM_LC2ST_DRAWS", 100)
    monkeypatch.setattr(published, "_NUM_LC2ST_TRIALS", 20)
    which = Trained("gaussian-mixture", "npe-maf", 1000)

    def moved_by(shift):
        def posterior(xs, num):
            generator = torch.Generator().manual_seed(5)
            exact = [which.problem.reference(x, num, generator) for x in xs]
            return shift + torch.stack(exact, dim=1)

        return posterior

    exact, wrong = (published._lc2st(which, moved_by(s), 0)[0] for s in (0.0, 2.0))
    assert exact <= 0.3
    assert wrong >= 0.8


def test_a_row_has_the_numbers_of_real_reports(monkeypatch):
    """Gaussian linear: the prior as a posterior is calibrated, and discards x."""
    small = {"num_simulations": 150, "num_posterior_samples": 20}
    small |= {"num_replicated_pairs": 60, "methods": ("colt", "predictive", "sbc")}
    small["methods"] += ("tarp",)
    monkeypatch.setitem(published._BUDGETS, "default", small)
    monkeypatch.setattr(published, "_lc2st", lambda *_: (0.4, 7.0))
    which = Trained("gaussian-linear", "npe-maf", 1000)

    def blind(xs, num):
        return which.problem.prior().sample((num, len(xs)))

    row = published.measure(Run(which, "default", 0), blind, TRUTH)
    assert row.predictive_p < 0.01
    assert row.p_value < 0.02
    assert row.distance_lower > 0
    assert row.sbc_p > 0.01  # the truth is a draw of the prior too
    seconds = (row.parameter_seconds, row.data_seconds, row.sbc_seconds)
    assert min(seconds) > 0
    assert row.lc2st_seconds == 7
