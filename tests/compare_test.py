import json
import sys
from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
import torch
from configs import make_config

from sbi_colt import CoLT, Draws, TestResult, compare
from sbi_colt.benchmark.posterior_zoo import exhibit, prior

QUICK = make_config(max_epochs=20, num_redraws=199)


class Gaussian:
    """N(x/2 + shift, width² I/2): exact for a standard normal prior and noise."""

    def __init__(self, width=1.0, shift=0.0, bad_below=-torch.inf):
        self.width, self.shift, self.bad_below = width, shift, bad_below

    def __call__(self, xs, num_samples):
        noise = torch.randn(num_samples, *xs.shape) * 0.5**0.5
        return xs / 2 + self.shift + self.width * noise


def pairs(num_pairs, generator, dim=2):
    thetas = torch.randn(num_pairs, dim, generator=generator)
    return thetas, thetas + torch.randn(num_pairs, dim, generator=generator)


def compared(posteriors, generator, num_pairs=400, **options):
    thetas, xs = pairs(num_pairs, generator)
    options = {"config": QUICK, "seed": 0, "methods": ("colt", "sbc")} | options
    return compare(
        posteriors,
        thetas=thetas,
        xs=xs,
        num_posterior_samples=100,
        show_progress_bar=False,
        **options,
    )


@pytest.fixture(scope="module")
def three():
    generator = torch.Generator().manual_seed(3)
    posteriors = {"wide": Gaussian(2.0), "exact": Gaussian(), "blind": Gaussian(1, 1.5)}
    return compared(posteriors, generator, num_pairs=600)


def test_the_closest_comes_first(three):
    assert list(three) == ["exact", "wide", "blind"]
    assert len(three) == 3
    distances = [three[name].colt.distance for name in three]
    assert distances == sorted(distances)
    # At level 0.05 one exact posterior in twenty is rejected.
    assert three["exact"]["colt"].p_value > 0.001
    assert three["exact"]["colt"].distance_lower == 0
    assert three["wide"]["colt"].p_value <= 0.001


def test_clear_differences_are_told_and_in_one_direction_only(three):
    assert three.adjusted["colt", "exact", "wide"] <= 0.01
    assert three.adjusted["colt", "wide", "blind"] <= 0.01
    assert three.adjusted["colt", "wide", "exact"] == 1
    text = three.summary()
    assert "exact is closer than wide (p = " in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_intervals_hold_the_distance(three):
    for name in three:
        low, high = three.interval(name)
        assert low == three[name].colt.distance_lower
        assert low <= three[name].colt.distance <= high <= 1


def test_equal_posteriors_are_not_told_apart(generator):
    comparison = compared({"a": Gaussian(1.5), "b": Gaussian(1.5)}, generator)
    assert min(comparison.adjusted.values()) > 0.05
    assert "cannot be told apart" in str(comparison)


def test_the_same_pairs_and_seeds_serve_all(three):
    indices = [three[name].colt.index for name in three]
    assert all(torch.equal(index, indices[0]) for index in indices)
    assert len({three[name].seed for name in three}) == 1


def test_a_pair_that_one_posterior_lacks_is_left_out_for_all(generator, monkeypatch):
    module = sys.modules["sbi_colt.sampling.draw"]

    whole = module.draw_at_pairs

    def partial(posterior, *arguments, **options):
        draws = whole(posterior, *arguments, **options)
        if posterior.bad_below == -torch.inf:
            return draws
        kept = draws.xs[:, 0] >= posterior.bad_below
        return replace(draws.select(kept), mask=kept)

    monkeypatch.setattr(module, "draw_at_pairs", partial)
    comparison = compared({"a": Gaussian(), "b": Gaussian(bad_below=-1.0)}, generator)
    first, second = (comparison[name].colt for name in ("a", "b"))
    assert torch.equal(first.index, second.index)
    assert float(first.evidence.xs[:, 0].min()) >= -1


@pytest.mark.slow
@pytest.mark.long
def test_distances_of_8_and_22_per_cent_are_told_apart_end_to_end():
    """500 pairs: claims in the right direction only, and none for equal posteriors."""
    told, false = 0, 0
    posteriors = {
        "near": Gaussian(1.0, 0.07),
        "far": Gaussian(1.32),
        "as far": Gaussian(1.32),
    }
    for i in range(40):
        generator = torch.Generator().manual_seed(i)
        found = compared(posteriors, generator, 500, seed=i, methods=("colt",))
        told += found.closer["colt", "near", "far"] <= 0.05
        false += found.closer["colt", "far", "as far"] <= 0.05
        assert found.closer["colt", "far", "near"] > 0.5
    # The ends of the 99% bands of 0.93, as `closer_p_value` states, and of 0.05.
    assert told >= 32
    assert false <= 6


