"""Replicates: how many, at which parameters, failures, seeds and checkpoints."""

import numpy as np
import pytest
import torch
from stand_ins import PRIOR, simulate
from torch import Tensor

from sbi_colt import (
    CoLTConfig,
    DiagnosticReport,
    Draws,
    compare,
    diagnose,
    draw,
    draw_posterior_samples,
    run_colt,
)
from sbi_colt.cli import main
from sbi_colt.draws import check_randomness, make_predictive
from sbi_colt.report.text import percent
from sbi_colt.sampling.data_side import add_data_side
from sbi_colt.sampling.draw import make_draws
from sbi_colt.sampling.pairs import find_simulator
from sbi_colt.sampling.replicates import (
    ReplicateOptions,
    TooFewBags,
    choose_pairs,
    draws_of_posterior,
    replicate,
)

QUIET = {"show_progress_bar": False}
QUICK = CoLTConfig(probes=("mahalanobis",), data_probes=("mahalanobis",))


def simulator(thetas):
    return thetas + torch.randn_like(thetas)


def posterior(xs, num):
    return xs / 2 + 0.5**0.5 * torch.randn(num, *xs.shape)


def made(function=simulator, num_simulations=60, num_posterior_samples=10, **options):
    """The draws of a whole run, with a data side."""
    settings = {
        "seed": 1,
        "device": "cpu",
        "num_workers": 1,
        "num_replicates": 4,
        **QUIET,
        **options,
    }
    return make_draws(
        posterior,
        PRIOR,
        function,
        None,
        None,
        num_simulations,
        num_posterior_samples,
        **settings,
    )[0]


def replicated(function, thetas, xs=None, number=3, **options):
    xs = thetas + 1.0 if xs is None else xs
    known = find_simulator(function, None, thetas, 0)
    return replicate(known, xs, thetas, ReplicateOptions(number, **QUIET, **options))


def test_roles_are_swapped():
    data = made().predictive
    assert data is not None
    assert data.thetas.shape == (50, 2)
    assert data.samples.shape == (4, 50, 2)
    assert data.xs.shape == (50, 2)


@pytest.mark.parametrize(
    ("num_pairs", "asked", "expected"),
    [(1000, None, 150), (5000, None, 750), (300, None, 50), (30, None, 30), (9, 4, 4)],
)
def test_a_tenth_of_the_pairs_has_replicates(num_pairs, asked, expected):
    chosen = choose_pairs(num_pairs, ReplicateOptions(9, asked))
    assert len(chosen.unique()) == expected


def test_pairs_are_chosen_at_random():
    """The caller may have sorted them by x."""
    chosen = choose_pairs(1000, ReplicateOptions())
    assert 400 < float(chosen.double().mean()) < 600


def test_theta_is_any_member_of_the_bag():
    """With one draw per x, θ' is the true parameter half of the time."""
    thetas, samples = torch.zeros(2000, 1), torch.ones(1, 2000, 1)
    xs = torch.randn(2000, 1, generator=torch.Generator().manual_seed(0))
    draws = Draws(thetas, xs, samples)
    found, drawn = draws_of_posterior(draws, torch.arange(2000), thetas, seed=0)
    assert 930 <= int(found.sum()) <= 1070
    assert drawn.all()


def test_true_parameters_stand_in_where_there_are_no_draws():
    xs = torch.randn(30, 1, generator=torch.Generator().manual_seed(0))
    draws = Draws(torch.zeros(30, 1), xs, torch.ones(999, 30, 1))
    kept = draws.select(torch.arange(10, 30))
    given = torch.full((30, 1), 7.0)
    found, drawn = draws_of_posterior(kept, torch.arange(30), given, seed=0)
    assert (found[:10] == 7).all()
    assert not drawn[:10].any()
    assert int((found[10:] == 1).sum()) >= 18


def test_each_posterior_draw_is_simulated():
    """Data that tell their parameter: every replicate belongs to its θ'."""
    thetas = 10 * torch.arange(30.0).unsqueeze(1)
    data = replicated(lambda t: t + 0.01 * torch.randn_like(t), thetas)
    assert float((data.samples - data.xs).abs().max()) < 0.1


def one_at_a_time(theta):
    assert theta.ndim == 1
    return theta + torch.randn(2)


@pytest.mark.parametrize("function", [simulator, one_at_a_time])
def test_workers_and_kinds_of_simulators(function):
    alone, together = (made(function, num_workers=n).predictive for n in (1, 2))
    assert alone is not None
    assert together is not None
    assert torch.equal(alone.samples, together.samples)


