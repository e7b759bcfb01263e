"""Runs near one observation."""

from functools import partial

import pytest
import torch
from focus_helpers import (
    FIXED,
    NO_BOUNDS,
    PRIOR,
    X_O,
    SampledOnly,
    Unnormalised,
    focused,
    make_posterior,
    simulator,
)
from sbi.utils import BoxUniform
from torch.distributions import MultivariateNormal

from sbi_colt import (
    DiagnosticReport,
    diagnose,
)
from sbi_colt.report.plausibility_text import conclude


def test_an_error_near_x_o_is_found_there_and_the_report_says_where(tmp_path):
    report = focused(make_posterior(1.6, only_near=True), 0, num_simulations=300)
    assert report.rejected
    assert report.findings[0].family.startswith("width")
    assert report.focus.num_effective > 50
    assert report.focus.num_pairs == 300
    assert "posteriors at observations like x_o" in " ".join(str(report).split())
    report.save(tmp_path / "report.npz")
    again = DiagnosticReport.load(tmp_path / "report.npz")
    assert again.focus == report.focus
    first = report.plot().axes[0].get_title()
    assert first.startswith("x_o among simulated data")
    assert again.plot().axes[0].get_title() == first
    again.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<figcaption>Your observation (orange) among") == 1
    assert str(again) == str(report)


@NO_BOUNDS
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "vague", "box", "sampled", "unnormalised"])
def test_focused_runs_of_an_exact_posterior_are_at_the_level(
    kind, within_binomial_band
):
    """With the box the proposal and the draws reach over the edge of the prior.

    A vague posterior is nearly as wide as the prior, so that weights are capped.
    """
    prior, posterior, make = PRIOR, make_posterior(), simulator
    if kind == "vague":
        posterior, make = vague_posterior, vague_simulator
    if kind in ("sampled", "unnormalised"):
        prior = SampledOnly() if kind == "sampled" else Unnormalised()
    if kind == "box":
        prior = BoxUniform(-torch.ones(2), torch.ones(2))
        noise = torch.distributions.Normal(0.0, 1.0)

        def posterior(xs, num):
            low, high = (noise.cdf((edge - xs) / 0.3) for edge in (-1.0, 1.0))
            u = low + (high - low) * torch.rand(num, *xs.shape)
            return (xs + 0.3 * noise.icdf(u.clamp(1e-6, 1 - 1e-6))).clamp(-1, 1)

    p_values = [
        focused(
            posterior,
            seed,
            prior,
            make,
            num_simulations=60,
            num_posterior_samples=200,
            num_replicated_pairs=40,
            num_replicates=3,
            methods=("colt", "predictive"),
            config=FIXED,
        )
        for seed in range(200)
    ]
    for level in (0.05, 0.2):
        for which in ("colt", "predictive", None):
            alarms = sum(
                (r.p_value if which is None else r[which].p_value) <= level
                for r in p_values
            )
            assert within_binomial_band(alarms, 200, level, band=0.998)


def vague_simulator(thetas):
    return thetas + torch.randn_like(thetas)


def vague_posterior(xs, num):
    return xs / 2 + 0.5**0.5 * torch.randn(num, *xs.shape)


@pytest.mark.parametrize("dim", [1, 10])
def test_draws_are_left_where_the_posterior_is_nearly_as_wide_as_the_prior(dim):
    """A t density has heavier tails than this prior: far draws would outweigh all."""
    prior = MultivariateNormal(torch.zeros(dim), torch.eye(dim))
    options = {"num_simulations": 60, "num_posterior_samples": 100, "num_replicates": 0}
    report = focused(
        vague_posterior, 0, prior, vague_simulator, torch.ones(dim), **options
    )
    assert report.focus.num_kept >= 25
    assert report.focus.num_pairs_kept >= 50


NOISE = 0.3
DESIGN = torch.eye(2).repeat(3, 1)  # each parameter is seen three times


def six_numbers(thetas):
    return thetas @ DESIGN.T + NOISE * torch.randn(len(thetas), 6)


def posterior_of_six(xs, num, width=1.0, near=None, shift=0.0):
    """The exact posterior, one that is too wide, or one that is misplaced at one x."""
    means = xs @ DESIGN / (3 + NOISE**2)
    if near is not None:
        is_near = (xs - near).norm(dim=1, keepdim=True) < 1.5
        means = means + torch.where(is_near, shift, 0.0)
    scale = NOISE / (3 + NOISE**2) ** 0.5
    return means + width * scale * torch.randn(num, len(xs), 2)


