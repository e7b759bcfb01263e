r"""The data side: CoLT with the roles of parameters and data swapped.

For a pair (θ*, x) take one draw θ' ~ q(· | x) and M replicates x' ~ p(· | θ'). If q is
right, (θ', x) is a pair like any other, and x is exchangeable with its replicates:

.. math:: θ' \sim q(· | x), \quad x'_1, …, x'_M \sim p(· | θ')
          \quad \Rightarrow \quad
          (x, x'_1, …, x'_M) \text{ are exchangeable given } θ'.

So {x, x'_1, …, x'_M} is a bag of data, and probes, ranks, p-values and bounds work on
it as they do on bags of parameters. It is an exact posterior predictive check (Geweke
2004, Gandy and Scott 2020).

*What it sees.* A posterior that throws information away, q(θ | x) = p(θ | a summary of
x), is calibrated: tests that look at parameters alone can hardly see the loss, however
large. Its draws θ' do not explain their own x, and replicates show that. *What it does
not see:* errors in directions of θ that x does not inform. The parameter side sees
those, so a report has both.

*Its distance* is about predictive mass: a lower bound of
:math:`TV(p(x) q(θ|x), \bar q(θ) p(x|θ))`, where :math:`\bar q` is the average of q over
x. This is at most :math:`2 E_x TV(q, p)`: at least half of it is misplaced posterior
mass.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from sbi_colt.colt import train_and_test
from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws
from sbi_colt.probes.features import DataFeatures
from sbi_colt.randomness import derive_seed, generator_from
from sbi_colt.results.colt_result import CoLTResult

__all__ = ["predictive"]


def predictive(
    draws: Draws,
    *,
    config: CoLTConfig,
    seed: int,
    device: str | torch.device = "cpu",
    show_progress_bar: bool = True,
) -> CoLTResult:
    """Test whether the posterior's draws explain the data that they were drawn from.

    Null hypothesis: x and its replicates are exchangeable given θ', which holds if
    q(θ | x) = p(θ | x). The p-value is exact for every number of pairs and of
    replicates, and independent of that of the parameter side on the same pairs.

    Args:
        draws: Draws with a data side, ``draws.predictive``.
        config: Settings of CoLT; ``config.data_probes`` are the probes.
        seed: Seed of splitting, training and testing.
        device: Device to train and test on.
        show_progress_bar: Whether to show progress.

    Returns:
        The result, in features of the data (`sbi_colt.probes.features`), which
        ``data_names`` names; ``at`` and ``localize`` take parameters θ'.
    """
    seed = derive_seed(seed, "predictive")
    both = data_side(draws).to(device).split(config.train_fraction, seed=seed)
    train, test = (draws.with_predictive(part) for part in both)
    seen, features = data_features(train, config, seed)
    result = train_and_test(
        seen,
        data_side(test).map_bags(features.of_bags, generator_from(seed, "test data")),
        config=config.for_data(),
        seed=seed,
        device=device,
        show_progress_bar=show_progress_bar,
    )
    return replace(result, evidence=replace(result.evidence, data_names=features.names))


def data_side(draws: Draws) -> Draws:
    """Return the data side of draws, or raise where there is none."""
    if draws.predictive is None:
        raise ValueError(
            'methods: "predictive" needs replicates, which the simulator makes; hand '
            "in simulator=… with num_replicates >= 1, or replicates in the file."
        )
    return draws.predictive


def data_features(
    train: Draws, config: CoLTConfig, seed: int
) -> tuple[Draws, DataFeatures]:
    """Return training bags of data as probes see them, and the map of any others.

    Args:
        train: Training draws with a data side.
        config: Settings; the embedding net's outputs are among the features.
        seed: Seed of the members' places: features must not know which of them is x.
    """
    data = data_side(train)
    generator = generator_from(seed, "training data")
    members = data.bags(data.place_truths(generator))
    shape = tuple(train.xs.shape[1:])
    features = DataFeatures.fit(members, shape, config.embedding_net)
    return data.map_bags(features.of_bags, generator), features
