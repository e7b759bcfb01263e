"""Runs near one observation, and with pairs from a proposal."""

import pytest
import torch
from configs import make_config
from sbi.inference import NPE, simulate_for_sbi
from sbi.utils import BoxUniform, RestrictedPrior
from torch.distributions import MultivariateNormal

from sbi_colt import DiagnosticReport, Draws, diagnose, run_colt
from sbi_colt.diagnose import diagnose_draws

PRIOR = MultivariateNormal(torch.zeros(2), torch.eye(2))
X_O = torch.tensor([1.0, 0.0])
FIXED = make_config(probes=("mahalanobis", "marginal"), num_redraws=199)


def simulator(thetas):
    return thetas + 0.3 * torch.randn_like(thetas)


def make_posterior(width=1.0, only_near=False):
    """The exact posterior, or one that is wrong everywhere or near X_O alone."""
    variance = 0.09 / 1.09

    def q(xs, num):
        scale = torch.full((len(xs), 1), width)
        if only_near:
            near = (xs - X_O).norm(dim=1, keepdim=True) < 1
            scale = torch.where(near, scale, 1.0)
        return xs / 1.09 + scale * variance**0.5 * torch.randn(num, *xs.shape)

    return q


def focused(posterior, seed, prior=PRIOR, make=simulator, x_o=X_O, **options):
    return diagnose(
        posterior,
        prior,
        make,
        x_o=x_o,
        seed=seed,
        show_progress_bar=False,
        **options,
    )


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


@pytest.mark.slow
@pytest.mark.parametrize("box", [False, True])
def test_focused_runs_of_an_exact_posterior_are_at_the_level(box, within_binomial_band):
    """With the box the proposal and the draws reach over the edge of the prior."""
    prior, posterior = PRIOR, make_posterior()
    if box:
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


def pairs_from(proposal, number=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    thetas = proposal.loc + proposal.stddev * torch.randn(
        number, 2, generator=generator
    )
    return thetas, thetas + 0.3 * torch.randn(number, 2, generator=generator)


@pytest.mark.parametrize("as_function", [False, True])
def test_pairs_from_a_proposal_need_their_weights(as_function):
    proposal = MultivariateNormal(2 * torch.ones(2), 0.04 * torch.eye(2))
    thetas, xs = pairs_from(proposal)

    def log_weight(thetas):
        return proposal.log_prob(thetas) - PRIOR.log_prob(thetas)

    common = {
        "thetas": thetas,
        "xs": xs,
        "methods": ("colt", "sbc"),
        "config": FIXED,
        "seed": 0,
        "show_progress_bar": False,
    }
    right, wrong = make_posterior(), make_posterior(1.6)
    given = {"proposal": log_weight if as_function else proposal, "prior": PRIOR}
    assert diagnose(right, **common).rejected  # taken for pairs from the prior
    assert not diagnose(right, **given, **common).rejected
    assert diagnose(wrong, **given, **common).rejected
    result = run_colt(
        thetas,
        xs,
        right,
        500,
        config=FIXED,
        seed=0,
        proposal=log_weight,
        show_progress_bar=False,
    )
    assert result.p_value > 0.05


def test_weights_in_a_file_count(tmp_path):
    proposal = MultivariateNormal(2 * torch.ones(2), 0.04 * torch.eye(2))
    thetas, xs = pairs_from(proposal)
    torch.manual_seed(0)
    samples = make_posterior()(xs, 1000)
    members = torch.cat([thetas.unsqueeze(0), samples])
    weights = proposal.log_prob(members) - PRIOR.log_prob(members)
    Draws(thetas, xs, samples, log_weights=weights).save(tmp_path / "draws.npz")
    draws = Draws.load(tmp_path / "draws.npz")
    report = diagnose_draws(draws, config=FIXED, seed=0, show_progress_bar=False)
    assert not report.rejected
    assert report.focus.num_draws == 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"proposal": PRIOR}, "proposal: it describes pairs that you simulated"),
        ({"x_o": X_O, "proposal": PRIOR}, "x_o, proposal: expected one of them"),
        ({"x_o": torch.zeros(3)}, r"x_o: expected shape \(2,\)"),
        ({"x_o": X_O, "methods": ("predictive",)}, "methods: with x_o or proposal"),
    ],
)
def test_what_does_not_fit_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        diagnose(make_posterior(), PRIOR, simulator, show_progress_bar=False, **options)


def test_a_proposal_is_no_prior():
    restricted = RestrictedPrior(
        BoxUniform(-torch.ones(2), torch.ones(2)), lambda t: t[:, 0] > 0
    )
    with pytest.raises(ValueError, match="prior: expected the prior that"):
        diagnose(make_posterior(), restricted, simulator, show_progress_bar=False)


@pytest.mark.slow
def test_a_posterior_of_several_rounds_is_diagnosed_at_its_observation():
    """NPE-C over three rounds: right near x_o, and spoilt draws are found there."""
    torch.manual_seed(0)
    box = BoxUniform(-3 * torch.ones(2), 3 * torch.ones(2))
    inference, proposal = NPE(box, show_progress_bars=False), box
    for _ in range(3):
        thetas, xs = simulate_for_sbi(simulator, proposal, 500, show_progress_bar=False)
        inference.append_simulations(thetas, xs, proposal=proposal)
        inference.train(max_num_epochs=60)
        posterior = inference.build_posterior().set_default_x(X_O)
        proposal = posterior
    with pytest.warns(UserWarning, match="has a default observation"):
        diagnose(
            posterior,
            box,
            simulator,
            num_simulations=60,
            num_posterior_samples=50,
            methods=("sbc",),
            seed=0,
            show_progress_bar=False,
        )
    good = focused(posterior, 0, box, num_simulations=300, num_replicates=0)

    def spoilt(xs, num):
        draws = posterior.sample_batched((num,), xs, show_progress_bars=False)
        mean = draws.mean(dim=0)
        return mean + 0.5 * (draws - mean)

    bad = focused(spoilt, 0, box, num_simulations=300, num_replicates=0)
    assert bad.rejected
    assert bad.distance > good.distance + 0.1