POSSIBLE = torch.tensor([1.2, 0.4, 0.9, 0.6, 1.0, 0.2])
IMPOSSIBLE = torch.tensor([-1.2, 0.4, 0.9, 0.6, 1.0, 0.2])


@pytest.mark.parametrize(
    ("options", "x_o", "kind", "words"),
    [
        ({}, POSSIBLE, "well", "all is well at x_o"),
        ({"width": 1.6}, POSSIBLE, "wrong", "The posterior is wrong at observations"),
        ({}, IMPOSSIBLE, "unexplained", "no parameters explain x_o: x_o is unlike"),
        # Simulations from the prior near x_o show that its draws are misplaced.
        (
            {"near": POSSIBLE, "shift": 2.5},
            POSSIBLE,
            "wrong",
            "The posterior is wrong at observations",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_the_four_situations_at_x_o_are_told_apart(options, x_o, kind, words):
    for seed in range(3):
        report = focused(
            partial(posterior_of_six, **options),
            seed,
            make=six_numbers,
            x_o=x_o,
            num_simulations=300,
            num_posterior_samples=200,
            methods=("colt", "predictive"),
            config=FIXED,
        )
        text = " ".join(str(report).split())
        assert words in text, (seed, text)
        found = conclude(report.p_value, report.observation, report.nearness)
        assert found.kind == kind, seed
        assert text.count("What to do: check the simulator") <= 1


def test_nothing_is_said_where_no_simulation_comes_near_x_o():
    """Of 499 simulations from the prior none is near x_o, and neither are its draws."""
    prior = MultivariateNormal(torch.zeros(6), torch.eye(6))
    x_o = torch.tensor([0.9, -0.7, 0.8, -1.0, 0.6, 0.9])

    def make(thetas):
        return thetas + 0.02 * torch.randn_like(thetas)

    def misplaced(xs, num):
        near = (xs - x_o).norm(dim=1, keepdim=True) < 0.3
        means = torch.where(near, xs + 1.5, xs)
        return means + 0.02 * torch.randn(num, *xs.shape)

    options = {"num_simulations": 200, "methods": ("colt", "predictive")}
    report = focused(misplaced, 0, prior, make, x_o, config=FIXED, **options)
    assert report.conclusion == "unreached"
    text = " ".join(str(report).split())
    assert "do not come near x_o, so nothing can be said" in text


@pytest.mark.parametrize("dim", [1, 2])
def test_a_mode_that_the_draws_at_x_o_miss_is_found(dim):
    """x tells |θ| only; near x_o the posterior has the positive parameters alone."""
    prior = MultivariateNormal(torch.zeros(dim), torch.eye(dim))
    x_o = torch.ones(dim)

    def make(thetas):
        return thetas.abs() + 0.05 * torch.randn_like(thetas)

    def one_mode(xs, num):
        thetas = xs + 0.05 * torch.randn(num, *xs.shape)
        signs = 2 * torch.randint(2, thetas.shape) - 1
        near = ((xs - x_o).abs() < 0.3).all(dim=1, keepdim=True)
        return thetas * torch.where(near, 1, signs)

    options = {"num_simulations": 300, "methods": ("colt",)}
    report = focused(one_mode, 0, prior, make, x_o, **options)
    assert report.p_value <= 0.01
    assert report.conclusion == "wrong"


def test_draws_outside_the_prior_are_found():
    prior = BoxUniform(torch.zeros(2), torch.ones(2))

    def make(thetas):
        return thetas + 0.2 * torch.randn_like(thetas)

    def leaking(xs, num):
        return xs + 0.2 * torch.randn(num, *xs.shape)

    options = {"num_simulations": 200, "methods": ("colt",), "config": FIXED}
    report = focused(leaking, 0, prior, make, torch.tensor([0.05, 0.95]), **options)
    assert report.rejected
    assert report.focus.share_outside > 0.2
    assert "of the draws lie outside the prior" in " ".join(str(report).split())


def test_the_simulator_may_fail_at_all_draws_at_x_o():
    prior = BoxUniform(torch.zeros(2), torch.ones(2))
    x_o = torch.tensor([0.5, 0.5])

    def make(thetas):
        inside = ((thetas >= 0) & (thetas <= 1)).all(dim=1, keepdim=True)
        xs = thetas + 0.1 * torch.randn_like(thetas)
        return torch.where(inside, xs, torch.nan)

    def outside_near_x_o(xs, num):
        near = ((xs - x_o).abs() < 0.1).all(dim=1, keepdim=True)
        return xs + 3.0 * near + 0.1 * torch.randn(num, *xs.shape)

    options = {"num_simulations": 200, "methods": ("colt",), "config": FIXED}
    report = focused(outside_near_x_o, 0, prior, make, x_o, **options)
    assert report.rejected
    assert report.conclusion == "wrong"


@pytest.mark.parametrize("x_o", [[8.0, 8.0], [-9.0, 3.0]])
def test_an_impossible_observation_gets_a_report(x_o):
    """No proposal near such an x_o leaves draws, so the whole prior is taken."""
    prior = MultivariateNormal(torch.zeros(2), torch.eye(2))
    options = {"num_simulations": 100, "methods": ("colt",), "config": FIXED}
    report = focused(vague_posterior, 0, prior, vague_simulator, x_o, **options)
    assert report.conclusion == "unexplained"
    text = " ".join(str(report).split())
    assert "x_o is unlike what prior and simulator make" in text


def dirichlet():
    """Exact draws on the simplex, whose prior has no density in space."""
    shape = torch.tensor([2.0, 3.0, 4.0])

    def make(thetas):
        return torch.distributions.Multinomial(30, probs=thetas).sample()

    def exact(xs, num):
        return torch.distributions.Dirichlet(shape + xs).sample((num,))

    x_o = torch.tensor([8.0, 10.0, 12.0])
    return torch.distributions.Dirichlet(shape), make, exact, x_o


def half_discrete():
    """A uniform parameter and a coin, which x does not tell."""
    prior = [
        BoxUniform(torch.zeros(1), torch.ones(1)),
        torch.distributions.Bernoulli(0.4 * torch.ones(1)),
    ]

    def make(thetas):
        return thetas[:, :1] + 0.1 * torch.rand(len(thetas), 1)

    def exact(xs, num):
        low, high = (xs - 0.1).clamp(0, 1), xs.clamp(0, 1)
        first = low + (high - low) * torch.rand(num, len(xs), 1)
        coins = torch.rand(num, len(xs), 1) < 0.4
        return torch.cat([first, coins.float()], dim=2)

    return prior, make, exact, torch.tensor([0.5])


@pytest.mark.parametrize("problem", [dirichlet, half_discrete])
def test_a_prior_on_a_surface_is_focused_by_its_own_draws(problem):
    prior, make, exact, x_o = problem()
    options = {"num_simulations": 100, "methods": ("colt",)}
    alarms = 0
    for seed in range(6):
        report = focused(exact, seed, prior, make, x_o, **options)
        assert report.focus.num_kept >= 50
        alarms += report.rejected
    assert alarms <= 2  # more have a probability of 0.002 at the level


@NO_BOUNDS
@pytest.mark.parametrize("prior", [SampledOnly(), Unnormalised()], ids=["", "density"])
def test_a_prior_may_lack_a_normalised_density(prior):
    options = {
        "num_simulations": 300,
        "methods": ("colt", "predictive"),
        "config": FIXED,
    }
    right = [focused(make_posterior(), seed, prior, **options) for seed in range(8)]
    assert sum(report.rejected for report in right) <= 3  # more has a chance of 4e-4
    assert all(report.focus.num_kept > 50 for report in right)
    assert all(report.nearness > 0.05 for report in right)
    assert focused(make_posterior(1.6), 0, prior, **options).rejected


def test_a_prior_without_a_density_that_hardly_reaches_the_posterior_is_refused():
    def narrow(xs, num):
        return 4.5 + 1e-4 * torch.randn(num, *xs.shape)

    with pytest.raises(ValueError, match="prior: it has no density, so parameters"):
        focused(narrow, 0, SampledOnly())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"proposal": PRIOR}, "proposal: it describes pairs that you simulated"),
        ({"x_o": X_O, "proposal": PRIOR}, "x_o, proposal: expected one of them"),
        ({"x_o": torch.zeros(3)}, r"x_o: expected shape \(2,\)"),
        ({"x_o": torch.zeros(2, 1)}, "got .2, 1.; reshape it"),
        ({"x_o": torch.zeros(5, 2)}, "several trials, the simulator must make"),
        ({"x_o": [1.0, float("nan")]}, "x_o: expected finite values, got 1 NaN"),
        ({"x_o": X_O, "methods": ("predictive",)}, "methods: with x_o or proposal"),
    ],
)
def test_what_does_not_fit_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        diagnose(make_posterior(), PRIOR, simulator, show_progress_bar=False, **options)
