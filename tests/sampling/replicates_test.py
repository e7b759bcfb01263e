"""Replicates: how many, at which parameters, failures, seeds and checkpoints."""

import numpy as np
import pytest
import torch
from data_side_helpers import QUIET, made, posterior, simulator
from stand_ins import PRIOR

from sbi_colt import Draws, draw_posterior_samples
from sbi_colt.draws import make_predictive
from sbi_colt.sampling.data_side import add_data_side
from sbi_colt.sampling.pairs import PairSource, find_simulator
from sbi_colt.sampling.replicates import (
    ReplicateOptions,
    TooFewBags,
    choose_pairs,
    draws_of_posterior,
    replicate,
)


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
    [(1000, None, 167), (5000, None, 833), (300, None, 50), (30, None, 30), (9, 4, 4)],
)
def test_a_sixth_of_the_pairs_has_replicates(num_pairs, asked, expected):
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


def rare_counts(rate):
    return lambda thetas: torch.poisson(torch.full((len(thetas), 1), rate))


@pytest.mark.parametrize("number", [1, 3])
def test_rare_counts_are_not_taken_for_a_fixed_seed(number):
    thetas = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    data = replicated(rare_counts(1e-6), thetas, torch.zeros(30, 1), number)
    assert not data.samples.any()


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
    source = PairSource(PRIOR, simulator, draws.thetas, draws.xs).with_simulator(0)
    options = ReplicateOptions(2, 20, seed=5, **QUIET)
    data = add_data_side(draws, source, options).predictive
    assert data is not None
    assert data.samples.shape == (2, 20, 2)
