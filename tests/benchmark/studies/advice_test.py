"""The study of advice: which remedy an advice means, and what is run and kept."""

from dataclasses import replace

import pytest
import torch

from sbi_colt.benchmark.row_files import read_rows
from sbi_colt.benchmark.studies import advice
from sbi_colt.benchmark.studies.advice import (
    REMEDIES,
    AdviceKey,
    AdviceRow,
    advice_lines,
    followed,
    remedies_in,
)
from sbi_colt.benchmark.tasks.defects import DEFECTS, PROBLEMS, Training, train
from sbi_colt.cli import main
from sbi_colt.report.finding_text import advise
from sbi_colt.results.finding import FAMILIES, Finding


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sign", [-1, 1])
def test_every_advice_has_a_remedy_for_every_defect(family, sign):
    text = advise([Finding(family, 0.01, (0,), sign=sign, size=0.4)])
    for defect in DEFECTS:
        assert followed(defect, text) != "nothing"


def test_remedies_are_read_in_the_order_of_the_text():
    text = "check that x reaches the network; then train on more simulations."
    assert remedies_in(text) == ["x as it is", "10 times the simulations"]
    assert followed("x shuffled", text) == "x as it is"
    assert followed("200 simulations", text) == "10 times the simulations"
    warned = "use a spline flow. More simulations for the same network do not help."
    assert remedies_in(warned) == ["spline flow"]


def test_each_defect_can_be_undone():
    """Some remedy brings the training back to the defaults in what was wrong."""
    for name, defect in DEFECTS.items():
        sound = Training(defect.problem)
        wrong = [f for f in vars(sound) if getattr(defect, f) != getattr(sound, f)]
        assert wrong, name
        changed = [remedy.change(defect) for remedy in REMEDIES.values()]
        assert any(getattr(c, f) != getattr(defect, f) for c in changed for f in wrong)


def stand_in_for(training, seed):
    """A stand-in for training: right in the mean, too narrow unless undone."""
    del seed

    def posterior(xs, num):
        noise = torch.randn(num, len(xs), 2)
        return (xs[:, :2] + 0.3 * training.noise * noise).clamp(-2, 2)

    return posterior


def test_rows_are_measured_once_and_printed(tmp_path, capsys, monkeypatch):
    trained = []

    def stand_in(training, seed):
        trained.append(training)
        return stand_in_for(training, seed)

    monkeypatch.setattr(advice, "train", stand_in)
    monkeypatch.delitem(REMEDIES, "spline flow")
    path = tmp_path / "advice.csv"
    options = ["--pairs", "60", "--draws", "20", "--jobs", "1", "--quiet"]
    command = ["benchmark", "advice", *options, "--out", str(path)]
    command += ["--defects", "half the noise in training"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    rows = read_rows(path, AdviceRow)
    assert "\n".join(advice_lines(rows)) in printed
    assert [row.key.remedy for row in rows][:2] == ["nothing", "same simulations"]
    assert all(row.distance_lower <= 1 for row in rows)
    assert rows[0].advised
    assert not rows[1].advised
    count = len(trained)
    assert main(command) == 0
    assert len(trained) == count  # nothing is left to do
    assert capsys.readouterr().out == printed


def test_the_best_alternative_is_not_the_advice():
    def row(remedy, distance, advised=""):
        key = AdviceKey("x shuffled", remedy, 500, 200, 0)
        return AdviceRow(key, "it ignores x.", advised, distance, distance / 2)

    lines = list(
        advice_lines(
            [
                row("nothing", 0.6, "check that x reaches the network."),
                row("x as it is", 0.05),
                row("spline flow", 0.55),
                row("10 times the simulations", 0.5),
            ]
        )
    )
    distances = " ".join(lines[1].split()[2:])
    assert distances == "0.60 (0.30) 0.05 (0.03) 0.50 (0.25)"
    assert lines[2].strip() == "named: it ignores x"
    assert lines[3].strip() == "advised: x as it is"
    done = "done: x as it is; alternative: 10 times the simulations"
    assert lines[4].strip() == done


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_defect_trains(defect):
    training = replace(DEFECTS[defect], num_simulations=60, max_epochs=1)
    posterior = train(training, 0)
    problem = PROBLEMS[training.problem]
    torch.manual_seed(0)
    x = problem.simulate(problem.prior().sample((1,)), 1.0)
    draws = posterior.sample((5,), x=x, show_progress_bars=False)
    assert draws.shape == (5, 2)
    assert bool(torch.isfinite(draws).all())


def test_a_dropped_number_of_x_does_not_matter():
    """The density is the same for two xs that differ in this number alone."""
    training = replace(
        DEFECTS["a number of x dropped"], num_simulations=60, max_epochs=1
    )
    posterior = train(training, 0)
    theta, xs = torch.zeros(1, 2), torch.tensor([[[0.5, 0.0, 0.2]], [[0.5, 1.0, 0.2]]])
    first, second = (posterior.log_prob(theta, x=x, norm_posterior=False) for x in xs)
    assert torch.equal(first, second)


def test_a_cut_prior_is_the_middle_of_the_box():
    problem = PROBLEMS["bent"]
    torch.manual_seed(0)
    assert float(problem.prior(0.5).sample((500,)).abs().max()) <= 1
    assert float(problem.prior().sample((500,)).abs().max()) > 1.5
