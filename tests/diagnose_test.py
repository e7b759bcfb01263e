import json
import math
from dataclasses import replace
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from configs import make_config
from saved_files import change_header
from torch import nn

from sbi_colt import CoLTConfig, DiagnosticReport, Draws, TestResult, diagnose
from sbi_colt.baselines import tarp
from sbi_colt.benchmark.posterior_zoo import exhibit, prior
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.diagnose import diagnose_draws
from sbi_colt.report.figures import plot_ranks
from sbi_colt.report.finding_text import feature_name
from sbi_colt.results.finding import Finding

QUICK = make_config(max_epochs=20, num_redraws=199)


def simulator(thetas):
    mixing = torch.tensor([[1.0, 0.5], [0.0, 1.0]])
    return thetas @ mixing.T + 0.5 * torch.randn_like(thetas)


def report_on(perturbation, alpha, **options):
    draws = GaussianTask(perturbation, alpha).draws(
        300, 100, torch.Generator().manual_seed(5)
    )
    options = {"config": QUICK, "seed": 0, "show_progress_bar": False} | options
    return diagnose_draws(draws, **options)


@pytest.fixture(scope="module")
def blind():
    return report_on("blind", 1.0)


@pytest.fixture(scope="module")
def correct():
    return report_on("covariance", 0.0)


@pytest.mark.usefixtures("unchanged_random_state")
def test_the_front_door_takes_a_prior_and_a_simulator():
    reports = [
        diagnose(
            exhibit("npe-mdn").posterior,
            prior(),
            simulator,
            num_simulations=120,
            num_posterior_samples=50,
            config=QUICK,
            seed=1,
            show_progress_bar=False,
        )
        for _ in range(2)
    ]
    assert list(reports[0]) == ["colt", "predictive", "sbc", "tarp", "c2st"]
    assert reports[0]["colt"].num_test == 84
    assert reports[0]["predictive"].num_posterior_samples == 6
    assert reports[0].num_replicates == 300
    for name in reports[0]:
        assert reports[0][name].p_value == reports[1][name].p_value


def test_the_front_door_takes_pairs(generator):
    thetas = torch.randn(100, 2, generator=generator)
    report = diagnose(
        exhibit("npe-mdn").posterior,
        thetas=thetas,
        xs=thetas + 0.5,
        num_posterior_samples=20,
        methods=("sbc", "coverage"),
        seed=1,
        show_progress_bar=False,
    )
    assert list(report) == ["sbc", "coverage"]
    assert report.colt is None


def test_a_posterior_is_sampled_once_for_all_methods(generator):
    calls = []

    def q(xs, num):
        calls.append(num)
        return xs + torch.randn(num, *xs.shape)

    thetas = torch.randn(60, 2, generator=generator)
    diagnose(q, thetas=thetas, xs=thetas + 1, config=QUICK, show_progress_bar=False)
    assert calls == [500, 2, 2]  # the last two look for a seed of its own


def test_a_correct_posterior_passes(correct):
    assert not correct.rejected
    assert correct.findings == ()
    assert "not rejected at the 5% level" in str(correct)
    assert "What is wrong" not in str(correct)


def test_a_blind_posterior_fails_colt_but_not_sbc_and_tarp(blind):
    assert blind.rejected
    assert blind["colt"].p_value <= 0.01  # 199 re-draws
    assert min(blind["sbc"].p_value, blind["tarp"].p_value) > 0.01
    assert "it ignores x" in str(blind)
    assert "check that x reaches the network" in str(blind).replace("\n", " ")


def test_the_cost_counts_every_step(generator):
    thetas = torch.randn(60, 1, generator=generator)
    report = diagnose(
        lambda xs, num: xs + 5 + torch.randn(num, *xs.shape),
        thetas=thetas,
        xs=thetas + 1,
        methods=("sbc",),
        num_posterior_samples=20,
        show_progress_bar=False,
    )
    steps = ["simulation", "sampling", "sbc", "findings"]
    assert list(report.cost.seconds) == steps


