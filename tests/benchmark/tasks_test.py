"""The benchmark's tasks: closed forms, the null at α = 0, growing errors, seeds."""

import math

import numpy as np
import pytest
import torch

from sbi_colt import CoLT, CoLTConfig, Draws
from sbi_colt.baselines import sbc
from sbi_colt.benchmark.tasks.curved import (
    bend,
    curvature_lines,
    principal_curve,
    total_curvature,
)
from sbi_colt.benchmark.tasks.diffusion import (
    DiffusionTask,
    noise_levels,
    reverse,
    spiral,
    train,
)
from sbi_colt.benchmark.tasks.gaussian import PERTURBATIONS, GaussianTask
from sbi_colt.benchmark.tasks.lobes import LobesTask
from sbi_colt.benchmark.tasks.settings import SETTINGS, make_task
from sbi_colt.benchmark.tasks.trained import PROBLEMS, TrainedTask
from sbi_colt.benchmark.tasks.tree import TreeTask, grow

FIXED = CoLTConfig(probes=("mahalanobis", "random"), num_redraws=199)
CHEAP = [name for name in SETTINGS if name not in ("diffusion",)]


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def distance(task, num_pairs, num_samples, generator):
    """The deviation that the fixed probes see."""
    colt = CoLT(FIXED, seed=0).fit(
        task.draws(20, num_samples, generator), show_progress_bar=False
    )
    return colt.test(task.draws(num_pairs, num_samples, generator)).distance


@pytest.mark.parametrize("name", CHEAP)
def test_tasks_are_batched_and_seeded(name):
    alpha = 0 if SETTINGS[name].alphas[1] >= 100 else SETTINGS[name].alphas[1]
    task = make_task(name, alpha)
    first, again = (task.draws(6, 4, seeded()) for _ in range(2))
    other = task.draws(6, 4, seeded(2))
    assert first.samples.shape[:2] == (4, 6)
    assert torch.equal(first.samples, again.samples)
    assert torch.equal(first.thetas, again.thetas)
    assert not torch.equal(first.thetas, other.thetas)


@pytest.mark.usefixtures("unchanged_random_state")
@pytest.mark.parametrize(
    "name", ["curved-t", "tree", "lobes", "two-moons-npe", "outliers-npe"]
)
def test_tasks_leave_the_random_state_alone(name):
    make_task(name, 0).draws(5, 3, seeded())


@pytest.mark.parametrize("name", list(SETTINGS))
def test_alpha_zero_is_the_null(name, within_binomial_band):
    """SBC's exact p-values over 200 batches at α = 0."""
    # The diffusion's p is what its network makes, however little that has learned.
    is_diffusion = name == "diffusion"
    task = DiffusionTask(0, training_steps=20) if is_diffusion else make_task(name, 0)
    generator = seeded(3)
    alarms = sum(
        sbc(task.draws(25, 8, generator), seed=i, num_redraws=99).p_value <= 0.05
        for i in range(200)
    )
    assert within_binomial_band(alarms, 200, 0.05)


@pytest.mark.parametrize("family", ["", "curved-"])
@pytest.mark.parametrize("name", [p for p in PERTURBATIONS if p != "blind"])
def test_errors_grow_with_alpha(family, name):
    generator = seeded(4)
    if name == "mean":  # seen from the mean, a shift of it is small
        alphas = (0.0, 0.3, 3.0)
    else:
        alphas = (0.0, SETTINGS[name].alphas[3], 4 * SETTINGS[name].alphas[3])
    if name in ("modes", "collapse"):
        alphas = (0.0, 0.1, 0.5)
    sizes = [
        distance(make_task(family + name, alpha), 1500, 60, generator)
        for alpha in alphas
    ]
    assert sizes[0] < 0.06
    assert sizes[0] < sizes[1] < sizes[2]


