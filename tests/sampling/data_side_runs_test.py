"""The data side through the front doors: what is simulated, counted and said."""

import pytest
import torch
from data_side_helpers import QUICK, QUIET, posterior, simulator
from stand_ins import PRIOR, simulate
from torch import Tensor

from sbi_colt import (
    CoLTConfig,
    DiagnosticReport,
    compare,
    diagnose,
    draw,
    run_colt,
)
from sbi_colt.report.text import percent
from sbi_colt.sampling.replicates import (
    TooFewBags,
)


def far_posterior(xs, num):
    """Draws at which `only_small` fails, nearly always."""
    return 5 + posterior(xs, num)


def only_small(thetas):
    return torch.where(thetas[:, :1] > 4, torch.nan, simulator(thetas))


def test_a_posterior_where_the_simulator_fails_has_a_report(tmp_path):
    given = {"num_simulations": 60, "num_posterior_samples": 20, "seed": 0, **QUIET}
    given |= {"config": QUICK}
    with pytest.warns(UserWarning, match="posterior: the simulator fails.*is left out"):
        report = diagnose(far_posterior, PRIOR, only_small, **given)
    assert "predictive" not in report
    assert report.left_out == "failing"
    assert report.failed_share > 0.6
    report.save(tmp_path / "report.npz")
    loaded = DiagnosticReport.load(tmp_path / "report.npz")
    assert words(loaded) == words(report)
    assert f"fails at {percent(report.failed_share)} of the parameters" in words(report)
    assert "left out, because the simulator fails" in words(report)
    with pytest.raises(TooFewBags, match="^posterior: the simulator fails"):
        diagnose(far_posterior, PRIOR, only_small, methods=("predictive",), **given)
    with pytest.warns(UserWarning, match="is left out"):
        both = compare({"a": posterior, "b": far_posterior}, PRIOR, only_small, **given)
    assert (both["a"].left_out, both["b"].left_out) == ("another", "failing")
    assert both["b"].failed_share > 0.6


@pytest.mark.parametrize("methods", [None, ("predictive",)])
def test_too_few_pairs_are_named_before_they_are_replicated(methods):
    calls = []

    def counted(thetas):
        calls.append(len(thetas))
        return simulator(thetas)

    given = {"num_simulations": 60, "num_posterior_samples": 20, "seed": 0, **QUIET}
    given |= {"config": QUICK, "num_replicated_pairs": 19, "methods": methods}
    if methods is None:
        with pytest.warns(UserWarning, match="of 19 bags.*at least 20 are needed"):
            report = diagnose(posterior, PRIOR, counted, **given)
        assert report.left_out == "few"
        assert "too few of its bags" in words(report)
        assert "simulator=simulator" not in words(report)
    else:
        with pytest.raises(TooFewBags, match="of 19 bags"):
            diagnose(posterior, PRIOR, counted, **given)
    assert sum(calls) < 100  # pairs and trials


def test_a_data_side_that_was_not_asked_for_is_called_so():
    given = {"num_simulations": 60, "num_posterior_samples": 20, "seed": 0, **QUIET}
    report = diagnose(posterior, PRIOR, simulator, methods=("sbc",), **given)
    assert report.left_out == "off"
    assert "simulator=simulator" not in words(report)


def test_the_data_side_alone_takes_one_draw_per_x():
    asked = []

    def q(xs, num):
        asked.append((num, len(xs)))
        return posterior(xs, num)

    report = diagnose(
        q,
        PRIOR,
        simulator,
        num_simulations=200,
        methods=("predictive",),
        seed=0,
        **QUIET,
    )
    assert asked == [(1, 50), (2, 2), (2, 2)]  # the last two look for a fixed seed
    assert list(report) == ["predictive"]
    assert report.cost.num_posterior_samples == 0
    assert "Cost: 50 pairs of a true parameter and its x, 300 more" in str(
        report
    ).replace("\n", " ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 167),
        ({"num_simulations": 200}, 50),
        ({"num_simulations": 30}, 30),
        ({"num_replicated_pairs": 70}, 70),
        ({"num_simulations": 40, "num_replicated_pairs": 60}, 60),
    ],
)
def test_the_data_side_alone_simulates_just_the_pairs_that_it_uses(options, expected):
    asked, simulated = [], []

    def q(xs, num):
        asked.append(len(xs))
        return posterior(xs, num)

    def counted(thetas):
        simulated.append(len(thetas))
        return simulator(thetas)

    options = {"methods": ("predictive",), "config": QUICK, "seed": 0, **options}
    report = diagnose(q, PRIOR, counted, **options, **QUIET)
    assert report.cost.num_simulations == expected
    assert asked[0] == expected
    assert report.replicates is not None
    assert len(report.replicates) == expected
    both = compare({"a": q, "b": q}, PRIOR, simulator, **options, **QUIET)
    for name in both:
        assert both[name].cost.num_simulations == expected
        assert both[name].cost.num_posterior_samples == 0
    # Seven for each pair, and the trials of how the simulator is called.
    assert 0 < sum(simulated) - 7 * expected < 30


