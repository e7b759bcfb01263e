import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from sbi_colt import CoLTConfig
from sbi_colt.probes.ball import BallProbe


def test_paper_variants_are_to_the_letter():
    for variant, geometry in (("full", "mlp"), ("id", "identity")):
        config = CoLTConfig.paper(variant)
        (probe,) = config.make_probes(2)
        assert isinstance(probe, BallProbe)
        assert (probe.num_hidden, probe.num_layers) == (256, 3)
        assert (probe.centre, probe.geometry) == ("learned", geometry)
        assert probe.coordinates == "raw"
        assert (probe.how.learning_rate, probe.how.max_epochs) == (1e-5, 1000)
        assert probe.how.divergence == "sinkhorn"
        assert probe.how.batch_size is probe.how.draws_per_step is None
        assert probe.how.weight_decay == probe.how.validation_fraction == 0


def test_paper_settings_can_be_changed():
    config = CoLTConfig.paper("id", learning_rate=1e-3, epochs=25, draws_per_step=50)
    how = config.make_probes(2)[0].how
    assert (how.learning_rate, how.max_epochs, how.draws_per_step) == (1e-3, 25, 50)


def test_an_embedding_adds_its_probe():
    assert CoLTConfig(embedding=torch.nn.Identity()).probes[-1] == "custom"


def test_a_configuration_is_frozen():
    with pytest.raises(FrozenInstanceError):
        CoLTConfig().confidence = 0.9  # pyright: ignore


def test_dict_round_trip_through_json():
    config = CoLTConfig(
        probes=("ball", "density"),
        settings={"ball": {"patience": 7}, "density": {"bandwidth": 0.2}},
    )
    restored = CoLTConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert restored == config
    assert restored.make_probes(2)[0].how.patience == 7


def ball(**settings):
    return {"settings": {"ball": settings}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probes": ()}, "probes: expected a tuple"),
        ({"probes": "ball"}, "probes: expected a tuple"),
        ({"probes": ("bal",)}, "probes: unknown name 'bal'; known names are mahal"),
        ({"probes": ("ball", "ball")}, "probes: expected distinct"),
        ({"probes": ("custom",)}, "embedding: the probe 'custom' needs"),
        (ball(divergence="kl"), "divergence: expected one of sinkhorn"),
        (ball(max_epochs=0), "max_epochs: expected an integer >= 1, got 0"),
        (ball(max_epochs="many"), "max_epochs: expected an integer >= 1, got 'many'"),
        (ball(draws_per_step=0), "draws_per_step: expected"),
        ({"num_redraws": 5}, "num_redraws: expected an integer >= 19"),
        (ball(max_epochs=2.5), "max_epochs: expected an integer >= 1, got 2.5"),
        (ball(num_hidden=True), "num_hidden: expected an integer"),
        ({"probes": 5}, "probes: expected a tuple"),
        ({"probes": (1,)}, "probes: unknown name 1"),
        ({"settings": {"bal": {}}}, "settings: 'bal' is not among the probes"),
        (ball(learning_rate=-1), "learning_rate: expected a number > 0"),
        (ball(validation_fraction=1), "validation_fraction: expected"),
        ({"train_fraction": 1.0}, "train_fraction: expected"),
        ({"confidence": 95}, "confidence: expected a number in"),
    ],
)
def test_bad_settings_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        CoLTConfig(**change)


def test_an_embedding_net_is_a_module():
    with pytest.raises(TypeError, match="embedding_net: expected an nn.Module"):
        CoLTConfig(embedding_net=lambda x: x)


def test_a_setting_that_a_probe_does_not_have_is_named():
    with pytest.raises(TypeError, match="settings: the probe 'drift' does not take"):
        CoLTConfig(settings={"drift": {"max_epochs": 3}})


def test_numpy_numbers_become_plain_ones():
    json.dumps(
        CoLTConfig(num_redraws=np.int64(99), **ball(max_epochs=np.int64(3))).to_dict()
    )


def test_unknown_variant_is_named():
    with pytest.raises(ValueError, match='variant: expected "full" or "id"'):
        CoLTConfig.paper("half")
