"""Pairs: handed in or simulated, seeds, workers and failures."""

import pytest
import torch
from stand_ins import PRIOR, simulate, torch_batch, torch_single
from torch.distributions import Normal

from sbi_colt.sampling.pairs import PairSource


def test_workers_do_not_change_the_pairs():
    alone = simulate(torch_single)
    together = simulate(torch_single, num_workers=2)
    assert torch.equal(alone[1], together[1])


def test_a_list_of_priors_and_images_work():
    priors = [Normal(torch.zeros(1), torch.ones(1)) for _ in range(3)]
    thetas, xs = simulate(
        lambda t: t.sum(-1)[..., None, None].expand(*t.shape[:-1], 4, 4), prior=priors
    )
    assert thetas.shape == (60, 3)
    assert xs.shape == (60, 4, 4)


def raises_for_negative(theta):
    if theta[0] < 0:
        raise ValueError("negative rate")
    return theta


def raises_in_a_batch(thetas):
    if (thetas[:, 0] < 0).any():
        raise ValueError("negative rate")
    return thetas


def nan_for_negative(thetas):
    return torch.where(thetas[..., :1] < 0, torch.nan, thetas)


@pytest.mark.parametrize(
    ("simulator", "said"),
    [
        (raises_for_negative, "ValueError: negative rate"),
        (raises_in_a_batch, "ValueError: negative rate"),
        (nan_for_negative, "NaN or infinity"),
    ],
)
def test_failures_are_dropped_counted_and_replaced(simulator, said):
    with pytest.warns(UserWarning, match=f"simulations failed and were.*{said}"):
        thetas, xs = simulate(simulator)
    assert xs.shape == (60, 2)
    assert (thetas[:, 0] >= 0).all()
    assert torch.equal(thetas, xs)


def test_data_of_changing_shape_are_named():
    def ragged(theta):
        return torch.zeros(2 + int(theta[0] > 0))

    with pytest.raises(ValueError, match="simulator: expected data of one shape"):
        simulate(ragged)


@pytest.mark.parametrize("num", [0, 2.5, True])
def test_bad_numbers_are_named(num):
    with pytest.raises((TypeError, ValueError), match="num_simulations: expected"):
        simulate(torch_batch, num)


def test_what_is_no_simulator_is_named():
    with pytest.raises(TypeError, match="simulator: expected a function"):
        simulate(3)


# Which pairs


def test_pairs_are_handed_in_or_simulated():
    thetas, xs = torch.zeros(3, 2), torch.ones(3, 2)
    given = PairSource(thetas=thetas, xs=xs)
    assert given.with_pairs() is given
    made = PairSource(PRIOR, torch_batch, num_simulations=10).with_pairs(seed=0)
    assert torch.equal(made.xs, simulate(torch_batch, 10)[1])


@pytest.mark.parametrize(
    "given",
    [
        (None, None, None, None),
        (PRIOR, None, None, None),
        (None, None, torch.zeros(3, 2), None),
        (PRIOR, torch_batch, torch.zeros(3, 2), None),
    ],
)
def test_half_of_the_pairs_is_named(given):
    with pytest.raises(ValueError, match="expected either thetas and xs, or prior"):
        PairSource(*given, num_simulations=10).with_pairs()
