import pytest
import torch
from configs import make_config

from sbi_colt import CoLT, CoLTConfig
from sbi_colt.probes.training import TrainingInterrupted, _batches, _subset

QUICK = make_config(probes=("centre",), max_epochs=15, draws_per_step=20)


def fit(draws, config=QUICK, seed=0):
    return CoLT(config, seed=seed).fit(draws, show_progress_bar=False)


@pytest.mark.parametrize("divergence", ["sinkhorn", "cramer_von_mises"])
def test_training_finds_a_shift(make_draws, generator, divergence):
    config = make_config(
        probes=("centre",), divergence=divergence, learning_rate=3e-3, max_epochs=60
    )
    draws = make_draws(150, 50, 2, generator, shift=0.7)
    history = fit(draws, config).history["centre"]
    assert history.validation[history.best_epoch] > 1.5 * history.validation[0]


def test_the_best_validated_state_is_kept(make_draws, generator):
    draws = make_draws(80, 30, 2, generator, shift=0.5)
    history = fit(draws).history["centre"]
    assert history.validation[history.best_epoch] == max(history.validation)


def test_patience_stops_training_where_nothing_is_to_be_found(make_draws, generator):
    config = make_config(probes=("centre",), max_epochs=500, patience=5)
    history = fit(make_draws(60, 30, 2, generator), config).history["centre"]
    assert history.stopped == "early"
    assert len(history.training) == history.best_epoch + 5


def test_paper_variants_train_for_their_epochs(make_draws, generator):
    config = CoLTConfig.paper("full", epochs=3)
    history = fit(make_draws(20, 10, 2, generator), config).history["paper-full"]
    assert history.stopped == "finished"
    assert (len(history.training), history.best_epoch, history.validation) == (3, 3, ())


def test_few_pairs_train_without_a_held_out_part(make_draws, generator):
    history = fit(make_draws(6, 1, 1, generator)).history["centre"]
    assert history.validation == ()


def test_interruption_keeps_the_best_state_and_says_so(
    make_draws, generator, monkeypatch
):
    draws = make_draws(80, 30, 2, generator, shift=0.5)
    calls = {"count": 0}
    original = torch.optim.AdamW.step

    def interrupt(self, *args, **kwargs):
        calls["count"] += 1
        if calls["count"] == 6:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", interrupt)
    config = make_config(probes=("mahalanobis", "centre", "ball"), max_epochs=50)
    with pytest.warns(TrainingInterrupted, match="'centre' was interrupted after 5"):
        colt = fit(draws, config)
    assert colt.history["centre"].stopped == "interrupted"
    assert colt.history["ball"].stopped == "untrained"
    history = colt.history["centre"]
    assert (len(history.training), len(history.validation)) == (5, 6)
    assert colt.test(make_draws(50, 30, 2, generator, shift=3.0)).p_value < 0.01


def test_divergence_to_nan_falls_back_on_the_best_state(make_draws, generator):
    config = make_config(probes=("centre",), learning_rate=1e30, max_epochs=20)
    colt = fit(make_draws(60, 30, 2, generator, shift=0.5), config)
    history = colt.history["centre"]
    assert (history.stopped, history.best_epoch) == ("diverged", 0)
    # The state that is kept is the initial one, the Mahalanobis distance.
    ranks = colt.test(make_draws(50, 30, 2, generator)).ranks
    assert ranks.isfinite().all()
    assert len(ranks.unique()) == 50


def test_batches_partition_the_pairs(generator):
    pairs = torch.arange(10, 33)
    batches = _batches(pairs, 8, generator)
    assert [len(b) for b in batches] == [8, 8, 7]
    assert torch.equal(torch.cat(batches).sort().values, pairs)


def test_a_step_sees_the_truth_and_a_fresh_subset_of_draws(generator):
    first, second = (_subset(101, 20, generator) for _ in range(2))
    assert first[0] == second[0] == 0
    assert len(set(first.tolist())) == 21
    assert first.tolist() != second.tolist()
    assert len(_subset(5, 20, generator)) == 5


def test_an_untrainable_probe_is_left_alone(make_draws, generator):
    colt = fit(make_draws(20, 5, 2, generator), CoLTConfig(probes=("mahalanobis",)))
    assert colt.history["mahalanobis"].stopped == "untrained"
