"""The data side is exact where θ' is a true parameter: features, probes, p-value."""

from dataclasses import replace

import pytest
import torch

from sbi_colt import CoLT, CoLTConfig, Draws
from sbi_colt.benchmark.tasks.simulators import SIMULATORS, Simulator, predictive_draws
from sbi_colt.probes.features import DataFeatures
from sbi_colt.randomness import generator_from
from sbi_colt.stats.combine import two_halves_p_value

REPETITIONS = 400
PROBES = ("data-energy", "data-distance", "logit", "data-drift")
# Fair coins, whose bags have many ties, and data whose mean does not exist.
COINS = Simulator(1, (9,), lambda t, g: (torch.rand(len(t), 9, generator=g) < t).int())
CAUCHY = Simulator(
    1, (12,), lambda t, g: 3 * t + torch.empty(len(t), 12).cauchy_(generator=g)
)


def p_values(simulator, seed, num_pairs=40, num_replicates=9):
    """The p-values of the test pairs and of all pairs."""
    generator = generator_from(seed, "exactness")
    draws = predictive_draws(
        simulator, "none", 0.0, num_pairs, num_replicates, generator
    )
    train, test = draws.split(0.3, seed=seed)
    features = DataFeatures.fit(
        train.bags(train.place_truths(generator)), simulator.x_shape
    )

    def seen(part: Draws) -> Draws:
        first = torch.zeros(len(part), dtype=torch.long)
        bags = features.of_bags(part.bags(first))  # (n, M + 1, m)
        return replace(part, thetas=bags[:, 0], samples=bags[:, 1:].transpose(0, 1))

    config = CoLTConfig(probes=PROBES)
    colt = CoLT(config, seed=seed).fit(seen(train), show_progress_bar=False)
    p_value = colt.test(seen(test)).p_value
    assert colt.training_p_value is not None
    return p_value, two_halves_p_value(p_value, colt.training_p_value)


@pytest.mark.parametrize(
    "simulator",
    [
        pytest.param(COINS, id="coins"),
        pytest.param(CAUCHY, id="cauchy", marks=pytest.mark.slow),
        pytest.param(SIMULATORS["counts"], id="counts", marks=pytest.mark.slow),
        pytest.param(SIMULATORS["trials"], id="trials", marks=pytest.mark.slow),
    ],
)
def test_false_alarms_are_within_the_band(simulator, within_binomial_band):
    found = torch.tensor([p_values(simulator, seed) for seed in range(REPETITIONS)])
    for level in (0.05, 0.2):
        for count in (found <= level).sum(dim=0).tolist():
            assert within_binomial_band(count, len(found), level), (level, count)


@pytest.mark.slow
@pytest.mark.parametrize("num_replicates", [1, 3, 30])
def test_any_number_of_replicates_is_exact(num_replicates, within_binomial_band):
    found = [
        p_values(CAUCHY, seed, num_replicates=num_replicates)[1]
        for seed in range(REPETITIONS)
    ]
    count = sum(p <= 0.2 for p in found)
    assert within_binomial_band(count, len(found), 0.2), count