def test_data_of_any_shape_are_flattened():
    def images(thetas):
        return thetas[:, :1, None] + torch.randn(len(thetas), 3, 4)

    thetas = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    data = replicated(images, thetas, images(thetas))
    assert data.samples.shape == (3, 30, 12)


def test_failures_are_made_again_at_the_same_parameters():
    def fails(thetas):
        xs = thetas + torch.rand_like(thetas)
        return torch.where(xs - thetas < 0.5, xs, torch.nan)

    thetas = torch.arange(30.0).unsqueeze(1)
    with pytest.warns(UserWarning, match=r"\d+ simulations at posterior draws failed"):
        data = replicated(fails, thetas, thetas + 0.2, number=5)
    assert data.mask.all()
    gaps = data.samples - data.xs
    assert float(gaps.min()) >= 0
    assert float(gaps.max()) <= 0.5


def test_a_parameter_at_which_the_simulator_fails_loses_its_pair():
    def fails(thetas):
        return torch.where(thetas < 5, torch.nan, simulator(thetas))

    thetas = torch.arange(40.0).unsqueeze(1)
    with pytest.warns(UserWarning, match="5 of 40 pairs were left out"):
        data = replicated(fails, thetas, simulator(thetas))
    assert (~data.mask).nonzero().flatten().tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(data.xs, thetas[5:])


def test_a_simulator_that_nearly_always_fails_is_an_error():
    def fails(thetas):
        return torch.where(thetas > 5, torch.nan, simulator(thetas))

    thetas = torch.arange(40.0).unsqueeze(1)
    with pytest.raises(TooFewBags, match="posterior: .* at 34 of 40") as caught:
        replicated(fails, thetas)
    assert caught.value.failed_share == 34 / 40


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


def test_more_replicated_pairs_than_pairs_are_named():
    with pytest.warns(UserWarning, match="only 60 pairs, so 60 have replicates"):
        data = made(num_replicated_pairs=61).predictive
    assert data is not None
    assert len(data) == 60


def seeded(thetas):
    generator = torch.Generator().manual_seed(3)
    return thetas + torch.randn(thetas.shape, generator=generator)


@pytest.mark.parametrize("function", [seeded, lambda thetas: 2 * thetas])
@pytest.mark.parametrize("number", [1, 3])
def test_a_simulator_without_randomness_is_refused(function, number):
    thetas = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="sets a random seed itself"):
        replicated(function, thetas, function(thetas), number)


@pytest.mark.parametrize("number", [1, 2, 9])
def test_a_seed_in_the_simulator_is_found_in_a_whole_run(number):
    """Pairs and replicates are simulated in calls of different sizes."""
    with pytest.raises(ValueError, match="sets a random seed itself"):
        made(seeded, num_simulations=300, num_replicates=number)


class OwnGenerator:
    """A simulator that holds a generator, which each worker gets a copy of."""

    def __init__(self):
        self.generator = np.random.default_rng(0)

    def __call__(self, theta):
        assert theta.ndim == 1
        return np.asarray(theta) + self.generator.normal(size=2)


def test_a_generator_that_workers_copy_is_named():
    with pytest.raises(ValueError, match="copied to each worker"):
        made(OwnGenerator(), num_workers=2)
    assert made(OwnGenerator()).predictive is not None


def test_some_identical_rounds_are_enough():
    """As of a simulator with the seed int(time.time()): a few rounds each second."""
    rounds = torch.randn(3, 50, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="2 of 4 simulations .* identical"):
        check_randomness(rounds[[0, 1, 1, 2]])
    counts = (rounds > 1).float()
    with pytest.raises(ValueError, match="2 of 4 simulations .* identical"):
        check_randomness(counts[[0, 1, 1, 2]])


def test_data_that_hardly_ever_differ_are_not_taken_for_a_fixed_seed():
    """The sign of θ, wrong in one of a hundred: many rounds are identical by chance."""
    generator = torch.Generator().manual_seed(0)
    identical = 0
    for _ in range(200):
        signs = torch.randn(1, 50, 1, generator=generator).sign()
        right = torch.rand(6, 50, 1, generator=generator) > 0.01
        rounds = torch.where(right, signs, -signs)
        identical += len(rounds.unique(dim=0)) < 6
        if len(rounds.unique(dim=0)) > 1:
            check_randomness(rounds)
    assert identical > 150


