import pytest
import torch
from probe_helpers import correlated_bags, scales_of
from torch import nn

from sbi_colt.probes import Bags
from sbi_colt.probes.ball import BallProbe
from sbi_colt.probes.coordinates import make_frame
from sbi_colt.probes.networks import MLP

CUSTOM = {"geometry": "custom", "coordinates": "global"}


def probe_of(
    generator, dim=3, x_shape=(2,), embedding_net=None, embedding=None, **settings
):
    xs = torch.randn(50, *x_shape, generator=generator)
    members = correlated_bags(generator, 50, 20, dim)
    probe = BallProbe(**settings)
    probe.prepare(scales_of(members, xs), xs[:2], generator, embedding_net, embedding)
    return probe, members, xs


def test_networks_start_like_torchs_own(generator):
    network = MLP(30, 4, 256, 3, generator)
    weights = network.layers[2].weight
    torch.testing.assert_close(
        weights.std().item(), (3 * 256) ** -0.5, atol=1e-3, rtol=0
    )
    assert weights.abs().max() <= 256**-0.5


def test_residual_probe_starts_as_the_mahalanobis_distance(generator):
    probe, members, xs = probe_of(generator)
    scales = scales_of(members, xs)
    coordinates = make_frame(members, "bag", scales).to_points(members)
    scores = probe(Bags(coordinates, xs))
    torch.testing.assert_close(scores, coordinates.norm(dim=-1))


def test_chunks_do_not_change_distances(generator, monkeypatch):
    probe, members, xs = probe_of(generator, geometry="mlp", coordinates="raw")
    whole = probe(Bags(members, xs))
    monkeypatch.setattr("sbi_colt.probes.ball._CHUNK", 60)
    torch.testing.assert_close(probe(Bags(members, xs)), whole)


def test_a_users_embedding_sees_theta_itself(generator):
    seen = []

    def first_parameter(thetas):
        seen.append(thetas)
        return thetas[:, :1]

    probe, members, xs = probe_of(generator, embedding=first_parameter, **CUSTOM)
    # The probe's own scales come from the same pairs.
    frame = make_frame(members, "global", scales_of(members, xs))
    probe(Bags(frame.to_points(members), xs))
    torch.testing.assert_close(seen[-2], members.flatten(0, 1), atol=1e-4, rtol=1e-4)


def test_a_users_module_is_copied_and_trainable(generator):
    module = nn.Linear(3, 2)
    probe, *_ = probe_of(generator, embedding=module, centre="origin", **CUSTOM)
    assert probe.is_trainable
    assert all(p is not q for p in probe.parameters() for q in module.parameters())


@pytest.mark.parametrize("embedding", [lambda t: t.sum(), lambda t: None, 3])
def test_a_bad_embedding_is_named(generator, embedding):
    with pytest.raises((TypeError, ValueError), match="embedding: expected"):
        probe_of(generator, embedding=embedding, **CUSTOM)


def test_an_embedding_net_that_drops_rows_is_named(generator):
    net = nn.Flatten(0)
    with pytest.raises(ValueError, match="embedding_net: expected"):
        probe_of(generator, x_shape=(2, 4), embedding_net=net)


def test_frozen_parameters_of_an_embedding_net_stay_frozen(generator):
    net = nn.Linear(2, 5).requires_grad_(False)
    probe, *_ = probe_of(generator, geometry="identity", embedding_net=net)
    frozen = [p for p in probe.parameters() if not p.requires_grad]
    assert len(frozen) == 2


def test_fixed_probes_have_nothing_to_train(generator):
    for centre in ("origin", "random"):
        probe, members, xs = probe_of(generator, centre=centre, geometry="identity")
        assert not probe.is_trainable
        assert probe(Bags(members, xs)).shape == (50, 20)


def test_wrong_settings_are_named():
    with pytest.raises(ValueError, match="centre: expected one of learned"):
        BallProbe(centre="middle")
    with pytest.raises(ValueError, match='coordinates: expected "global" with a cust'):
        BallProbe(geometry="custom", coordinates="bag")
