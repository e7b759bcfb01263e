import pytest
import torch
from torch import nn

from sbi_colt.probes import Bags
from sbi_colt.probes.ball import BallProbe
from sbi_colt.probes.coordinates import Scales, make_frame
from sbi_colt.probes.networks import MLP

CUSTOM = {"geometry": "custom", "coordinates": "global"}


def bags(generator, num_bags=30, size=200, dim=3):
    mix = torch.eye(dim) + torch.randn(num_bags, dim, dim, generator=generator).tril(-1)
    members = torch.randn(num_bags, size, dim, generator=generator) @ mix
    return members + 5 * torch.randn(num_bags, 1, dim, generator=generator)


def scales_of(members, xs):
    return Scales.of(members[:, 0], xs, members[:, 1:].transpose(0, 1))


def points_of(members, coordinates):
    frame = make_frame(members, coordinates, scales_of(members, torch.zeros(30, 1)))
    return frame.to_points(members)


def probe_of(
    generator, dim=3, x_shape=(2,), embedding_net=None, embedding=None, **settings
):
    xs = torch.randn(50, *x_shape, generator=generator)
    members = bags(generator, 50, 20, dim)
    probe = BallProbe(**settings)
    probe.prepare(scales_of(members, xs), xs[:2], generator, embedding_net, embedding)
    return probe, members, xs


def test_bag_coordinates_are_white_and_centred(generator):
    members = bags(generator)
    points = points_of(members, "bag")
    covariance = torch.einsum("nki,nkj->nij", points, points) / 200
    torch.testing.assert_close(
        points.mean(dim=1), torch.zeros(30, 3), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(
        covariance, torch.eye(3).expand(30, 3, 3), atol=0.02, rtol=0
    )


def test_bag_distances_do_not_change_with_affine_maps_of_theta(generator):
    members = bags(generator, size=2000)
    mix = torch.tensor([[1.0, 2, 0], [0, 1, -1], [3, 0, 0.1]])
    shift = torch.tensor([5.0, -3, 0])

    def ranks(values):
        distances = points_of(values, "bag").norm(dim=-1)
        return distances.argsort(dim=1).argsort(dim=1).float() / 2000

    assert (ranks(members) - ranks(members @ mix + shift)).abs().mean() < 0.01


def test_bag_coordinates_treat_all_members_alike(generator):
    members = bags(generator, size=10)
    scales = scales_of(members, torch.zeros(30, 1))
    order = torch.randperm(10, generator=generator)

    def points(values):
        return make_frame(values, "bag", scales).to_points(values)

    torch.testing.assert_close(points(members)[:, order], points(members[:, order]))


@pytest.mark.parametrize("coordinates", ["raw", "global", "bag"])
def test_frames_map_points_back_to_theta(generator, coordinates):
    members = bags(generator)
    frame = make_frame(members, coordinates, scales_of(members, torch.zeros(30, 1)))
    seventh = frame.to_points(members)[:, 7]
    torch.testing.assert_close(
        frame.to_theta(seventh).float(), members[:, 7], atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("size", [2, 3, 50])
def test_bag_coordinates_stay_regular_for_few_draws_and_constant_columns(
    generator, size
):
    members = bags(generator, size=size, dim=10)
    members[..., 4] = 3.0
    assert points_of(members, "bag").isfinite().all()


@pytest.mark.parametrize("unit", [1e-200, 1e-20, 1e160])
def test_bag_coordinates_do_not_depend_on_units(generator, unit):
    members = bags(generator).double()
    torch.testing.assert_close(
        points_of(unit * members, "bag"), points_of(members, "bag")
    )


def test_large_offsets_leave_network_inputs_alone(generator):
    xs = torch.randn(30, 2, generator=generator, dtype=torch.float64)
    members = bags(generator)
    seen = scales_of(members, 1e9 + xs).network_xs(1e9 + xs)
    torch.testing.assert_close(
        seen, scales_of(members, xs).network_xs(xs), atol=1e-5, rtol=0
    )


def test_scales_leave_constant_columns_alone(generator):
    members = bags(generator)
    members[..., 1] = 1e6
    scales = scales_of(members, torch.full((30, 2), 0.1))
    assert scales.theta_scale[1] == 1
    assert torch.equal(scales.x_scale, torch.ones(2, dtype=torch.float64))


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