@pytest.mark.parametrize("num_workers", [1, 2])
def test_every_simulation_is_counted(num_workers, tmp_path):
    """Each call leaves a byte in a file, in this process or in another."""
    path = tmp_path / "calls"

    def counted(theta):
        assert theta.ndim == 1
        with open(path, "ab") as file:
            file.write(b"x")
        x = theta + torch.randn(2)
        return x if x[0] < 1 else x * torch.nan

    with pytest.warns(UserWarning, match="failed"):
        report = diagnose(
            posterior,
            PRIOR,
            counted,
            num_simulations=60,
            num_posterior_samples=20,
            methods=("predictive", "sbc"),
            config=QUICK,
            seed=0,
            num_workers=num_workers,
            **QUIET,
        )
    trials_of_batches = report.cost.num_spent - path.stat().st_size
    assert 0 <= trials_of_batches < 30  # refused by the first line
    assert report.cost.num_spent > 60 + 300 + 50
    report.save(tmp_path / "report.npz")
    assert DiagnosticReport.load(tmp_path / "report.npz").cost == report.cost
    assert f"spent {report.cost.num_spent} simulations" in words(report)
    assert report.to_dict()["cost"]["num_spent"] == report.cost.num_spent


def unsure(xs, num):
    """The posterior where x[0] < 0.5; it cannot be sampled elsewhere."""
    draws = posterior(xs, num)
    return torch.where(xs[:, :1] < 0.5, draws, torch.nan)


def left_out(**options):
    """A report on a posterior that cannot be sampled at some of the xs."""
    given = {"num_simulations": 60, "num_posterior_samples": 20, "max_lost": 1.0}
    given |= {"methods": ("predictive", "sbc"), "config": QUICK, "seed": 0, **QUIET}
    with pytest.warns(UserWarning, match="could not be sampled|is left out"):
        return diagnose(unsure, PRIOR, simulator, **{**given, **options})


@pytest.mark.parametrize("methods", [("predictive",), ("predictive", "sbc")])
def test_bags_that_test_the_posterior_are_counted(methods, tmp_path):
    report = left_out(methods=methods)
    data = report.replicates
    assert data is not None
    sampled = data.thetas[:, 0] < 0.5
    assert torch.equal(data.drawn, sampled)
    assert len(data) == 50
    assert f"{report.num_drawn} of 50 bags test the posterior" in words(report)
    assert report.to_dict()["num_drawn"] == report.num_drawn
    report.save(tmp_path / "report.npz")
    assert words(DiagnosticReport.load(tmp_path / "report.npz")) == words(report)


def test_a_true_parameter_that_chance_chose_is_not_worth_a_sentence():
    """With 4 draws per x, a fifth of the θ' are true parameters."""
    report = diagnose(
        posterior,
        PRIOR,
        simulator,
        num_simulations=60,
        num_posterior_samples=4,
        methods=("predictive", "sbc"),
        config=QUICK,
        seed=0,
        **QUIET,
    )
    assert report.num_drawn == 50
    assert "bags test the posterior" not in words(report)


@pytest.mark.parametrize("methods", [("predictive",), ("predictive", "sbc")])
def test_true_parameters_stand_in_where_the_posterior_cannot_be_sampled(methods):
    """Their xs stay in the data side: without them x would be selected because of q."""
    data = left_out(methods=methods, num_replicated_pairs=60).replicates
    assert data is not None
    assert data.mask.all()
    pairs = simulate(simulator, 60)  # the same seed: the same pairs
    thetas, xs = map(Tensor.tolist, pairs)
    truths = {tuple(x): theta for theta, x in zip(thetas, xs, strict=True)}
    stand_in = data.thetas[:, 0] >= 0.5
    assert 5 < int(stand_in.sum()) < 55
    for x, prime in zip(data.thetas[stand_in], data.xs[stand_in], strict=True):
        assert prime.tolist() == truths[tuple(x.tolist())]


def test_a_data_side_of_few_draws_is_left_out():
    report = left_out(num_replicated_pairs=22)
    assert list(report) == ["sbc"]
    assert report.replicates is None
    with (
        pytest.warns(UserWarning, match="could not be sampled"),
        pytest.raises(TooFewBags, match="of 22 bags on the data side have a draw"),
    ):
        diagnose(
            unsure,
            PRIOR,
            simulator,
            num_replicated_pairs=22,
            methods=("predictive",),
            max_lost=1.0,
            seed=0,
            **QUIET,
        )


def test_a_data_side_that_one_posterior_lacks_is_left_out_for_all():
    with pytest.warns(UserWarning, match="could not be sampled|is left out"):
        comparison = compare(
            {"unsure": unsure, "sure": posterior},
            PRIOR,
            simulator,
            num_simulations=60,
            num_posterior_samples=20,
            num_replicated_pairs=22,
            methods=("colt", "predictive"),
            config=QUICK,
            max_lost=1.0,
            seed=0,
            **QUIET,
        )
    assert list(comparison.sides) == ["colt"]