def test_no_figure_stays_open(blind, tmp_path):
    before = plt.get_fignums()
    figure = blind.plot()
    blind.to_html(tmp_path / "page.html")
    plot_ranks(blind["sbc"])
    assert plt.get_fignums() == before
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_page_that_cannot_be_written_leaves_the_old_one(blind, tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")
    monkeypatch.setattr("os.replace", raise_os_error)
    with pytest.raises(OSError, match="disk"):
        blind.to_html(path)
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == "old"


def raise_os_error(*arguments):
    raise OSError("the disk is full")


def test_each_term_is_explained_once(blind):
    text = str(blind).replace("\n", " ")
    assert text.count("is the largest difference, over all regions that") == 1
    assert (
        text.count("A probe is a function that gives a number to each parameter") == 1
    )
    assert text.count("a p-value is the probability") == 1


def test_the_text_fits_a_terminal(blind, correct):
    for text, width in ((str(blind), 80), (str(correct), 80), (blind.summary(39), 39)):
        assert max(map(len, text.splitlines())) <= width


def test_the_distance_is_said_with_its_certificate(blind):
    text = str(blind).replace("\n", " ")
    lower = blind["colt"].distance_lower
    assert lower == blind.distance_lower > 0
    assert f"parameters: at least {lower:.0%} of posterior mass is misplaced" in text


def test_names_are_used(generator):
    noise = torch.randn(101, 300, 3, generator=generator)
    xs = torch.randn(300, 2, generator=generator)
    samples = noise[1:] * torch.tensor([1.0, 1.5, 1.0])
    report = diagnose_draws(
        Draws(noise[0], xs, samples),
        methods=("sbc", "coverage"),
        parameter_names=["mass", "spin", "charge"],
        seed=0,
        show_progress_bar=False,
    )
    (finding,) = report.findings
    assert (finding.family, finding.parameters) == ("width", (1,))
    text = str(report).replace("\n", " ")
    assert "What is wrong: spin is 1." in text
    assert f"(correcting it would gain {finding.gain:.2g} nats)." in text
    assert "train for longer" in text


def test_the_verdict_controls_the_family():
    """Three tests at 5% each would raise a false alarm far more often."""
    alarms = 0
    config = CoLTConfig(probes=("mahalanobis",))
    for i in range(200):
        draws = GaussianTask("mean", 0.0).draws(
            60, 20, torch.Generator().manual_seed(i)
        )
        alarms += diagnose_draws(
            draws,
            methods=("sbc", "tarp", "coverage"),
            config=config,
            seed=i,
            show_progress_bar=False,
        ).rejected
    assert alarms <= 20  # the upper end of the 99% band; Holm is conservative


def test_to_dict_is_ready_for_json(blind):
    plain = json.loads(json.dumps(blind.to_dict()))
    assert plain["rejected"] is True
    (ball,) = [probe for probe in blind.colt.probes if probe.name == "ball"]
    assert plain["methods"]["colt"]["probes"]["ball"]["p_value"] == ball.p_value
    assert plain["findings"][0]["family"] == "shift with x"
    assert plain["findings"][0]["pattern"] == "blind"


def test_methods_of_ones_own_join_in():
    def first(draws):
        return 0.5

    def second(draws):
        return {"p_value": 0.25, "statistic": 3.0}

    def third(draws):
        return TestResult("any", 0.75, 1.0)

    report = report_on("mean", 0.0, methods=("tarp", first, second, third))
    assert list(report) == ["tarp", "first", "second", "third"]
    assert report["second"].statistic == 3.0
    assert report["third"].name == "third"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("good", "the p-value .good"),
        (1.5, "returned a wrong p_value: expected .* got 1.5"),
        (float("nan"), "returned a wrong p_value: expected .* got nan"),
    ],
)
def test_what_a_method_of_ones_own_returns_is_checked(value, message):
    def mine(draws):
        return value

    with pytest.raises((TypeError, ValueError), match=f"methods: 'mine'.*{message}"):
        report_on("mean", 0.0, methods=(mine,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ("colt", "sbs")}, "methods: unknown name 'sbs'"),
        ({"methods": ()}, "methods: expected at least one"),
        ({"methods": ("sbc", "sbc")}, "methods: 'sbc' occurs twice"),
        ({"methods": (3,)}, "methods: expected names, functions"),
        ({"parameter_names": ["a"]}, "parameter_names: expected 3 different"),
        ({"parameter_names": list("aab")}, "parameter_names: expected 3 different"),
        ({"parameter_names": 5}, "parameter_names: expected 3 different"),
        ({"parameter_names": ["a", "", "c"]}, "parameter_names: expected 3 different"),
        ({"level": 5}, "level: expected"),
        ({"level": "a"}, "level: expected"),
        ({"methods": (lambda d: 1, lambda d: 1)}, "'<lambda>' occurs twice; name"),
        ({"methods": (("colt", lambda d: 1),)}, "'colt' is the name of a method"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        report_on("mean", 0.0, **options)


@pytest.mark.parametrize(
    "given",
    [{}, {"prior": prior()}, {"thetas": torch.zeros(3, 2)}],
    ids=["nothing", "no simulator", "no xs"],
)
def test_pairs_or_a_simulator_are_needed(given):
    with pytest.raises(ValueError, match="expected either thetas and xs, or prior"):
        diagnose(exhibit("npe-mdn").posterior, **given)


def test_an_unknown_method_is_named_in_the_error(correct):
    with pytest.raises(KeyError, match="'l-c2st' is not in this report"):
        correct["l-c2st"]


def test_where_names_the_feature_of_x(generator):
    """q is far too wide where x[1] > 0, and right elsewhere."""
    xs = torch.randn(600, 3, generator=generator)
    noise = torch.randn(101, 600, 2, generator=generator)
    width = torch.where(xs[:, 1:2] > 0, 2.5, 1.0)
    report = diagnose_draws(
        Draws(noise[0], xs, width * noise[1:]),
        config=QUICK,
        seed=0,
        show_progress_bar=False,
    )
    (finding,) = report.findings
    assert (finding.family, finding.feature, finding.where) == (
        "width with x",
        1,
        "high",
    )
    text = str(report).replace("\n", " ")
    assert "times too wide (under-confident) where x[1] is high" in text
    assert "the error depends on x[1]" in text


def test_a_loaded_report_says_the_same(blind, tmp_path):
    blind.save(tmp_path / "report.npz")
    loaded = DiagnosticReport.load(tmp_path / "report.npz")
    assert str(loaded) == str(blind)
    assert loaded.to_dict() == blind.to_dict()
    x_o = blind.colt.evidence.xs[3]
    assert loaded.colt.at(x_o) == blind.colt.at(x_o)
    ours, theirs = loaded.colt.localize(), blind.colt.localize()
    torch.testing.assert_close(ours.centres, theirs.centres)
    torch.testing.assert_close(ours.radii, theirs.radii)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h["results"]["sbc"].update(p_value=7), "sbc: p_value.*got 7"),
        (lambda h: h["results"]["tarp"].update(p_value="0"), "tarp: p_value.*number"),
        (lambda h: h["results"]["colt"].update(p_value=math.nan), "colt: p_value"),
        (lambda h: h["results"]["colt"].update(distance=math.inf), "colt: distance"),
        (
            lambda h: h["results"]["colt"].update(num_test=3),
            "evidence: expected 3 test",
        ),
        (lambda h: h["results"]["colt"]["probes"][0].update(sign=2), "sign: expected"),
        (
            lambda h: h["results"]["colt"].update(leading="none"),
            "leading: expected one",
        ),
        (lambda h: h["results"].clear(), "results: expected at least one"),
        (lambda h: h.update(level=5), "level: expected a number in"),
        (lambda h: h.update(names=list("abcd")), "names: expected"),
        (lambda h: h.pop("cost"), "expected an entry .cost."),
        (lambda h: h["cost"]["seconds"].update(sbc=-1), "seconds of sbc: expected"),
        (lambda h: h["findings"][0].update(family="odd"), "findings\\[0\\]: family"),
        (lambda h: h["findings"][0].update(p_value=-1), "findings\\[0\\]: p_value"),
        (lambda h: h["findings"][0].update(parameters=[9]), "parameters: expected pos"),
        (
            lambda h: h["findings"][0].update(interval=[0.5]),
            "findings\\[0\\]: interval",
        ),
        (lambda h: h["findings"][0].update(where="up"), "findings\\[0\\]: where"),
    ],
)
def test_a_report_that_was_tampered_with_is_refused(blind, tmp_path, change, message):
    path = tmp_path / "report.npz"
    blind.save(path)
    change_header(path, change)
    with pytest.raises(ValueError, match=f"report.npz: .*{message}"):
        DiagnosticReport.load(path)


