"""Words and pictures about one observation."""

import pytest
import torch
from matplotlib.figure import Figure

from sbi_colt.plausibility import plausibility
from sbi_colt.report.observation_figures import paint_observation
from sbi_colt.report.plausibility_text import conclude, plausibility_sentences
from sbi_colt.results.plausibility_result import PlausibilityResult


def make(x_o, shape, generator, replicates=None):
    xs = torch.randn(400, *shape, generator=generator)
    return plausibility(x_o, xs[:199], xs[199:], generator, replicates)


def test_an_impossible_observation_is_described(generator):
    x_o = torch.tensor([0.1, 0.2, -0.3, 9.0])
    first, *_ = plausibility_sentences(make(x_o, (4,), generator))
    assert first.startswith("x_o is unlike what prior and simulator make (p = 0.0")
    assert "x[3] = 9 is " in first
    assert "standard deviations above the median of simulations" in first


def test_a_possible_observation_is_said_to_be_possible(generator):
    result = make(torch.tensor([0.3, -0.4]), (2,), generator)
    (only,) = plausibility_sentences(result)
    assert only.startswith("x_o could have been made by prior and simulator (p = 0.")
    assert "199 simulations" in only


def test_what_replicates_show_is_said(generator):
    x_o = torch.tensor([9.0, 0.0])
    replicates = torch.randn(3, 200, 2, generator=generator)
    text = " ".join(plausibility_sentences(make(x_o, (2,), generator, replicates)))
    assert "Data simulated from posterior draws at x_o do not look like x_o" in text


def observed(p_value, without, predictive):
    xs = torch.zeros(199, 2)
    return PlausibilityResult(
        p_value,
        {},
        predictive,
        (),
        199,
        300,
        p_value_without_posterior=without,
        x_o=xs[0],
        references=xs,
    )


@pytest.mark.parametrize(
    ("focused", "observation", "near", "kind", "words"),
    [
        (0.5, (0.5, 0.5, 0.5), 0.5, "well", "all is well"),
        (0.5, (0.5, 0.5, None), 0.5, "well", "all is well"),
        (0.5, (0.5, 0.5, 0.03), 0.5, "well", "could have made x_o"),
        (0.01, (0.5, 0.5, 0.5), 0.5, "wrong", "The posterior is wrong at"),
        (0.01, (0.01, 0.01, 0.01), 0.01, "wrong", "look at the simulator too"),
        (0.5, (0.01, 0.01, 0.5), 0.5, "unexplained", "no parameters explain x_o"),
        (0.5, (0.01, 0.01, 0.01), 0.01, "unexplained", "misspecified"),
        (0.5, (0.01, 0.01, None), 0.01, "unexplained", "no parameters explain x_o"),
        (0.5, (0.5, 0.5, 0.005), 0.5, "unexplained", "do not look like x_o"),
        (0.5, (0.02, 0.5, 0.005), 0.5, "unexplained", "do not look like x_o"),
        (0.5, (0.5, 0.5, 0.5), 0.01, "unreached", "nothing can be said"),
        (0.01, (0.5, 0.5, 0.5), 0.01, "wrong", "may be in the wrong place"),
        # Posterior draws in the wrong place make the predictive score extreme.
        (0.5, (0.02, 0.5, 0.005), 0.01, "unreached", "are in the wrong place"),
    ],
)
def test_the_four_conclusions(focused, observation, near, kind, words):
    conclusion = conclude(focused, observed(*observation), near)
    assert conclusion.kind == kind
    assert words in " ".join(conclusion.sentences)


def test_what_to_do_about_an_implausible_observation():
    *_, last = conclude(0.5, observed(0.01, 0.01, 0.5), 0.5).sentences
    for word in ("simulator", "noise model", "units", "prior is too narrow"):
        assert word in last


def test_a_misplaced_posterior_does_not_make_x_o_strange():
    text = " ".join(plausibility_sentences(observed(0.02, 0.5, 0.005)))
    assert "x_o does not stand out among simulations from the prior (p = 0.5" in text
    assert "unlike" not in text


def test_a_conclusion_needs_p_values():
    with pytest.raises(ValueError, match="nearness_p_value"):
        conclude(0.5, observed(0.5, 0.5, 0.5), 1.5)


def painted(result):
    return paint_observation(Figure().subplots(), result)


def test_a_line_is_marked_where_it_stands_out(generator):
    x_o = torch.zeros(12)
    x_o[7] = 9.0
    ax = painted(make(x_o, (12,), generator))
    marks = [line for line in ax.lines if line.get_label() == "stands out"]
    assert 7 in marks[0].get_xdata()
    observed = next(line for line in ax.lines if line.get_label() == "x_o")
    assert observed.get_ydata()[7] == 9.0


def test_images_stand_beside_the_nearest_simulations(generator):
    image = torch.zeros(8, 8)
    image[2, 5] = 30.0
    ax = painted(make(image, (8, 8), generator))
    assert len(ax.child_axes) == 6
    (marks, *_) = ax.child_axes[0].lines
    assert (float(marks.get_xdata()[0]), float(marks.get_ydata()[0])) == (5, 2)


def test_two_numbers_are_a_point_among_points(generator):
    replicates = torch.randn(4, 200, 2, generator=generator)
    result = make(torch.tensor([5.0, -2.0]), (2,), generator, replicates)
    ax = painted(result)
    shown = {line.get_label(): line for line in ax.lines}
    assert shown["x_o"].get_xydata().tolist() == [[5.0, -2.0]]
    assert len(shown["from posterior draws at x_o"].get_xdata()) == 4
    assert len(shown["simulations from the prior"].get_xdata()) == 199
    assert f"p = {result.p_value:.2g}" in ax.get_title()


def test_all_replicates_are_lines_with_one_name(generator):
    replicates = torch.randn(4, 200, 6, generator=generator)
    ax = painted(make(torch.zeros(6), (6,), generator, replicates))
    assert len([line for line in ax.lines if "draws" in line.get_label()]) == 4
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names.count("from posterior draws at x_o") == 1


def test_a_single_number_is_a_line_in_a_histogram(generator):
    ax = painted(make(torch.tensor([5.0]), (1,), generator))
    assert list(ax.lines[-1].get_xdata()) == [5.0, 5.0]