def test_the_share_of_parameters_that_cannot_be_simulated_is_reported():
    """The posterior draws parameters above 2, which the prior hardly has."""

    def fails(thetas):
        return torch.where(thetas[:, :1] > 2, torch.nan, simulator(thetas))

    def too_wide(xs, num):
        return xs / 2 + 2 * torch.randn(num, *xs.shape)

    with pytest.warns(UserWarning, match="failed"):
        report = diagnose(
            too_wide,
            PRIOR,
            fails,
            num_simulations=80,
            num_posterior_samples=20,
            methods=("predictive", "sbc"),
            num_replicated_pairs=80,
            config=QUICK,
            seed=0,
            **QUIET,
        )
    assert report.replicates is not None
    lost = 80 - len(report.replicates)
    assert 4 <= lost <= 30  # about 17%
    assert report.failed_share == lost / 80
    assert report.to_dict()["failed_share"] == lost / 80
    assert f"fails at {percent(lost / 80)} of the parameters" in words(report)


def test_a_report_on_data_alone_claims_nothing_about_parameters():
    def prior_again(xs, num):
        return torch.randn(num, *xs.shape)

    report = diagnose(
        prior_again, PRIOR, simulator, methods=("predictive",), seed=0, **QUIET
    )
    assert report.rejected
    text = words(report)
    assert "no simple error" not in text
    assert "true parameters" not in text
    assert "do not explain the x that they were drawn for" in text
    assert "Not tested: parameters." in text
    assert "make the posterior use x" in text


def words(report):
    return " ".join(str(report).split())


@pytest.mark.parametrize("number", [0, -1, 2.5])
def test_a_wrong_number_of_draws_is_named_by_every_front_door(number):
    thetas, xs = torch.zeros(60, 2), torch.zeros(60, 2)
    given = {"num_posterior_samples": number, **QUIET}
    both = {"a": posterior, "b": posterior}

    def simulator(thetas):
        raise AssertionError("the check comes before the work")

    for call in (
        lambda: draw(posterior, PRIOR, simulator, 60, number),
        lambda: diagnose(posterior, PRIOR, simulator, **given),
        lambda: compare(both, PRIOR, simulator, **given),
        lambda: compare(both, PRIOR, simulator, methods=("predictive",), **given),
        lambda: run_colt(thetas, xs, posterior, **given),
        lambda: run_colt(thetas, xs, posterior, simulator=simulator, **given),
    ):
        with pytest.raises(ValueError, match="num_posterior_samples: expected an int"):
            call()


def test_run_colt_with_a_simulator_tests_the_data_side():
    generator = torch.Generator().manual_seed(0)
    thetas = torch.randn(200, 2, generator=generator)
    xs = thetas + torch.randn(200, 2, generator=generator)

    def prior_again(xs, num):
        return torch.randn(num, *xs.shape)

    result = run_colt(thetas, xs, prior_again, simulator=simulator, seed=0, **QUIET)
    assert result.num_posterior_samples == 6
    assert result.p_value < 0.001
    assert run_colt(thetas, xs, posterior, simulator=simulator, seed=0).p_value > 0.01


def test_pairs_handed_in_may_have_a_simulator():
    generator = torch.Generator().manual_seed(0)
    thetas = torch.randn(120, 2, generator=generator)
    xs = thetas + torch.randn(120, 2, generator=generator)
    report = diagnose(
        posterior,
        simulator=simulator,
        thetas=thetas.numpy(),
        xs=xs.numpy(),
        num_posterior_samples=20,
        methods=("predictive", "sbc"),
        num_replicated_pairs=70,
        num_replicates=5,
        seed=0,
        **QUIET,
    )
    assert report.num_replicates == 350
    assert report.replicates is not None
    given = {tuple(x) for x in xs.tolist()}
    assert {tuple(x) for x in report.replicates.thetas.tolist()} <= given


@pytest.mark.parametrize("options", [{"num_replicates": 0}, {"simulator": None}])
def test_the_data_side_needs_a_simulator(options):
    generator = torch.Generator().manual_seed(0)
    thetas = torch.randn(60, 2, generator=generator)
    given = {"simulator": simulator, **options}
    with pytest.raises(ValueError, match='"predictive" compares x with replicates'):
        diagnose(posterior, thetas=thetas, xs=thetas, methods=("predictive",), **given)


@pytest.mark.parametrize("method", ["colt", "predictive"])
def test_an_embedding_net_that_does_not_fit_is_named(method):
    config = CoLTConfig(embedding_net=torch.nn.Linear(5, 2))
    given = {"num_simulations": 60, "num_posterior_samples": 20, "seed": 0, **QUIET}
    with pytest.raises(ValueError, match=r"embedding_net: it failed on xs of shape \("):
        diagnose(posterior, PRIOR, simulator, methods=(method,), config=config, **given)
