"""The logit, and probes in coordinates that are centred but keep their scale."""

import pytest
import torch
from probe_helpers import scales_of

from sbi_colt import CoLT, CoLTConfig, Draws
from sbi_colt.probes import Bags, make_probe
from sbi_colt.probes.coordinates import make_frame


def centred_bags(generator, change, num_bags=30, size=10, dim=4):
    """Bags of Gaussians, with the first member, the truth, changed."""
    members = torch.randn(num_bags, size, dim, generator=generator)
    members[:, 0] = change(members[:, 0])
    points = members - members.mean(dim=1, keepdim=True)
    return Bags(points, torch.randn(num_bags, 2, generator=generator))


def distance(probe, bags):
    """The mean place of the truths among ten members, from -1 to 1; 0 if uniform."""
    places = probe(bags).argsort(dim=1).argsort(dim=1)[:, 0].double()
    return float((places.mean() - 4.5) / 4.5)


@pytest.mark.parametrize(
    "change",
    [
        lambda truth: truth + torch.tensor([1.0, 0, 0, 0]),
        lambda truth: truth * torch.tensor([1.0, 3.0, 1.0, 1.0]),
        lambda truth: truth * torch.tensor([1.0, 0.1, 1.0, 1.0]),
        lambda truth: truth * 1.7,
        lambda truth: truth * 0.4,
    ],
    ids=["shift", "wide in one", "narrow in one", "wide", "narrow"],
)
def test_thirty_pairs_teach_the_logit_what_stands_out(change, generator):
    probe = make_probe("logit", {})
    probe.solve(centred_bags(generator, change), generator)
    fresh = centred_bags(generator, change, num_bags=400)
    assert distance(probe, fresh) < -0.25  # truths have the least scores
    exact = centred_bags(generator, lambda truth: truth, num_bags=400)
    assert abs(distance(probe, exact)) < 0.12


def test_the_units_of_all_points_together_do_not_matter(generator):
    bags = centred_bags(generator, lambda truth: truth + 1)
    far = Bags(1e20 * bags.points.double(), bags.xs)
    first, second = make_probe("logit", {}), make_probe("logit", {})
    first.solve(bags, generator)
    second.solve(far, generator)
    torch.testing.assert_close(first(bags), second(far))


def test_points_without_any_spread_have_equal_scores(generator):
    bags = Bags(torch.zeros(5, 4, 3), torch.zeros(5, 2))
    probe = make_probe("logit", {})
    probe.solve(bags, generator)
    assert torch.equal(probe(bags), torch.zeros(5, 4).double())


def test_centred_coordinates_are_about_the_mean_of_the_whole_bag(generator):
    members = 100 + 5 * torch.randn(7, 10, 3, generator=generator).double()
    frame = make_frame(members, "centred", scales_of(members, torch.zeros(7, 2)))
    points = frame.to_points(members)
    torch.testing.assert_close(points.mean(dim=1), torch.zeros(7, 3), atol=1e-4, rtol=0)
    gaps = (members[:, 1] - members[:, 0]).float()
    torch.testing.assert_close(points[:, 1] - points[:, 0], gaps, atol=1e-4, rtol=0)
    torch.testing.assert_close(
        frame.to_theta(points[:, 4]).float(), members[:, 4].float()
    )


def test_a_centred_energy_keeps_the_weights_of_coordinates(generator):
    """The first coordinate counts, the second is nearly nothing, in these units."""
    thetas = torch.randn(200, 2, generator=generator)
    samples = torch.randn(9, 200, 2, generator=generator)
    thetas[:, 0] *= 3
    weights = torch.tensor([1.0, 0.01])
    draws = Draws(thetas * weights, torch.zeros(200, 1), samples * weights)
    found = {}
    for name in ("energy", "data-energy"):
        colt = CoLT(CoLTConfig(probes=(name,)), seed=0)
        train, test = draws.split(0.5, seed=0)
        result = colt.fit(train, show_progress_bar=False).test(test)
        found[name] = result.distance
    assert found["data-energy"] > found["energy"] + 0.05


@pytest.mark.parametrize("name", ["data-energy", "logit", "data-drift", "data-ball"])
def test_a_saved_test_of_data_comes_back(name, tmp_path, generator):
    def pairs():
        xs = torch.randn(40, 2, generator=generator)
        samples = torch.randn(9, 40, 3, generator=generator)
        return Draws(torch.randn(40, 3, generator=generator), xs, samples)

    settings = {name: {"max_epochs": 2}} if name == "data-ball" else {}
    config = CoLTConfig(probes=(name,), settings=settings)
    colt = CoLT(config, seed=1).fit(pairs(), show_progress_bar=False)
    colt.save(tmp_path / "colt")
    test = pairs()
    again = CoLT.load(tmp_path / "colt").test(test)
    assert torch.equal(again.ranks, colt.test(test).ranks)
