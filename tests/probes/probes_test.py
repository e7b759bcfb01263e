"""Probes that are solved for: closed forms, symmetry, and what each one sees."""

import pytest
import torch
from configs import make_config

from sbi_colt import CoLT, CoLTConfig, Draws
from sbi_colt.benchmark.tasks.curved import CurvedTask
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.benchmark.tasks.lobes import LobesTask
from sbi_colt.benchmark.tasks.tree import TreeTask
from sbi_colt.probes import Bags, make_probe
from sbi_colt.probes.axes import AxesProbe
from sbi_colt.probes.coordinate import CoordinateProbe
from sbi_colt.probes.coordinates import Scales
from sbi_colt.probes.quadratic import QuadraticProbe


def bags(generator, num_pairs=30, size=41, dim=2):
    members = torch.randn(num_pairs, size, dim, generator=generator)
    return members, torch.randn(num_pairs, 3, generator=generator)


def solved(name, generator, members, xs):
    """Return a function of members and xs: the probe, solved for these bags."""
    probe = make_probe(name, {})
    scales = Scales.of(members[:, 0], xs, members[:, 1:].transpose(0, 1))
    probe.prepare(scales, xs[:2], generator, None, None)
    probe.solve(Bags(members, xs), generator)
    return probe


def scores_of(probe, members, xs):
    return probe(Bags(members, xs))


NAMES = [
    "energy",
    "density",
    "fine-density",
    "relief",
    "blend",
    "drift",
    "quadratic",
    "axes",
]


