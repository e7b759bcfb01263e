"""The figures of the data side: shares outside the replicates, and their axes."""

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

from sbi_colt.draws import make_predictive
from sbi_colt.report.replicate_figures import paint_outside

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def exact(num_pairs, num_replicates, num_data, generator):
    """Normal numbers, constants and Binomial(2) counts of an exact posterior."""
    size = (num_replicates + 1, num_pairs, num_data)
    values = torch.randn(size, generator=generator)
    if num_data > 1:
        values[..., 1] = 3.0
        values[..., 2] = (values[..., 2:4] > 0).sum(dim=-1).float()
    thetas = torch.randn(num_pairs, 1, generator=generator)
    return make_predictive(values[0], thetas, values[1:])


@pytest.mark.parametrize("num_replicates", [3, 6, 30])
def test_ties_do_not_move_the_share_outside(num_replicates, generator):
    number, expected = 20000, 2 / (num_replicates + 1)
    data = exact(number, num_replicates, 4, generator)
    ax = paint_outside(plt.subplots()[1], data, (4,))
    shares = torch.as_tensor(ax.lines[-1].get_ydata())
    assert float(shares[1]) == pytest.approx(expected)
    assert float((shares - expected).abs().max()) < 4 * (expected / number) ** 0.5


def test_one_number_in_x_has_one_tick(generator):
    ax = paint_outside(plt.subplots()[1], exact(30, 6, 1, generator), (1,))
    low, high = ax.get_xlim()
    assert [tick for tick in ax.get_xticks() if low <= tick <= high] == [0]
