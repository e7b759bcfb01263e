import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from sbi_colt import CoLTConfig
from sbi_colt.probes.ball import ProbeSpec


def test_paper_variants_are_to_the_letter():
    full, identity = CoLTConfig.paper("full"), CoLTConfig.paper("id")
    for config in (full, identity):
        assert (config.num_hidden, config.num_layers) == (256, 3)
        assert (config.learning_rate, config.max_epochs) == (1e-5, 1000)
        assert config.divergence == "sinkhorn"
        assert config.batch_size is config.draws_per_step is None
        assert config.weight_decay == config.validation_fraction == 0
    assert full.specs == (ProbeSpec("paper-full", "learned", "mlp", "raw"),)
    assert identity.specs == (ProbeSpec("paper-id", "learned", "identity", "raw"),)


def test_paper_settings_can_be_changed():
    config = CoLTConfig.paper("id", learning_rate=1e-3, epochs=25, draws_per_step=50)
    assert (config.learning_rate, config.max_epochs, config.draws_per_step) == (
        1e-3,
        25,
        50,
    )


def test_an_embedding_adds_its_probe():
    names = [spec.name for spec in CoLTConfig(embedding=torch.nn.Identity()).specs]
    assert names[-1] == "custom"


def test_a_configuration_is_frozen():
    with pytest.raises(FrozenInstanceError):
        CoLTConfig().patience = 3  # type: ignore


def test_dict_round_trip_through_json():
    config = CoLTConfig(probes=("ball", ProbeSpec("mine", "origin")), patience=7)
    plain = json.loads(json.dumps(config.to_dict()))
    restored = CoLTConfig.from_dict(plain)
    assert restored.to_dict() == config.to_dict()
    assert restored.specs == config.specs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probes": ()}, "probes: expected a tuple"),
        ({"probes": "ball"}, "probes: expected a tuple"),
        ({"probes": ("bal",)}, "probes: unknown name 'bal'; known are mahalanobis"),
        ({"probes": ("ball", "ball")}, "probes: expected distinct"),
        ({"probes": ("custom",)}, "embedding: the probe 'custom' needs"),
        ({"divergence": "kl"}, "divergence: expected one of sinkhorn"),
        ({"max_epochs": 0}, "max_epochs: expected an integer >= 1, got 0"),
        ({"max_epochs": "many"}, "max_epochs: expected an integer >= 1, got 'many'"),
        ({"draws_per_step": 0}, "draws_per_step: expected"),
        ({"num_redraws": 5}, "num_redraws: expected an integer >= 19"),
        ({"max_epochs": 2.5}, "max_epochs: expected an integer >= 1, got 2.5"),
        ({"num_hidden": True}, "num_hidden: expected an integer"),
        ({"probes": 5}, "probes: expected a tuple"),
        ({"probes": (1,)}, "probes: expected names or ProbeSpec"),
        ({"learning_rate": -1}, "learning_rate: expected a number > 0"),
        ({"validation_fraction": 1}, "validation_fraction: expected"),
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


def test_numpy_integers_become_plain_ones():
    json.dumps(CoLTConfig(max_epochs=np.int64(3)).to_dict())


def test_unknown_variant_is_named():
    with pytest.raises(ValueError, match='variant: expected "full" or "id"'):
        CoLTConfig.paper("half")