def test_gaussian_moments_have_their_closed_form():
    """At one x: mean, and covariance times 1 + α, up to Monte-Carlo error."""
    task = GaussianTask("covariance", 0.5, 3, 3, seed=2)
    xs = torch.tensor([[1.0, 2.0, -0.5]])
    truths = task.truths(xs, seeded(), size=200_000)[:, 0].double()
    estimates = task.estimates(xs, (200_000, 1), seeded(2))[:, 0].double()
    ratio = estimates.T.cov().diagonal() / truths.T.cov().diagonal()
    assert torch.allclose(ratio, torch.full((3,), 1.5).double(), atol=0.03)
    correlation = truths.T.corrcoef()
    steps = torch.arange(3.0).double()
    toeplitz = 0.9 ** (steps - steps.unsqueeze(1)).abs()
    assert torch.allclose(correlation, toeplitz, atol=0.01)
    spread = truths.std(dim=0).max()
    shift = (truths.mean(dim=0) - estimates.mean(dim=0)).abs()
    assert (shift < 5 * spread / 200_000**0.5 * 1.6).all()


def test_the_anisotropic_error_lies_along_the_least_variance():
    task = GaussianTask("anisotropic", 2.0, 3, 3)
    xs = torch.tensor([[1.0, 0.5, -0.5]])
    truths = task.truths(xs, seeded(), size=100_000)[:, 0].double()
    estimates = task.estimates(xs, (100_000, 1), seeded(2))[:, 0].double()
    extra = estimates.T.cov() - truths.T.cov()
    values, vectors = torch.linalg.eigh(extra)
    least = torch.linalg.eigh(truths.T.cov()).eigenvectors[:, 0]
    assert float(values[-1]) == pytest.approx(2.0, abs=0.1)
    assert float((vectors[:, -1] @ least).abs()) > 0.99


def test_lobes_have_the_moments_of_a_gaussian():
    """To the second order, radii too; the third order tells them apart."""
    task = LobesTask(1.0, seed=3)
    draws = task.draws(200_000, 1, seeded())
    scales = torch.tensor([2.0, 0.5])
    truths, others = (
        ((thetas - draws.xs) / scales).double()
        for thetas in (draws.thetas, draws.samples[0])
    )
    assert truths.mean(dim=0).abs().max() < 0.01
    assert (truths.T.cov() - torch.eye(2).double()).abs().max() < 0.02
    radii = [points.norm(dim=1).sort().values for points in (truths, others)]
    assert (radii[0] - radii[1]).abs()[:-1000].max() < 0.05

    def third(points):
        x, y = points.T
        return torch.stack([x**3 - 3 * x * y**2, 3 * x**2 * y - y**3]).mean(dim=1)

    # E r³ / 2 = 3 √(π/2) / 2 = 1.88 in the direction of the lobes
    assert float(third(truths).norm()) == pytest.approx(1.88, abs=0.05)
    assert third(others).norm() < 0.05
    with pytest.raises(ValueError, match="alpha: expected"):
        LobesTask(1.5)


def test_bending_keeps_shapes_and_follows_the_seed():
    thetas = torch.randn(5, 4, 3, generator=seeded())
    assert bend(thetas).shape == thetas.shape
    assert torch.equal(bend(thetas, 1), bend(thetas, 1))
    assert not torch.equal(bend(thetas, 1), bend(thetas, 2))
    assert not bend(thetas).requires_grad


def test_total_curvature_of_known_curves():
    angles = np.linspace(0, 2 * np.pi, 2000)
    circle = np.stack([3 * np.cos(angles), 3 * np.sin(angles)], axis=1)
    assert total_curvature(circle) == pytest.approx(360, rel=0.03)
    line = np.stack([angles, 2 * angles], axis=1)
    assert total_curvature(line) < 1e-3


