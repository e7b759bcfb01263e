"""What `check_observation` simulates, refuses and finds."""

import pytest
import torch
from sbi.inference import NPE
from sbi.utils import BoxUniform

from sbi_colt.sampling.check_observation import check_observation

PRIOR = BoxUniform(-2 * torch.ones(2), 2 * torch.ones(2))
QUIET = {"seed": 0, "show_progress_bar": False}


def simulator(thetas):
    """Six numbers: each parameter three times, with noise."""
    return thetas.repeat(1, 3) + 0.3 * torch.randn(len(thetas), 6)


def posterior(xs, num):
    """Nearly the exact posterior."""
    means = xs.reshape(-1, 3, 2).mean(dim=1)
    return (means + 0.17 * torch.randn(num, len(xs), 2)).clamp(-2, 2)


def test_a_possible_and_an_impossible_observation():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        possible = simulator(torch.ones(1, 2))
    result = check_observation(posterior, PRIOR, simulator, possible, **QUIET)
    assert result.p_value > 0.05
    assert result.x_shape == (6,)
    assert result.references.shape == (199, 6)
    assert set(result.p_values) == {
        "neighbours",
        "mahalanobis",
        "extreme",
        "predictive",
    }
    # The first parameter is seen as -1 by one number and as 1 by the others.
    impossible = torch.tensor([-1.0, 1, 1, 1, 1, 1])
    result = check_observation(posterior, PRIOR, simulator, impossible, **QUIET)
    assert result.p_value <= 0.02
    assert result.predictive_p_value == result.resolution
    assert result.standing_out[0].kind == "given the others"
    assert result.standing_out[0].index == 0


def test_a_posterior_of_sbi(unchanged_random_state):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        thetas = PRIOR.sample((500,))
        trainer = NPE(PRIOR, show_progress_bars=False)
        trainer.append_simulations(thetas, simulator(thetas))
        trainer.train(max_num_epochs=30, show_train_summary=False)
        trained = trainer.build_posterior()
    x_o = torch.tensor([1.0, 1, 1, 1, 1, -1])
    few = {"num_references": 99, "num_replicates": 2, **QUIET}
    result = check_observation(trained, PRIOR, simulator, x_o, **few)
    assert result.predictive_p_value <= 0.03
    assert result.p_value <= 0.04
    again = check_observation(trained, PRIOR, simulator, x_o, **few)
    assert again.p_values == result.p_values


def test_failing_simulations_and_draws_are_counted():
    def failing(thetas):
        xs = simulator(thetas)
        xs[thetas[:, 0] > 1.8] = torch.nan
        return xs

    x_o = simulator(torch.zeros(1, 2))[0]
    with pytest.warns(UserWarning, match="failed and were replaced"):
        result = check_observation(posterior, PRIOR, failing, x_o, **QUIET)
    assert 0 < result.missing_share < 0.3
    assert result.references.isfinite().all()


def test_without_a_posterior_there_are_no_replicates():
    result = check_observation(None, PRIOR, simulator, torch.zeros(6), **QUIET)
    assert result.predictive_p_value is None
    assert result.num_replicates == 0


def test_a_simulator_that_seeds_itself_is_reported():
    def seeded(thetas):
        own = torch.Generator().manual_seed(1)
        return thetas + torch.randn(len(thetas), 2, generator=own)

    with pytest.warns(UserWarning, match="same data again"):
        check_observation(None, PRIOR, seeded, torch.zeros(2), **QUIET)


@pytest.mark.parametrize(
    ("x_o", "more", "message"),
    [
        (torch.zeros(5), {}, r"x_o: expected shape \(6,\)"),
        (torch.full((6,), torch.nan), {}, "x_o: expected finite"),
        (torch.zeros(6), {"num_references": 98}, "num_references: expected an integer"),
        (torch.zeros(6), {"max_sampling_time": 3}, "max_sampling_time"),
    ],
)
def test_what_is_refused(x_o, more, message):
    with pytest.raises(ValueError, match=message):
        check_observation(posterior, PRIOR, simulator, x_o, **QUIET, **more)
