"""Findings in words."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from sbi_colt import CoLTConfig, diagnose
from sbi_colt.report.finding_text import advise, describe, describe_all
from sbi_colt.results.finding import FAMILIES, Finding

NAMES = ("alpha", "beta", "gamma")


def finding(family, size, unit="share", parameters=(2,), sign=1, **others):
    return Finding(
        family, 0.01, parameters, size=size, unit=unit, sign=sign, gain=0.24, **others
    )


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (finding("width", 1.4, "ratio"), "gamma is 1.4 times too wide"),
        (finding("width", 0.5, "ratio", sign=-1), "gamma is 2 times too narrow"),
        (
            finding("width", 1.4, "ratio", (0, 1, 2)),
            "it is 1.4 times too wide (under-confident)",
        ),
        (
            finding("shift", -0.5, "standard deviations", sign=-1, own_units=-30.0),
            "gamma is too low by 0.5 posterior standard deviations (30 in its own "
            "units)",
        ),
        (
            finding("correlation", -0.7, "correlation", (0, 2), -1),
            "the correlation of alpha and gamma is 0.7 too low",
        ),
        (
            finding("width with x", 2.0, "ratio", feature=1, where="high"),
            "gamma is 2 times too wide where x[1] is high",
        ),
        (
            finding("missing", 0.15, parameters=(), sign=-1),
            "it misses a region, perhaps a mode, with 15% of the true parameters",
        ),
        (
            finding("shift with x", 1.0, "standard deviations", pattern="blind"),
            "it ignores x",
        ),
    ],
)
def test_findings_in_words(found, text):
    assert describe(found, NAMES, (3,)) == text


_SMALL = "standard deviations"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            finding("width", 1.05, "ratio", interval=(0.9, 1.2)),
            "the width of gamma is wrong, but its size is unclear (between 0.9 and 1.2 "
            "times the right one)",
        ),
        (
            finding("width", 1.05, "ratio", (0, 1, 2), interval=(0.9, 1.2)),
            "the width of all parameters is wrong, but its size is unclear (between "
            "0.9 and 1.2 times the right one)",
        ),
        (
            finding("shift", 0.05, _SMALL, own_units=3.0, interval=(-0.1, 0.2)),
            "the mean of gamma is wrong, but its size is unclear (between 0.1 too low "
            "and 0.2 too high, in posterior standard deviations)",
        ),
        (
            finding("correlation", 0.1, "correlation", (0, 2), interval=(-0.1, 0.3)),
            "the correlation of alpha and gamma is wrong, but its size is unclear "
            "(between 0.1 too low and 0.3 too high)",
        ),
        (
            finding("shape", 0.53, pattern="skew", interval=(0.45, 0.6)),
            "the shape of gamma is wrong",
        ),
        (
            finding("radial", 0.53, parameters=(), interval=(0.45, 0.6)),
            "the shape of all parameters is wrong",
        ),
        (
            finding(
                "shift with x",
                0.1,
                _SMALL,
                feature=1,
                where="high",
                interval=(-0.1, 0.3),
            ),
            "the mean of gamma is wrong in a way that depends on x[1]",
        ),
    ],
)
def test_an_unclear_size_is_not_said(found, text):
    assert describe(found, NAMES, (3,)) == text
    assert ";" not in text  # it separates findings


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            finding("width", 1.04, "ratio", interval=(1.01, 1.08)),
            "gamma is 1.04 times too wide",
        ),
        (
            finding("width", 0.996, "ratio", sign=-1, interval=(0.993, 0.998)),
            "gamma is 1.004 times too narrow",
        ),
        (
            finding("shape", 0.504, pattern="skew", interval=(0.501, 0.507)),
            "it misses the skew of gamma: 50.4% of true values are below its median",
        ),
        (
            finding("missing", 0.004, parameters=(), interval=(0.001, 0.01)),
            "it misses a region, perhaps a mode, with 0.4% of the true parameters",
        ),
    ],
)
def test_a_small_size_is_not_rounded_to_none(found, text):
    assert describe(found, NAMES) == text


@pytest.mark.parametrize(
    ("size", "interval", "words"),
    [
        (30.0, (9.2, 1000.0), "at least 9.2 times too wide"),
        (0.002, (0.001, 0.02), "at least 50 times too narrow"),
    ],
)
def test_an_open_interval_has_one_end(size, interval, words):
    sign = 1 if size > 1 else -1
    found = finding("width", size, "ratio", sign=sign, interval=interval)
    assert describe(found, NAMES) == f"gamma is {words}"


def test_the_gain_is_said_once_for_each():
    both = describe_all(
        [
            finding("width", 1.4, "ratio"),
            finding("shift", 0.5, "standard deviations", (0,)),
        ],
        NAMES,
    )
    assert both[0] == "gamma is 1.4 times too wide (correcting it would gain 0.24 nats)"
    assert both[1].endswith(" (correcting it would gain a further 0.24 nats)")
    assert not any(";" in text for text in both)  # it separates findings


def test_the_gain_of_an_error_with_x_is_not_that_of_a_third_of_x():
    found = finding("width with x", 2.0, "ratio", feature=1, where="high")
    assert describe_all([found], NAMES, (3,)) == [
        "gamma is 2 times too wide where x[1] is high "
        "(correcting it at every x would gain 0.24 nats)"
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_has_words_and_advice(family):
    found = finding(family, 0.4, parameters=(0, 1))
    assert describe(found, NAMES, (3,))
    assert advise([found]).endswith(".")


def test_more_simulations_are_not_advised_for_merged_modes():
    merged = finding("shape", 0.05, pattern="modes")
    assert "More simulations for the same density estimator do not help" in advise(
        [merged]
    )


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_another_simulator_makes_is_checked_before_anything_is_trained(
    family, sign
):
    """Training simulations with another noise or a smaller prior look like this."""
    advice = advise([finding(family, 0.4, sign=sign)])
    assert advice.startswith("check that the simulations of this report and those of")
    assert advice.index("the same noise") < advice.index("more simulations")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_validation_loss_comes_before_more_simulations(family):
    advice = advise([finding(family, 0.5)])
    more = advice.index("more simulations")
    assert advice.index("for longer") < more
    assert advice.index("stop the training earlier") < more


def test_where_the_error_depends_on_x_it_is_checked_that_the_network_sees_x():
    assert "x reaches the network" in advise([finding("shift with x", 0.5)])
    assert "x reaches the network" not in advise([finding("shift", 0.5)])


def test_a_small_embedding_net_comes_before_more_simulations():
    advice = advise([finding("shift with x", 0.5)])
    assert advice.index("embedding net") < advice.index("more simulations")


def _ignores_second(xs, num):
    """Right in the first parameter; the second comes from the prior."""
    first = xs[:, :1] / 1.04 + (0.04 / 1.04) ** 0.5 * torch.randn(num, len(xs), 1)
    return torch.cat([first, torch.randn(num, len(xs), 1)], dim=2)


def _shifted(xs, num):
    noise = torch.randn(num, *xs.shape)
    return xs / 1.04 + (0.04 / 1.04) ** 0.5 * (noise + 2)


@pytest.mark.parametrize(("posterior", "said"), [(_ignores_second, 1), (_shifted, 0)])
@pytest.mark.parametrize("methods", [("colt", "predictive", "sbc"), ("colt", "sbc")])
def test_discarded_information_is_told_from_a_shift(posterior, said, methods):
    """Both are wrong by far on both sides; only one is calibrated.

    Without the data side the learned likelihood shows it.
    """
    report = diagnose(
        posterior,
        MultivariateNormal(torch.zeros(2), torch.eye(2)),
        lambda thetas: thetas + 0.2 * torch.randn_like(thetas),
        num_simulations=400,
        num_posterior_samples=100,
        methods=methods,
        config=CoLTConfig(settings={"ball": {"max_epochs": 5}}),
        seed=0,
        show_progress_bar=False,
    )
    assert report.rejected
    assert ("discards information in x" in str(report)) == bool(said)


def _ring(xs, num):
    """Draws given the distance x from the origin: a ring around it."""
    radii = torch.linspace(0.01, 5, 500)
    logs = radii.log() - radii.square() / 2 - 50 * (xs - radii).square()  # (n, 500)
    radius = radii[torch.distributions.Categorical(logits=logs).sample((num,))]
    angle = 2 * torch.pi * torch.rand(num, len(xs))
    return radius.unsqueeze(2) * torch.stack([angle.cos(), angle.sin()], dim=2)


def _marginals_of_ring(xs, num):
    """Each parameter is right and uses x; only their dependence is wrong."""
    return torch.stack([_ring(xs, num)[..., 0], _ring(xs, num)[..., 1]], dim=2)


def test_a_wrong_dependence_of_parameters_is_no_discarded_information():
    report = diagnose(
        _marginals_of_ring,
        MultivariateNormal(torch.zeros(2), torch.eye(2)),
        lambda thetas: (
            thetas.norm(dim=1, keepdim=True) + 0.1 * torch.randn(len(thetas), 1)
        ),
        num_simulations=400,
        num_posterior_samples=100,
        methods=("colt", "predictive", "sbc"),
        config=CoLTConfig(settings={"ball": {"max_epochs": 5}}),
        seed=0,
        show_progress_bar=False,
    )
    assert report.rejected
    assert report["sbc"].p_value > 0.05
    assert "discards information" not in str(report)