def test_the_principal_curve_runs_through_the_middle():
    """Points about half a circle: the curve keeps its radius and its length."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, np.pi, 600)
    radius = 2 + 0.1 * rng.normal(size=600)
    points = np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=1)
    curve = principal_curve(points, span=0.15)
    assert np.linalg.norm(curve, axis=1).mean() == pytest.approx(2, abs=0.05)
    assert total_curvature(curve) == pytest.approx(180, rel=0.25)


@pytest.mark.parametrize(
    ("dims", "least", "most"),
    [
        ((3, 3), 0.3, 1.0),
        ((10, 10), 0.03, 0.2),
        ((50, 10), -0.02, 0.002),
        ((100, 100), -0.02, 0.002),
    ],
)
def test_x_tells_little_of_curved_parameters_in_many_dimensions(dims, least, most):
    """Why a curved posterior that ignores x cannot be told from p there.

    The phases turn with x: what a linear function of x explains of θ, left-out pairs.
    """
    draws = make_task("curved-blind", 1.0, dims).draws(20_000, 1, seeded())
    xs = torch.cat([draws.xs, torch.ones(len(draws), 1)], dim=1).double()
    thetas = draws.thetas.double()
    (fit, test), (known, hidden) = xs.split(10_000), thetas.split(10_000)
    residuals = hidden - test @ torch.linalg.lstsq(fit, known).solution
    explained = 1 - residuals.square().mean(dim=0) / hidden.var(dim=0)
    assert least < explained.max() < most


def test_bending_adds_curvature():
    """The bivariate case: a straight cloud before, a curved one after."""
    factor = torch.linalg.cholesky(torch.tensor([[1.0, 0.9], [0.9, 1.0]]))
    cloud = 3 * torch.randn(500, 2, generator=seeded()) @ factor.T
    before = total_curvature(principal_curve(cloud.double().numpy()))
    after = total_curvature(principal_curve(bend(cloud, 2).double().numpy()))
    assert before < 150
    assert after > 2 * before


def test_curvature_is_tabulated():
    header, one, three = curvature_lines(num_points=200, num_seeds=2)
    assert header.split() == ["deviation", "before", "after"]
    assert one.split()[0] == "1"
    assert float(three.split()[1]) > 0


def test_the_tree_has_the_components_of_its_description():
    weights, means, factors = grow(0)
    assert len(weights) == 8 * (2**7 - 1)  # eight on each branch, seven levels
    assert len(means) == len(factors) == 2 * len(weights)
    # The first branch: eight components, evenly along the diagonal.
    first = means[:8]
    assert torch.allclose(first[:, 0], first[:, 1], atol=1e-6)
    assert torch.allclose(first.diff(dim=0).norm(dim=1), torch.full((7,), 0.125))
    spread = torch.linalg.svdvals(factors)
    assert torch.allclose(spread[:, 1] / spread[:, 0], torch.full((2032,), 0.1))


def test_the_tree_blurs_by_alpha():
    """Variance beyond that of p: ((1 + α)² − 1) σ² in each direction."""
    draws = TreeTask(4.0).draws(2, 400_000, seeded())
    exact = TreeTask(0.0).draws(2, 400_000, seeded())
    assert torch.equal(draws.xs, exact.xs)
    extra = draws.samples.double().var(dim=0) - exact.samples.double().var(dim=0)
    # The same components and inner noise: the difference is the blur alone.
    assert torch.allclose(extra, torch.full((2, 2), 24e-4).double(), atol=8e-4)


def test_errors_of_the_tree_grow_with_alpha():
    config = CoLTConfig(probes=("relief",))
    sizes = []
    for alpha in (0.0, 1.5, 4.0):
        task, generator = TreeTask(alpha), seeded(5)
        colt = CoLT(config, seed=0).fit(
            task.draws(500, 100, generator), show_progress_bar=False
        )
        sizes.append(colt.test(task.draws(1000, 100, generator)).distance)
    assert sizes[0] < 0.06
    assert sizes[0] < sizes[1] < sizes[2]


def test_classes_of_the_tree_lie_on_either_side():
    draws = TreeTask(0.0).draws(500, 2, seeded())
    side = draws.thetas.sum(dim=1) > 0
    assert ((draws.xs[:, 0] >= 0) == side).float().mean() > 0.95


def test_the_diffusion_is_batched_and_seeded():
    task = DiffusionTask(2, training_steps=20)
    first, again, other = (task.draws(6, 4, seeded(i)) for i in (1, 1, 2))
    assert first.samples.shape == (4, 6, 2)
    assert torch.equal(first.samples, again.samples)
    assert torch.equal(first.thetas, again.thetas)
    assert not torch.equal(first.thetas, other.thetas)


def test_noise_levels_are_those_of_the_paper():
    levels = noise_levels()
    assert len(levels) == 21
    assert float(levels[0]) == pytest.approx(80, rel=1e-5)
    assert float(levels[19]) == pytest.approx(0.002, rel=1e-4)
    assert levels[20] == 0
    assert (levels.diff() < 0).all()


def test_heuns_method_is_exact_for_a_perfect_denoiser():
    """If D is the clean θ whatever the noise, the reverse process ends there."""

    class Perfect:
        def __call__(self, thetas, sigma, xs):
            return spiral(xs)

    xs = torch.linspace(5, 14, 50).unsqueeze(1)
    ends = reverse(Perfect(), xs, 20, seeded())  # type: ignore[arg-type]
    assert torch.allclose(ends, spiral(xs), atol=1e-3)
    early = reverse(Perfect(), xs, 15, seeded()) - spiral(xs)
    assert float(early.std()) == pytest.approx(float(noise_levels()[15]), rel=0.2)


def test_the_diffusion_learns_the_spiral_and_fewer_steps_are_worse():
    denoiser = train(0, 400)
    xs = torch.linspace(5, 14, 200).unsqueeze(1)
    with torch.no_grad():
        ends = reverse(denoiser, xs, 20, seeded())
    assert float((ends - spiral(xs)).abs().mean()) < 0.5
    sizes = [
        distance(DiffusionTask(alpha, training_steps=400), 200, 40, seeded())
        for alpha in (0, 5, 8)
    ]
    assert sizes[0] < 0.15
    assert sizes[0] < sizes[1] < sizes[2]


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_exact_posteriors_pass_sbc(name, within_binomial_band):
    """2000 pairs of the simulator: each parameter's ranks among exact draws."""
    draws = TrainedTask(name, "npe", 0).draws(2000, 20, seeded())
    assert sbc(draws, seed=0).p_value > 0.01
    colt = CoLT(FIXED, seed=0).fit(
        draws.select(torch.arange(100)), show_progress_bar=False
    )
    assert colt.test(draws.select(torch.arange(100, 2000))).p_value > 0.01


