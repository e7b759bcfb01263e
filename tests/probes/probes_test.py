"""What holds for every probe: symmetry, storage, and what each one sees."""

import pytest
import torch
from configs import make_config
from probe_helpers import bags, scores_of, solved

from sbi_colt import CoLT, CoLTConfig, Draws
from sbi_colt.benchmark.tasks.curved import CurvedTask
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.benchmark.tasks.lobes import LobesTask
from sbi_colt.benchmark.tasks.tree import TreeTask
from sbi_colt.probes import Bags
from sbi_colt.probes.quadratic import QuadraticProbe

NAMES = [
    "energy",
    "density",
    "fine-density",
    "relief",
    "blend",
    "drift",
    "quadratic",
    "axes",
    "likelihood",
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


def test_what_is_fixed_does_not_depend_on_the_truths():
    draws = GaussianTask("mean", 0.0, 2, 2).draws(20, 10, torch.Generator())
    config = make_config(probes=(*CoLTConfig().probes, "random"), max_epochs=1)
    colt = CoLT(config, seed=0).fit(draws, show_progress_bar=False)
    fixed = [probe.name for probe in colt.probes if probe.is_fixed]
    each = ["marginal[0]", "marginal[1]"]
    assert fixed == ["mahalanobis", "fine-density", *each, "random"]
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


def test_a_probe_is_solved_for_or_trained(generator):
    class Both(QuadraticProbe):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

    with pytest.raises(TypeError, match="Both: it defines solve and has parameters"):
        Both().fit(Bags(*bags(generator)), generator)


def test_inside_inference_mode_the_numbers_are_the_same(make_draws, generator):
    colt = CoLT(make_config(max_epochs=1), seed=0)
    colt.fit(make_draws(30, 20, 2, generator), show_progress_bar=False)
    test = make_draws(30, 20, 2, generator)
    with torch.inference_mode():
        p_value = colt.test(test).p_value
    assert p_value == colt.test(test).p_value


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
    seeing = ("ball", "marginal[0]", "marginal[1]")  # a parameter alone sees a little
    others = [p.p_value for p in result.probes if p.name not in seeing]
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
    ranks = torch.stack([probe.ranks for probe in result.probes])
    assert ranks.isfinite().all()
    assert result.p_value > 0.001  # one draw of 800 must not decide


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