def rare_counts(rate):
    return lambda thetas: torch.poisson(torch.full((len(thetas), 1), rate))


@pytest.mark.parametrize("number", [1, 3])
def test_rare_counts_are_not_taken_for_a_fixed_seed(number):
    thetas = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    data = replicated(rare_counts(1e-6), thetas, torch.zeros(30, 1), number)
    assert not data.samples.any()


@pytest.mark.parametrize("rate", [0.003, 0.03, 0.3])
def test_counts_of_any_rate_are_not_taken_for_a_fixed_seed(rate):
    """With two rounds, the fewest, chance makes them identical most often."""
    thetas, simulate = torch.zeros(20, 1), rare_counts(rate)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(2000):
            check_randomness([simulate(thetas), simulate(thetas)])
            check_randomness([simulate(thetas) for _ in range(6)])


def test_another_simulator_than_that_of_the_pairs_is_named():
    thetas = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"expected data of shape \(3,\)"):
        replicated(simulator, thetas, torch.randn(30, 3))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_replicates": -1}, "num_replicates: expected an integer >= 0"),
        ({"num_replicates": 2.5}, "num_replicates"),
        ({"num_replicated_pairs": 0}, "num_replicated_pairs: expected an integer >= 1"),
    ],
)
def test_wrong_numbers_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        made(**options)


def test_a_killed_run_goes_on_with_the_same_replicates(tmp_path):
    folder = tmp_path / "run"
    calls, last = [], [0]

    def dies(thetas):
        calls.append(len(thetas))
        if len(calls) == last[0]:
            raise KeyboardInterrupt
        return simulator(thetas)

    whole = made(dies, checkpoint=tmp_path / "whole").predictive
    num_calls, last[0] = len(calls), 2 * len(calls)  # in the last round
    with pytest.raises(KeyboardInterrupt):
        made(dies, checkpoint=folder)
    assert len(list((folder / "replicates").glob("round-*.npz"))) == 3
    resumed = made(dies, checkpoint=folder).predictive
    assert resumed is not None
    assert whole is not None
    assert torch.equal(resumed.samples, whole.samples)
    assert len(calls) < 3 * num_calls - 2  # three rounds were not made again


def test_a_checkpoint_of_another_simulator_is_refused(tmp_path):
    thetas = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    replicated(simulator, thetas, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="holds draws of another simulator"):
        replicated(lambda t: simulator(t) + 3, thetas, checkpoint=tmp_path)


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
        ({}, 150),
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


def test_draws_with_a_data_side_survive_a_file(tmp_path):
    draws = made()
    draws.save(tmp_path / "draws.npz")
    loaded = Draws.load(tmp_path / "draws.npz")
    assert draws.predictive is not None
    assert loaded.predictive is not None
    for name in ("thetas", "xs", "samples"):
        before = getattr(draws.predictive, name)
        assert torch.equal(getattr(loaded.predictive, name), before)


def test_replicates_of_the_first_xs_need_no_other_array(tmp_path):
    rng = np.random.default_rng(0)
    thetas, xs = rng.normal(size=(40, 2)), rng.normal(size=(40, 3))
    replicates = rng.normal(size=(5, 30, 3))
    path = tmp_path / "data.npz"
    np.savez(
        path,
        thetas=thetas,
        xs=xs,
        thetas_of_posterior=thetas[:30],
        replicates=replicates,
    )
    draws = Draws.load(path)
    assert draws.num_posterior_samples == 0
    assert draws.predictive is not None
    assert np.array_equal(draws.predictive.thetas.numpy(), xs[:30])
    np.savez(path, thetas=thetas, xs=xs, replicates=replicates)
    with pytest.raises(ValueError, match="missing thetas_of_posterior"):
        Draws.load(path)


def saved(path, num_replicated=30, **arrays):
    """A file of another framework, with a data side."""
    rng = np.random.default_rng(0)
    given = {
        "thetas": rng.normal(size=(40, 2)),
        "xs": rng.normal(size=(40, 3)),
        "samples": rng.normal(size=(10, 40, 2)),
        "thetas_of_posterior": rng.normal(size=(num_replicated, 2)),
        "replicates": rng.normal(size=(5, num_replicated, 3)),
    } | arrays
    np.savez(path, **given)
    return given