def test_two_moons_simulator_and_posterior_agree():
    """Exact draws, simulated again, give x back up to the crescent's noise."""
    problem = PROBLEMS["two-moons"]
    x = torch.tensor([-0.2, 0.1])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        again = problem.simulate(problem.exact(x, 2000))
    assert float((again - x).norm(dim=1).max()) < 0.3


@pytest.mark.slow
def test_more_simulations_train_a_better_posterior():
    few, many = (TrainedTask("outliers", "npe", n, max_epochs=60) for n in (100, 4000))
    sizes = []
    for task in (few, many):
        train, test = task.draws(1000, 50, seeded()).split(0.5, seed=0)
        colt = CoLT(seed=0).fit(train, show_progress_bar=False)
        sizes.append(colt.test(test).distance)
    assert sizes[1] < sizes[0] - 0.1  # the fixed probes alone do not see it
    scores = [task.accuracy(3, seeded()) for task in (few, many)]
    assert 0.5 <= scores[1] < scores[0] <= 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_task("trees", 0), "task: expected one of"),
        (lambda: TreeTask(-1.0), "alpha: expected a number >= 0"),
        (lambda: DiffusionTask(1.5), "alpha: expected a number of steps"),
        (lambda: DiffusionTask(21), "alpha: expected a number of steps"),
        (lambda: TrainedTask("moons", "npe", 0), "problem: expected one of"),
        (lambda: TrainedTask("outliers", "nre", 0), "estimator: expected one of"),
        (lambda: TrainedTask("outliers", "npe", 0.5), "alpha: expected simulations"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_draws_of_tasks_are_finite_in_high_dimension():
    draws = make_task("curved-collapse", 0.3, (100, 100)).draws(5, 10, seeded())
    assert isinstance(draws, Draws)
    assert draws.dim == 100
    assert math.isfinite(float(draws.samples.sum()))