def test_a_loaded_report_plots_the_same(blind, tmp_path):
    blind.save(tmp_path / "report.npz")
    loaded = DiagnosticReport.load(tmp_path / "report.npz")
    pictures = []
    for report in (blind, loaded):
        figure = report.plot()
        figure.canvas.draw()
        pictures.append(bytes(figure.canvas.buffer_rgba()))
    assert pictures[0] == pictures[1]


def test_a_report_that_one_parameter_leads_survives_a_file(tmp_path, generator):
    """ "marginal[0]" is one of the probes that the name "marginal" stands for."""
    thetas = torch.randn(100, 3, generator=generator)
    noise = torch.randn(20, 100, 3, generator=generator) + torch.tensor([1.0, 0, 0])
    config = CoLTConfig(probes=("mahalanobis", "marginal"))
    draws = Draws(thetas, torch.zeros(100, 1), noise)
    report = diagnose_draws(
        draws, methods=("colt",), config=config, seed=0, show_progress_bar=False
    )
    report.save(tmp_path / "report.npz")
    loaded = DiagnosticReport.load(tmp_path / "report.npz").colt
    assert loaded.leading.name == "marginal[0]"
    assert torch.equal(loaded.localize().radii, report.colt.localize().radii)


def test_a_report_with_an_embedding_net_needs_it_again(tmp_path):
    net = nn.Linear(3, 2)
    report = report_on("mean", 0.3, config=replace(QUICK, embedding_net=net))
    report.save(tmp_path / "report.npz")
    with pytest.raises(ValueError, match="embedding_net: expected Linear"):
        DiagnosticReport.load(tmp_path / "report.npz")
    loaded = DiagnosticReport.load(
        tmp_path / "report.npz", embedding_net=nn.Linear(3, 2)
    )
    x_o = report.colt.evidence.xs[0]
    assert loaded.colt.at(x_o) == report.colt.at(x_o)