@pytest.mark.parametrize("name", NAMES)
def test_members_are_treated_alike(name, generator):
    """A bag in another order has the same numbers in that order."""
    members, xs = bags(generator)
    probe = solved(name, generator, members, xs)
    order = torch.randperm(members.shape[1], generator=generator)
    torch.testing.assert_close(
        scores_of(probe, members[:, order], xs),
        scores_of(probe, members, xs)[:, order],
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_state_is_loaded_into_a_fresh_probe(name, generator):
    members, xs = bags(generator)
    probe = solved(name, generator, members, xs)
    other, other_xs = bags(generator, num_pairs=7)
    fresh = solved(name, generator, other, other_xs)
    scores_of(fresh, other, other_xs)  # the relief plants a tree of its own draws
    fresh.load_state_dict(probe.state_dict())
    torch.testing.assert_close(
        scores_of(fresh, other, other_xs), scores_of(probe, other, other_xs)
    )


def test_the_energy_is_the_mean_distance_of_the_others(generator):
    members, xs = bags(generator, num_pairs=4)
    gaps = torch.cdist(members, members)
    expected = gaps.sum(dim=2) / (members.shape[1] - 1)
    found = scores_of(solved("energy", generator, members, xs), members, xs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_density_is_that_of_the_other_members(generator):
    members, xs = bags(generator, num_pairs=3, size=11)
    squares = torch.cdist(members.double(), members.double()).square()
    width = 2 * 0.1 * squares.mean(dim=(1, 2), keepdim=True)
    kernel = (-squares / width).exp() - torch.eye(11)
    expected = -(kernel.sum(dim=2) / 10).log()
    found = scores_of(solved("density", generator, members, xs), members, xs)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)


def test_a_density_is_computed_once_for_the_same_bags(generator):
    members, xs = bags(generator, num_pairs=3)
    same = Bags(members, xs)
    first = make_probe("density", {})(same)
    assert make_probe("density", {})(same) is first
    assert not torch.equal(make_probe("fine-density", {})(same), first)
    torch.testing.assert_close(make_probe("density", {})(Bags(members, xs)), first)


def test_only_some_members_are_kernel_centres(generator, monkeypatch):
    """The cost is linear in their number, and ranks change little."""
    members, xs = bags(generator, num_pairs=5, size=201)
    probe = solved("density", generator, members, xs)
    everything = scores_of(probe, members, xs)
    monkeypatch.setattr("sbi_colt.probes.density._NUM_CENTRES", 100)
    some = scores_of(probe, members, xs)
    for a, b in zip(everything, some, strict=True):
        assert torch.corrcoef(torch.stack([a, b]))[0, 1] > 0.9


def test_bags_of_equal_members_have_a_density(generator):
    members = torch.zeros(3, 5, 2)
    for name in ("energy", "density"):
        probe = solved(name, generator, members, members)
        assert scores_of(probe, members, members).isfinite().all()


@pytest.mark.parametrize("name", ["energy", "density", "fine-density"])
def test_a_member_far_from_equal_ones_has_a_finite_density(name, generator):
    """All kernel centres coincide, so the bandwidth is next to nothing."""
    members = torch.zeros(2, 401, 2)
    members[:, -1] = 1e6
    probe = solved(name, generator, members, members)
    for numbers in (
        scores_of(probe, members, members),
        probe.scores(members, Bags(members, members)),
    ):
        assert numbers.isfinite().all()
        assert (numbers[:, -1] > numbers[:, 0]).all()


@pytest.mark.parametrize("compared", [500, 150])
def test_the_drift_is_that_of_a_linear_error(generator, monkeypatch, compared):
    """Truths are off by 0.8 x₁ in the first parameter; all of them are regressed."""
    monkeypatch.setattr("sbi_colt.probes.drift._MAX_COMPARED", compared)
    members, xs = bags(generator, num_pairs=300)
    members[:, 0, 0] += 0.8 * xs[:, 0]
    probe = solved("drift", generator, members, xs)
    assert len(probe.anchors) == len(probe.weights) == 300
    points = torch.eye(2).expand(2, 2, 2)
    at = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    first, second = (-probe.scores(points, Bags(points, at))).unbind(1)
    torch.testing.assert_close(first, torch.tensor([0.8, -0.8]), atol=0.25, rtol=0)
    assert (second.abs() < 0.25).all()


def test_the_drift_points_the_right_way_where_x_tells_little():
    """Chosen by squared error, the kernel would have a mean cosine of 0.10."""
    cosines = []
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        members, xs = bags(generator, num_pairs=100, size=2, dim=10)
        members[:, 0, :2] += 0.6 * _circle(xs)
        probe = solved("drift", generator, members, xs)
        fresh = torch.randn(500, 3, generator=generator)
        points = torch.eye(10).expand(500, 10, 10)
        drift = -probe.scores(points, Bags(points, fresh))
        cosines.append((drift[:, :2] * _circle(fresh)).sum(dim=1) / drift.norm(dim=1))
    assert torch.cat(cosines).mean() > 0.18


def _circle(xs):
    return torch.stack([(2 * xs[:, 0]).sin(), (2 * xs[:, 0]).cos()], dim=1)


def test_the_quadratic_form_finds_the_wrong_direction(generator):
    members, xs = bags(generator, num_pairs=300, dim=5)
    members[:, 0, 3] *= 0.3  # q is too wide there
    probe = solved("quadratic", generator, members, xs)
    assert isinstance(probe, QuadraticProbe)
    axis = probe.directions[:, probe.weights.argmax()]
    assert axis[3].abs() > 0.95


def test_axes_are_those_of_the_draws(generator):
    """With as many parameters as pairs, truths alone would not show the direction."""
    members, xs = bags(generator, num_pairs=60, size=200, dim=60)
    mixing = torch.linalg.qr(torch.randn(60, 60, generator=generator)).Q
    widths = torch.linspace(1, 4, 60)
    members = members * widths
    members[:, 0, 7] *= 0.3  # q is too wide along its eighth axis
    probe = solved("axes", generator, members @ mixing.T, xs)
    assert isinstance(probe, AxesProbe)
    axis = mixing.T @ probe.axes[:, probe.weights.argmax()]
    assert axis[7].abs() / axis.norm() > 0.8


def test_axes_do_not_depend_on_the_units_of_parameters(generator):
    members, xs = bags(generator, dim=4)
    members[:, 0] *= 0.5
    units = torch.tensor([1e-3, 1.0, 50.0, 1e4])
    scores = scores_of(solved("axes", generator, members, xs), members, xs)
    probe = solved("axes", generator, members * units, xs)
    others = scores_of(probe, members * units, xs)
    torch.testing.assert_close(scores, others, rtol=1e-2, atol=1e-3)


def test_a_constant_parameter_has_no_say(generator):
    members, xs = bags(generator, dim=3)
    members[:, 0] *= 0.5
    orders = []
    for value in (0.0, 7.0):
        members[..., 2] = value
        scores = scores_of(solved("axes", generator, members, xs), members, xs)
        orders.append(scores.argsort(dim=1).argsort(dim=1).double())
    assert (orders[0] - orders[1]).abs().mean() < 0.1  # of 41 places


def test_a_blend_turns_the_middle_into_near(generator):
    """Truths between the heart and the tails of q: no blended probe ranks them low."""
    members, xs = bags(generator, num_pairs=200, size=101)
    truths = torch.nn.functional.normalize(members[:, 0], dim=-1)
    members[:, 0] = 1.2 * truths
    probe = solved("blend", generator, members, xs)
    scores = scores_of(probe, members, xs)
    ranks = (scores[:, 1:] < scores[:, :1]).double().mean(dim=1)
    distances = members.norm(dim=-1)
    alone = (distances[:, 1:] < distances[:, :1]).double().mean(dim=1)
    assert float(ranks.mean()) < 0.3
    assert float(alone.mean()) > 0.4


def test_what_is_fixed_does_not_depend_on_the_truths():
    draws = GaussianTask("mean", 0.0, 2, 2).draws(20, 10, torch.Generator())
    config = make_config(probes=(*CoLTConfig().probes, "random"), max_epochs=1)
    colt = CoLT(config, seed=0).fit(draws, show_progress_bar=False)
    fixed = [probe.name for probe in colt.probes if probe.is_fixed]
    assert fixed == ["mahalanobis", "energy", "density", "fine-density", "random"]
    # Another member of each bag plays the truth: the same numbers.
    thetas, samples = draws.samples[3], draws.samples.clone()
    samples[3] = draws.thetas
    other = Draws(thetas, draws.xs, samples, shuffle=False)
    again = CoLT(config, seed=0).fit(other, show_progress_bar=False)
    members, xs = bags(torch.Generator().manual_seed(0), num_pairs=5)
    for first, second in zip(colt.probes, again.probes, strict=True):
        same = torch.allclose(
            scores_of(first, members, xs[:, :2]), scores_of(second, members, xs[:, :2])
        )
        assert same or not first.is_fixed
    assert torch.allclose(colt.scales.theta_scale, again.scales.theta_scale)


def test_a_coordinate_is_simulation_based_calibration(make_draws, generator):
    draws = make_draws(60, 20, 2, generator)
    thetas = draws.thetas + torch.tensor([0.0, 3.0])
    draws = Draws(thetas, draws.xs, draws.samples)
    p_values = []
    for index in (0, 1):
        config = CoLTConfig(
            probes=("coordinate",), settings={"coordinate": {"index": index}}
        )
        colt = CoLT(config, seed=0)
        colt.fit(make_draws(10, 20, 2, generator), show_progress_bar=False)
        p_values.append(colt.test(draws).p_value)
    assert p_values[1] < 1e-6 < 1e-2 < p_values[0]
    assert not CoordinateProbe(index=2).fits(dim=2)
    with pytest.raises(ValueError, match="index: expected an integer >= 0"):
        CoordinateProbe(index=-1)


def test_a_ball_is_the_same_for_draws_by_component(generator):
    """More draws than a density has kernel centres, those of one component first."""
    task = GaussianTask("covariance", 1.0, 2, 2)
    train, test = (task.draws(30, 60, generator) for _ in range(2))
    config = CoLTConfig(probes=("fine-density",))
    result = CoLT(config, seed=0).fit(train, show_progress_bar=False).test(test)
    samples = torch.randn(1000, 1, 2, generator=generator)
    samples[:500] += 8
    where = result.localize(test.xs[:1], samples)
    inside = where.contains(samples)[:, 0].double()
    assert float(inside[:500].mean() - inside[500:].mean()) == pytest.approx(0, abs=0.2)


def test_a_probe_is_solved_for_or_trained(generator):
    class Both(QuadraticProbe):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

    with pytest.raises(TypeError, match="Both: it defines solve and has parameters"):
        Both().fit(Bags(*bags(generator)), generator)


def test_a_narrow_posterior_is_seen_as_well(generator):
    """Far from zero the squares of small distances would be lost."""
    members = torch.randn(40, 101, 3, generator=generator)
    members[:, 0] *= 1.6
    found = []
    for width in (1.0, 1e-4):
        points = (5 + width * members).float()
        found.append(make_probe("density", {})(Bags(points, torch.zeros(40, 1))))
    torch.testing.assert_close(*found, atol=0.05, rtol=0.05)


def test_inside_inference_mode_the_numbers_are_the_same(make_draws, generator):
    colt = CoLT(make_config(max_epochs=1), seed=0)
    colt.fit(make_draws(30, 20, 2, generator), show_progress_bar=False)
    test = make_draws(30, 20, 2, generator)
    with torch.inference_mode():
        p_value = colt.test(test).p_value
    assert p_value == colt.test(test).p_value


def test_an_embedding_net_without_numbers_is_named(make_draws, generator):
    net = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(net.weight, torch.nan)
    config = CoLTConfig(probes=("drift",), embedding_net=net)
    with pytest.raises(ValueError, match="embedding_net: expected finite features"):
        CoLT(config, seed=0).fit(make_draws(30, 20, 2, generator))


def test_relief_is_for_few_parameters():
    config = CoLTConfig(probes=("relief", "density"))
    draws = GaussianTask("mean", 0.0, 3, 3).draws(20, 10, torch.Generator())
    colt = CoLT(config, seed=0).fit(draws, show_progress_bar=False)
    assert [probe.name for probe in colt.probes] == ["density"]
    with pytest.raises(ValueError, match="probes: none of .'relief'."):
        CoLT(CoLTConfig(probes=("relief",))).fit(draws)


@pytest.mark.parametrize(
    ("task", "size", "probe"),
    [
        (GaussianTask("blind", 1.0, 10, 10), (100, 200), "drift"),
        (GaussianTask("anisotropic", 1.5, 10, 10), (100, 200), "quadratic"),
        (GaussianTask("anisotropic", 1.5, 100, 100), (100, 200), "axes"),
        (CurvedTask(GaussianTask("modes", 0.4, 10, 10)), (100, 200), "blend"),
        (GaussianTask("modes", 0.3, 10, 10), (100, 200), "energy"),
        (GaussianTask("t", 0.5, 3, 3), (100, 200), "fine-density"),
        (TreeTask(0.7), (600, 60), "relief"),
        (LobesTask(1.0), (500, 100), "ball"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_probe_sees_what_it_is_for(task, size, probe):
    generator = torch.Generator().manual_seed(0)
    train, test = (task.draws(*size, generator) for _ in range(2))
    colt = CoLT(CoLTConfig(probes=(probe,)), seed=0)
    assert colt.fit(train, show_progress_bar=False).test(test).p_value < 0.01


def test_the_ball_alone_sees_a_shape_of_equal_moments():
    """Why it is in the default, though it takes most of the fit."""
    generator = torch.Generator().manual_seed(0)
    train, test = (LobesTask(1.0).draws(500, 100, generator) for _ in range(2))
    result = CoLT(seed=0).fit(train, show_progress_bar=False).test(test)
    assert result.p_value <= 0.01
    assert result.shares["ball"] > 0.99
    others = [p.p_value for p in result.probes if p.name != "ball"]
    assert min(others) > 0.01


@pytest.mark.parametrize("name", NAMES)
def test_every_probe_answers_where(name, tmp_path):
    generator = torch.Generator().manual_seed(1)
    task = GaussianTask("covariance", 2.0, 2, 2)
    train, test = (task.draws(80, 50, generator) for _ in range(2))
    colt = CoLT(CoLTConfig(probes=(name,)), seed=0)
    result = colt.fit(train, show_progress_bar=False).test(test)
    where = result.localize()
    inside = where.contains(test.samples[:, result.index])
    # The ball holds the share of the draws that it is said to hold.
    assert float(inside.double().mean()) == pytest.approx(where.mass_q, abs=0.1)
    assert where.centres.shape == (80, 2)
    fresh = task.draws(5, 50, generator)
    assert result.localize(fresh.xs, fresh.samples).radii.isfinite().all()
    colt.save(tmp_path / "colt.npz")
    again = CoLT.load(tmp_path / "colt.npz").test(test)
    assert again.p_value == result.p_value


@pytest.mark.parametrize("size", [1e12, 1e30])
def test_draws_far_out_of_all_others_are_ranked_too(make_draws, generator, size):
    colt = CoLT(make_config(max_epochs=2), seed=0)
    colt.fit(make_draws(40, 20, 2, generator), show_progress_bar=False)
    test = make_draws(40, 20, 2, generator)
    samples = test.samples.clone()
    samples[3, 5] = size
    result = colt.test(Draws(test.thetas, test.xs, samples))
    assert 0 < result.p_value <= 1


def test_xs_that_are_all_alike_leave_a_constant_drift(generator):
    members, xs = bags(generator)
    members[:, 0] += 1
    probe = solved("drift", generator, members, torch.ones_like(xs))
    scores = scores_of(probe, members, torch.ones_like(xs))
    assert (scores[:, 0] < scores[:, 1:].mean(dim=1)).double().mean() > 0.6


def test_the_default_finds_what_only_one_probe_sees():
    generator = torch.Generator().manual_seed(0)

    def pairs(n):
        xs = torch.randn(n, 2, generator=generator)
        members = torch.randn(101, n, 2, generator=generator)
        shifted = xs + members[1:] + 0.6 * xs.flip(1).sin()
        return Draws(xs + members[0], xs, shifted)

    colt = CoLT(seed=0).fit(pairs(150), show_progress_bar=False)
    result = colt.test(pairs(150))
    assert result.p_value <= 0.01
    assert result.leading.name in ("drift", "ball")


@pytest.mark.parametrize("size", [1e150, 1e200, 1e300])
def test_a_bag_far_beyond_all_others_is_ranked_like_them(make_draws, generator, size):
    """Squares of its members overflow; its own ranks do not depend on its size."""
    colt = CoLT(make_config(max_epochs=2), seed=0)
    colt.fit(make_draws(40, 20, 2, generator), show_progress_bar=False)
    test = make_draws(40, 20, 2, generator)
    thetas, samples = test.thetas.double(), test.samples.double()
    members = torch.cat([thetas[5:6].unsqueeze(0), samples[:, 5:6]])
    found = []
    for factor in (1e20, size):
        thetas[5], samples[:, 5] = factor * members[0, 0], factor * members[1:, 0]
        result = colt.test(Draws(thetas, test.xs, samples))
        (mahalanobis,) = [p for p in result.probes if p.name == "mahalanobis"]
        # The draws are shuffled anew, so V differs, but not the place among the draws.
        found.append(int(21 * mahalanobis.ranks[5]))
    assert found[0] == found[1]
