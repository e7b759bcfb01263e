"""Posteriors on disk, and the truth about them."""

import json

import pytest
import torch

from sbi_colt.benchmark.tasks.published import PROBLEMS, trained
from sbi_colt.benchmark.tasks.published.trained import TRAINED, Trained, load_or_train

SMALL = Trained("gaussian-linear", "npe-maf", 60)


def test_the_study_has_the_stated_posteriors():
    kinds = [which.estimator for which in TRAINED]
    assert len(set(TRAINED)) == len(TRAINED) == 38
    assert [kinds.count(name) for name in trained.ESTIMATORS] == [14, 14, 6, 4]
    sizes = [which.num_simulations for which in TRAINED]
    assert sizes == sorted(sizes)  # those that are trained quickly come first
    assert {which.task for which in TRAINED} == set(PROBLEMS)


@pytest.mark.usefixtures("unchanged_random_state")
def test_a_posterior_is_trained_once_and_then_loaded(tmp_path, monkeypatch):
    posterior, seconds = load_or_train(SMALL, tmp_path)
    monkeypatch.setattr(trained, "train_quietly", None)  # calling it would fail
    again, same = load_or_train(SMALL, tmp_path)
    assert same == seconds > 0
    weights, loaded = (p.posterior_estimator.state_dict() for p in (posterior, again))
    assert weights.keys() == loaded.keys()
    assert all(torch.equal(weights[name], loaded[name]) for name in weights)
    assert [path.name for path in tmp_path.iterdir()] == [f"{SMALL.name}.pt"]


def test_an_interrupted_training_leaves_no_file(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(trained, "train_quietly", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_or_train(SMALL, tmp_path)
    assert not list(tmp_path.iterdir())


def exact_but(width):
    """The posterior of the Gaussian mixture, stretched around its x."""

    def posterior(xs, num):
        generator = torch.Generator().manual_seed(int(torch.randint(2**31, (1,))))
        exact = [PROBLEMS["gaussian-mixture"].reference(x, num, generator) for x in xs]
        return xs + width * (torch.stack(exact, dim=1) - xs)

    return posterior


@pytest.mark.slow
def test_the_truth_tells_an_exact_posterior_from_a_wide_one(tmp_path, monkeypatch):
    monkeypatch.setattr(trained, "_NUM_DRAWS", 400)
    monkeypatch.setattr(trained, "_NUM_OBSERVATIONS", 4)
    exact, wide = (
        trained.read_or_measure(
            Trained("gaussian-mixture", name, 1), exact_but(width), 2.5, tmp_path
        )
        for name, width in (("exact", 1.0), ("wide", 3.0))
    )
    assert exact.c2st == pytest.approx(0.5, abs=0.05)
    assert wide.c2st > 0.6
    assert exact.width_ratios == pytest.approx([1.0] * 2, abs=0.1)
    assert wide.width_ratios == pytest.approx([3.0] * 2, abs=0.3)
    assert len(wide.c2sts) == 4
    assert wide.train_seconds == 2.5


def test_the_truth_is_read_from_its_file(tmp_path):
    kept = trained.Truth(0.75, [0.75] * 10, [1.0, 2.0], 3.0, 4.0)
    path = tmp_path / f"{SMALL.name}.json"
    path.write_text(json.dumps(vars(kept)))
    assert trained.read_or_measure(SMALL, None, 3.0, tmp_path) == kept


def test_observations_and_references_are_the_same_at_each_call(tmp_path):
    first, second = (trained.observations("two-moons") for _ in range(2))
    assert torch.equal(first, second)
    assert first.shape == (10, 2)
    made = trained.reference_draws("two-moons", tmp_path)
    assert made.shape == (10, 2000, 2)
    assert torch.equal(made, trained.reference_draws("two-moons", tmp_path))
    assert torch.equal(made, trained.reference_draws("two-moons", tmp_path / "other"))