def test_draws_of_the_data_side_must_be_further_ones(tmp_path):
    path = tmp_path / "draws.npz"
    samples = saved(path)["samples"]
    saved(path, thetas_of_posterior=samples[3, :30])
    with pytest.raises(ValueError, match="30 of 30 are among samples"):
        Draws.load(path)
    coins = samples > 0  # discrete draws agree by chance
    saved(path, samples=coins, thetas=coins[0], thetas_of_posterior=coins[3, :30])
    assert Draws.load(path).predictive is not None


def test_pairs_with_a_nan_are_dropped_whole(tmp_path):
    """If x or a replicate is not finite, the pair is dropped: members count alike."""
    path = tmp_path / "draws.npz"
    given = saved(path)
    given["xs"][2, 0] = given["replicates"][4, 7, 1] = np.nan
    np.savez(path, **given)
    with (
        pytest.warns(UserWarning, match="dropped 1 of 40 pairs whose x"),
        pytest.warns(UserWarning, match="dropped 2 of 30 pairs of the data side"),
    ):
        data = Draws.load(path).predictive
    assert data is not None
    kept = np.delete(np.arange(30), [2, 7])
    assert np.array_equal(data.thetas, given["xs"][kept])
    assert np.array_equal(data.xs, given["thetas_of_posterior"][kept])


def test_dropping_pairs_with_a_nan_is_exact(within_binomial_band):
    """Large data are NaN in xs and replicates alike: ranks stay uniform."""
    low = 0
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        xs, *replicates = torch.randn(4, 40, 1, generator=generator)
        members = torch.stack([xs, *replicates])
        members[members > 1] = torch.nan
        thetas = torch.zeros(40, 1)
        with pytest.warns(UserWarning, match="dropped"):
            data = make_predictive(members[0], thetas, members[1:])
        low += int((data.thetas[0] < data.samples[:, 0]).all())
    assert within_binomial_band(low, 100, 1 / 4)


def test_a_file_with_few_replicated_pairs_is_refused(tmp_path, capsys):
    saved(tmp_path / "draws.npz", num_replicated=19)
    assert main(["report", str(tmp_path / "draws.npz"), "--quiet"]) == 2
    assert "expected at least 20 xs with replicates, got 19" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["colt", "predictive"])
def test_an_embedding_net_that_does_not_fit_is_named(method):
    config = CoLTConfig(embedding_net=torch.nn.Linear(5, 2))
    given = {"num_simulations": 60, "num_posterior_samples": 20, "seed": 0, **QUIET}
    with pytest.raises(ValueError, match=r"embedding_net: it failed on xs of shape \("):
        diagnose(posterior, PRIOR, simulator, methods=(method,), config=config, **given)


@pytest.mark.parametrize(
    ("replicates", "thetas", "words"),
    [
        ((4, 9, 2), (9, 1), "replicates: expected shape"),
        ((4, 10, 3), (10, 1), "replicates: expected shape"),
        ((0, 10, 2), (10, 1), "replicates: expected shape"),
        ((4, 10, 2), (9, 1), "thetas_of_posterior: expected shape"),
        ((4, 10, 2), (10,), "thetas_of_posterior: expected shape"),
    ],
)
def test_arrays_that_do_not_fit_are_named(replicates, thetas, words):
    with pytest.raises(ValueError, match=words):
        make_predictive(torch.zeros(10, 2), torch.zeros(thetas), torch.rand(replicates))


def test_methods_of_parameters_need_draws():
    data = make_predictive(torch.rand(30, 2), torch.rand(30, 1), torch.rand(4, 30, 2))
    draws = Draws(torch.rand(30, 1), torch.rand(30, 2), None).with_predictive(data)
    from sbi_colt.diagnose import diagnose_draws

    with pytest.raises(ValueError, match="there are no posterior draws"):
        diagnose_draws(draws, methods=("colt", "predictive"), **QUIET)
    assert list(diagnose_draws(draws, seed=0, **QUIET)) == ["predictive"]


def test_all_draws_are_on_the_parameter_side_too():
    """A data side changes nothing on the other one."""
    assert torch.equal(made().samples, made(num_replicates=0).samples)
    xs = made(num_replicates=0).xs
    drawn = draw_posterior_samples(posterior, xs, 10, seed=1, **QUIET)
    assert torch.equal(made().samples, drawn)


def test_options_reach_add_data_side():
    draws = made(num_replicates=0)
    known = find_simulator(simulator, PRIOR, None, 0)
    assert known is not None
    options = ReplicateOptions(2, 20, seed=5, **QUIET)
    data = add_data_side(draws, draws.thetas, draws.xs, known, options).predictive
    assert data is not None
    assert data.samples.shape == (2, 20, 2)
