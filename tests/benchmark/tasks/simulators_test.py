"""Simulators of the data side, and rules that make wrong draws of θ."""

import pytest
import torch
from scipy.stats import kstest

from sbi_colt.benchmark.tasks.simulators import ERRORS, SIMULATORS, predictive_draws


@pytest.mark.parametrize("name", SIMULATORS)
def test_data_are_finite_random_and_of_the_stated_shape(name, generator):
    simulator = SIMULATORS[name]
    thetas = simulator.prior(50, generator)
    xs = simulator.simulate(thetas, generator)
    assert xs.shape == (50, *simulator.x_shape)
    assert xs.isfinite().all()
    again = simulator(thetas, generator)
    assert not torch.equal(xs.reshape(50, -1), again)
    corners = torch.tensor([0.0, 1.0]).reshape(2, 1).expand(2, simulator.dim)
    assert simulator(corners.repeat(100, 1), generator).isfinite().all()


@pytest.mark.parametrize("error", ERRORS)
def test_wrong_parameters_stay_in_the_cube(error, generator):
    simulator = SIMULATORS["linear"]
    draws = predictive_draws(simulator, error, 0.3, 60, 4, generator)
    assert draws.thetas.shape == (60, 10)
    assert draws.samples.shape == (4, 60, 10)
    assert draws.xs.shape == (60, 3)
    assert ((draws.xs >= 0) & (draws.xs <= 1)).all()


@pytest.mark.parametrize("error", ["wide", "one wide", "blind", "one blind"])
def test_errors_of_width_keep_the_prior(error, generator):
    """The data side asks about q, not about its average over x."""
    simulator = SIMULATORS["bent"]
    thetas = simulator.prior(4000, generator)
    wrong = ERRORS[error](simulator, thetas, None, 0.4, generator)
    assert kstest(wrong[:, -1].numpy(), "uniform").pvalue > 0.001
    assert float((wrong[:, -1] - thetas[:, -1]).abs().mean()) > 0.2


def test_no_error_is_the_true_parameter(generator):
    thetas = torch.rand(5, 2, generator=generator)
    assert ERRORS["none"](SIMULATORS["bent"], thetas, None, 0.4, generator) is thetas
