"""How simulators are called: batches or one θ, torch or NumPy, and copies."""

import warnings

import numpy as np
import pytest
import torch
from stand_ins import simulate, torch_batch, torch_single

from sbi_colt.sampling.simulator import SimulationError


def torch_either(thetas):
    return thetas[..., :1] + 0.1 * torch.randn(1)


def numpy_batch(thetas):
    return np.asarray(thetas)[:, :1] + 0.1 * np.random.normal(size=(len(thetas), 1))


def numpy_single(theta):
    return np.array([theta[0] + 0.1 * np.random.normal()])


def strict_numpy(theta):
    if not isinstance(theta, np.ndarray):
        raise TypeError("NumPy only")
    return theta[..., :1] + 0.1 * np.random.normal(size=(*theta.shape[:-1], 1))


def of_length_three(theta):
    """A function of one θ whose output is as long as the trial batch."""
    return torch.stack([theta.sum(), theta.prod(), theta.max()])


THREE = torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3))


@pytest.mark.parametrize(
    "simulator",
    [
        lambda t: torch.eye(3) @ t + 0.1 * torch.randn(3),
        lambda t: np.array([t[0], t[1], t[2]]) + 0.1 * np.random.normal(size=3),
        lambda t: torch.stack([t[0], t[1], t[2]]) + 0.1 * torch.randn(3),
    ],
)
def test_functions_of_one_theta_work_when_a_batch_would_fit_too(simulator):
    thetas, xs = simulate(simulator, prior=THREE)
    assert xs.shape == (60, 3)
    assert 0.03 < (thetas - xs).std() < 0.2


@pytest.mark.parametrize(
    "simulator",
    [
        lambda t: torch.atleast_2d(t) + 0.1 * torch.randn_like(torch.atleast_2d(t)),
        lambda t: (t.reshape(-1, 2) + 0.1 * torch.randn(1))[:1],
    ],
)
def test_a_leading_axis_of_one_is_no_part_of_the_data(simulator):
    assert simulate(simulator)[1].shape == (60, 2)


@pytest.mark.parametrize(
    "simulator", [lambda t: float(t.sum()), lambda t: t.sum(dim=-1)]
)
def test_scalar_data_get_an_axis(simulator):
    assert simulate(simulator)[1].shape == (60, 1)


def test_double_precision_is_kept():
    def offset(thetas):
        return 1e6 + 1e-3 * thetas.double()

    assert simulate(offset)[1].std() > 1e-4


SIMULATORS = [
    torch_batch,
    torch_single,
    torch_either,
    numpy_batch,
    numpy_single,
    strict_numpy,
]


@pytest.mark.parametrize("simulator", SIMULATORS)
@pytest.mark.usefixtures("unchanged_random_state")
def test_all_conventions_give_pairs(simulator):
    thetas, xs = simulate(simulator)
    assert thetas.shape == (60, 2)
    assert xs.shape == (60, 1)
    assert torch.corrcoef(torch.stack([thetas[:, 0], xs[:, 0]]))[0, 1] > 0.95
    assert (thetas[:, :1] - xs).std() > 0.05  # noise of its own for each pair


def test_a_function_of_one_theta_is_not_taken_for_a_batched_one():
    thetas, xs = simulate(of_length_three)
    assert xs.shape == (60, 3)
    torch.testing.assert_close(xs[:, 0], thetas.sum(dim=1))


def test_a_batched_function_may_misread_a_single_theta():
    """It unpacks columns, and takes the numbers of one θ for as many parameters."""

    def series(thetas):
        mean, scale = thetas.T
        steps = [mean + scale * torch.randn(len(thetas)) for _ in range(7)]
        return torch.stack(steps, dim=1)

    thetas, xs = simulate(series)
    assert xs.shape == (60, 7)
    assert float((xs.mean(dim=1) - thetas[:, 0]).abs().mean()) < 0.6


@pytest.mark.parametrize("num_trials", [1, 4])
def test_a_batch_of_several_trials_keeps_its_shape(num_trials):
    """A single θ gets another shape here, which must not decide."""

    def trials(thetas):
        noise = torch.randn(len(thetas), num_trials, thetas.shape[-1])
        return thetas.unsqueeze(1) + 0.1 * noise

    thetas, xs = simulate(trials)
    assert xs.shape == (60, num_trials, 2)
    deviations = xs - thetas.unsqueeze(1)
    assert 0.05 < deviations.std() < 0.2


def test_trials_of_other_forms_warn_of_nothing():
    """Warnings are errors here; those of the form that is used are the user's."""

    def simulator(thetas):
        if thetas.ndim == 1:
            warnings.warn("one θ is not what I expected", stacklevel=2)
        return thetas + torch.randn_like(thetas)

    simulate(simulator)


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_same_seed_same_pairs(simulator):
    first, second, other = (simulate(simulator, seed=s) for s in (1, 1, 2))
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[1], other[1])


def test_a_simulator_that_always_fails_is_an_error():
    def broken(theta):
        raise RuntimeError("no licence")

    with pytest.raises(SimulationError, match=r"each of 20 trials failed.*no licence"):
        simulate(broken)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, "expected an array of data, got None"),
        ("data", "expected an array of data, got str"),
        (torch.eye(2).to_sparse(), "expected a dense tensor.*to_dense"),
        (np.array([1j]), "expected real numbers, got complex128"),
    ],
)
def test_what_are_no_data_is_named(output, message):
    with pytest.raises(SimulationError, match=f"TypeError: simulator: {message}"):
        simulate(lambda theta: output)


# Simulators that change what they are given


def adds_in_place(thetas):
    thetas += 1
    return thetas + 0.1 * torch.randn_like(thetas)


def adds_in_place_to_numpy(theta):
    if not isinstance(theta, np.ndarray):
        raise TypeError("NumPy only")
    theta += 1
    return theta + 0.1 * np.random.normal(size=theta.shape)


def adds_in_place_to_one(theta):
    assert theta.ndim == 1
    theta += 1
    return theta + 0.1 * torch.randn(2)


@pytest.mark.parametrize(
    "simulator", [adds_in_place, adds_in_place_to_numpy, adds_in_place_to_one]
)
def test_a_simulator_that_changes_its_input_does_not_change_the_truths(simulator):
    thetas, xs = simulate(simulator)
    assert torch.equal(thetas, simulate(torch_batch)[0])
    torch.testing.assert_close(xs.float(), thetas + 1, atol=0.6, rtol=0)


def test_a_simulator_may_reuse_its_output_array():
    output = np.zeros(2)

    def simulator(theta):
        if np.ndim(theta) != 1:
            raise ValueError("one θ only")
        output[:] = theta
        return output

    thetas, xs = simulate(simulator)
    assert torch.equal(thetas, xs)