def test_trained_posteriors_are_compared():
    """An NPE against one that is given noise in place of x."""
    posterior = exhibit("npe-mdn").posterior

    def simulator(thetas):
        mixing = torch.tensor([[1.0, 0.5], [0.0, 1.0]])
        return thetas @ mixing.T + 0.5 * torch.randn_like(thetas)

    comparison = compare(
        {
            "npe": posterior,
            "npe, data shuffled": lambda xs, num: posterior.sample_batched(
                (num,), xs.roll(1, dims=0), show_progress_bars=False
            ),
        },
        prior(),
        simulator,
        num_simulations=300,
        num_posterior_samples=100,
        config=QUICK,
        seed=1,
        show_progress_bar=False,
    )
    assert list(comparison) == ["npe", "npe, data shuffled"]
    for side in ("colt", "predictive"):
        assert comparison.adjusted[side, "npe", "npe, data shuffled"] <= 0.01


def test_balls_are_chosen_on_training_pairs_alone(make_draws, generator):
    colt = CoLT(QUICK, seed=0).fit(
        make_draws(100, 20, 2, generator, 1.5), show_progress_bar=False
    )
    tests = [colt.test(make_draws(50, 20, 2, generator, 1.5)) for _ in range(2)]
    chosen = [[(p.mass_q, p.sign) for p in test.probes] for test in tests]
    assert chosen[0] == chosen[1]
    assert chosen[0][0][1] == 1  # too wide: truths crowd near the centre


def test_the_comparison_is_ready_for_json_and_escapes_names(generator, tmp_path):
    comparison = compared({"<b>a</b>": Gaussian(), "b": Gaussian(2.0)}, generator)
    plain = json.loads(json.dumps(comparison.to_dict()))
    assert plain["ranking"] == ["<b>a</b>", "b"]
    assert {entry["first"] for entry in plain["closer"]} == {"<b>a</b>", "b"}
    comparison.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for text in (page, comparison._repr_html_()):
        assert "<b>" not in text
        assert "&lt;b&gt;a" in text
    assert page.count("data:image/png;base64,") == 1


def test_the_plot_shows_each_posterior(three, tmp_path):
    figure, ax = plt.subplots()
    before = plt.get_fignums()
    assert three.plot(ax) is ax
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == list(three)
    assert three.plot() is not ax
    three.to_html(tmp_path / "page.html")
    assert plt.get_fignums() == before
    plt.close(figure)


@pytest.mark.parametrize(
    ("posteriors", "options", "message"),
    [
        ([Gaussian(), Gaussian()], {}, "posteriors: expected a dict"),
        ({"a": Gaussian()}, {}, "posteriors: expected at least two"),
        ({"a": Gaussian(), 2: Gaussian()}, {}, "posteriors: expected names"),
        (
            {"a": Gaussian(), "b": Gaussian()},
            {"methods": ("sbc",)},
            "methods: expected 'colt'",
        ),
        (
            {"a": Gaussian(), "b": Gaussian()},
            {"methods": ("colt", "sbb")},
            "methods: unknown name 'sbb'",
        ),
        ({"a": Gaussian(), "b": Gaussian()}, {"level": 2}, "level: expected"),
    ],
)
def test_bad_arguments_are_named(generator, posteriors, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        compared(posteriors, generator, **options)


def test_an_unknown_name_is_named(three):
    with pytest.raises(KeyError, match="'nle' is not in this comparison"):
        three["nle"]


def test_checkpoints_are_kept_for_each_posterior(generator, tmp_path):
    posteriors = {"a": Gaussian(), "b": Gaussian(2.0)}
    first = compared(
        posteriors, torch.Generator().manual_seed(1), checkpoint=tmp_path / "draws"
    )
    again = compared(
        posteriors, torch.Generator().manual_seed(1), checkpoint=tmp_path / "draws"
    )
    assert first.to_dict()["closer"] == again.to_dict()["closer"]
    assert len(list((tmp_path / "draws").iterdir())) == 2


def test_draws_keep_their_account_when_selected(generator):
    thetas, xs = pairs(10, generator)
    draws = Draws(thetas, xs, Gaussian()(xs, 5))
    assert draws.select(torch.tensor([7, 2])).index.tolist() == [7, 2]


def test_many_methods_stay_within_80_columns(three):
    names = [f"a_method_with_a_long_name_{i}" for i in range(9)]
    own = TestResult("own", 0.5, 1.0)
    reports = {
        name: replace(report, results={**report.results, **dict.fromkeys(names, own)})
        for name, report in three.reports.items()
    }
    text = str(replace(three, reports=reports))
    assert max(map(len, text.splitlines())) <= 80


def test_a_name_vouches_for_each_posterior_by_itself(generator, tmp_path):
    """In another order, the folders must not be taken for those of other posteriors."""
    posteriors = {"a": Gaussian(), "b": Gaussian(2.0)}
    options = {"checkpoint": tmp_path, "checkpoint_name": "first"}
    compared(posteriors, torch.Generator().manual_seed(0), **options)
    turned = dict(reversed(posteriors.items()))
    with pytest.raises(ValueError, match="checkpoint_name differs"):
        compared(turned, torch.Generator().manual_seed(0), **options)