def test_methods_of_ones_own_have_names_and_survive(tmp_path):
    ranks = np.linspace(0.01, 0.99, 300)
    report = report_on(
        "covariance",
        0.0,
        methods=(
            ("first", lambda draws: TestResult("x", 0.4, math.inf, ranks, {"a": [1]})),
            ("second", partial(tarp, references=np.zeros((300, 3)))),
        ),
    )
    assert list(report) == ["first", "second"]
    plain = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert plain["methods"]["first"]["statistic"] is None
    assert plain["methods"]["first"]["details"] == {"a": [1]}
    report.save(tmp_path / "report.npz")
    assert str(DiagnosticReport.load(tmp_path / "report.npz")) == str(report)
    assert [ax.get_title() for ax in report.plot().axes[:2]] == ["FIRST", "SECOND"]


def test_repeated_pairs_are_refused_whatever_the_methods():
    draws = GaussianTask("covariance", 0.0).draws(50, 10, torch.Generator())
    thetas, xs = draws.thetas.repeat(2, 1), draws.xs.repeat(2, 1)
    with pytest.raises(ValueError, match="50 of 100 pairs are repeats"):
        diagnose(
            lambda xs, num: torch.zeros(num, len(xs), 3),
            thetas=thetas,
            xs=xs,
            methods=("sbc",),
        )


def test_names_are_checked_before_sampling():
    def never(xs, num):
        raise AssertionError

    with pytest.raises(ValueError, match="parameter_names: expected 2 different"):
        diagnose(
            never,
            thetas=torch.randn(20, 2),
            xs=torch.randn(20, 2),
            parameter_names=["a"],
        )


def test_levels_are_written_with_their_digits(correct):
    assert "at the 0.1% level" in str(replace(correct, level=0.001))
    assert "at the 2.5% level" in str(replace(correct, level=0.025))


def test_methods_beside_the_verdict_are_named_and_claim_nothing():
    def sure(draws):
        return 1e-9

    report = report_on("covariance", 0.0, methods=("colt", sure))
    assert report.p_value == report["colt"].p_value
    assert not report.rejected
    assert "Beside the verdict: sure alone would reject" in str(report)
    assert "What is wrong" not in str(report)


def test_features_of_images_have_their_place():
    assert feature_name(7, (1, 3, 4)) == "x[0, 1, 3]"
    assert feature_name(2, (5,)) == "x[2]"


def test_methods_of_ones_own_cannot_change_the_draws():
    def spoil(own):
        own.samples.mul_(9)
        return 0.5

    alone = report_on("mean", 0.0, methods=("sbc",))
    after = report_on("mean", 0.0, methods=(spoil, "sbc"))
    assert after["sbc"].p_value == alone["sbc"].p_value


def test_numbers_of_any_size_keep_their_columns():
    def huge(own):
        return {"p_value": 1e-9, "statistic": 1e14}

    line = str(report_on("mean", 0.0, methods=(huge,))).splitlines()[3]
    assert line.split() == ["huge", "1e-09", "1e+14"]


def test_findings_without_a_size_are_ready_for_json():
    report = report_on("mean", 0.0, methods=("sbc",))
    report = replace(report, findings=(Finding("shift", 0.001),))
    plain = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert plain["findings"][0]["size"] is None
    assert plain["findings"][0]["interval"] == [None, None]
