"""Coordinates: whitening, units, and members that are treated alike."""

import pytest
import torch
from probe_helpers import correlated_bags, scales_of

from sbi_colt.probes.coordinates import make_frame


def points_of(members, coordinates):
    frame = make_frame(members, coordinates, scales_of(members, torch.zeros(30, 1)))
    return frame.to_points(members)


def test_bag_coordinates_are_white_and_centred(generator):
    members = correlated_bags(generator)
    points = points_of(members, "bag")
    covariance = torch.einsum("nki,nkj->nij", points, points) / 200
    torch.testing.assert_close(
        points.mean(dim=1), torch.zeros(30, 3), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(
        covariance, torch.eye(3).expand(30, 3, 3), atol=0.02, rtol=0
    )


def test_bag_distances_do_not_change_with_affine_maps_of_theta(generator):
    members = correlated_bags(generator, size=2000)
    mix = torch.tensor([[1.0, 2, 0], [0, 1, -1], [3, 0, 0.1]])
    shift = torch.tensor([5.0, -3, 0])

    def ranks(values):
        distances = points_of(values, "bag").norm(dim=-1)
        return distances.argsort(dim=1).argsort(dim=1).float() / 2000

    assert (ranks(members) - ranks(members @ mix + shift)).abs().mean() < 0.01


def test_bag_coordinates_treat_all_members_alike(generator):
    members = correlated_bags(generator, size=10)
    scales = scales_of(members, torch.zeros(30, 1))
    order = torch.randperm(10, generator=generator)

    def points(values):
        return make_frame(values, "bag", scales).to_points(values)

    torch.testing.assert_close(points(members)[:, order], points(members[:, order]))


@pytest.mark.parametrize("coordinates", ["raw", "global", "bag"])
def test_frames_map_points_back_to_theta(generator, coordinates):
    members = correlated_bags(generator)
    frame = make_frame(members, coordinates, scales_of(members, torch.zeros(30, 1)))
    seventh = frame.to_points(members)[:, 7]
    torch.testing.assert_close(
        frame.to_theta(seventh).float(), members[:, 7], atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("size", [2, 3, 50])
def test_bag_coordinates_stay_regular_for_few_draws_and_constant_columns(
    generator, size
):
    members = correlated_bags(generator, size=size, dim=10)
    members[..., 4] = 3.0
    assert points_of(members, "bag").isfinite().all()


@pytest.mark.parametrize("unit", [1e-200, 1e-20, 1e160])
def test_bag_coordinates_do_not_depend_on_units(generator, unit):
    members = correlated_bags(generator).double()
    torch.testing.assert_close(
        points_of(unit * members, "bag"), points_of(members, "bag")
    )


def test_large_offsets_leave_network_inputs_alone(generator):
    xs = torch.randn(30, 2, generator=generator, dtype=torch.float64)
    members = correlated_bags(generator)
    seen = scales_of(members, 1e9 + xs).network_xs(1e9 + xs)
    torch.testing.assert_close(
        seen, scales_of(members, xs).network_xs(xs), atol=1e-5, rtol=0
    )


def test_scales_leave_constant_columns_alone(generator):
    members = correlated_bags(generator)
    members[..., 1] = 1e6
    scales = scales_of(members, torch.full((30, 2), 0.1))
    assert scales.theta_scale[1] == 1
    assert torch.equal(scales.x_scale, torch.ones(2, dtype=torch.float64))
