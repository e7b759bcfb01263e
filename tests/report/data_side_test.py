"""What reports say about the data side."""

import pytest
import torch
from stand_ins import PRIOR

from sbi_colt import CoLTConfig, DiagnosticReport, compare, diagnose

QUIET = {"show_progress_bar": False}
QUICK = CoLTConfig(probes=("mahalanobis",), data_probes=("mahalanobis",))


def simulator(thetas):
    return thetas + torch.randn_like(thetas)


def words(report):
    return " ".join(str(report).split())


@pytest.fixture(scope="module")
def both_sides_wrong():
    """A report of both sides on a posterior that is the prior, one draw at each x."""

    def prior_again(xs, num):
        return torch.randn(num, *xs.shape)

    return diagnose(
        prior_again,
        PRIOR,
        simulator,
        num_simulations=300,
        num_posterior_samples=1,
        num_replicated_pairs=150,
        methods=("colt", "predictive", "c2st"),
        seed=0,
        **QUIET,
    )


def test_a_report_of_both_sides_speaks_of_both(both_sides_wrong):
    report, text = both_sides_wrong, words(both_sides_wrong)
    names = [report[side].leading.name for side in ("colt", "predictive")]
    assert f"the probe {names[0]!r} on the side of parameters and the probe" in text
    assert f"the probe {names[1]!r} on the side of data." in text
    assert "parameter (or, on the data side, to each observation)" in text
    assert "1 posterior draw for each x" in text
    assert "that of C2ST is its classifier's accuracy." in text


def test_bounds_that_hold_together_are_smaller(both_sides_wrong):
    plain = both_sides_wrong.to_dict()
    for side, bound in plain["bounds"].items():
        assert 0 < bound < plain["methods"][side]["distance_lower"]


def test_the_data_side_near_one_parameter(both_sides_wrong, tmp_path):
    result = both_sides_wrong.predictive
    assert result is both_sides_wrong["predictive"]
    assert result.at(torch.zeros(2)).p_value <= 1
    with pytest.raises(ValueError, match=r"theta: expected \(1, 2\), got"):
        result.at(torch.zeros(3))
    with pytest.raises(ValueError, match="theta: expected one parameter, got 4"):
        result.at(torch.zeros(4, 2))
    with pytest.warns(UserWarning, match="theta: it is far from every test theta"):
        result.at([1e9, 0.0])
    both_sides_wrong.save(tmp_path / "report.npz")
    loaded = DiagnosticReport.load(tmp_path / "report.npz").predictive
    assert loaded is not None
    with pytest.raises(ValueError, match="theta: expected one parameter"):
        loaded.at(torch.zeros(4, 2))
    assert loaded.data_names == result.data_names
    assert len(result.data_names) == result.localize().centres.shape[1]
    assert "x[0]" in " ".join(result.data_names)
    assert both_sides_wrong.colt.data_names == ()


def test_a_comparison_on_data_alone_claims_nothing_about_parameters():
    def normal(scale):
        return lambda xs, num: xs / 2 + scale * torch.randn(num, *xs.shape)

    comparison = compare(
        {"wide": normal(3.0), "right": normal(0.5**0.5)},
        PRIOR,
        simulator,
        methods=("predictive",),
        config=QUICK,
        seed=0,
        **QUIET,
    )
    text = words(comparison)
    assert "true parameters" not in text
    assert "both sides" not in text
    assert "the share of observations in the region" in text
    assert "by one p-value of the side of data." in text
