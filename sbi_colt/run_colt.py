"""Both algorithms on one set of pairs: split, train, test.

`run_colt` has the calling convention of sbi's `run_sbc` and `run_tarp`;
`colt_on_draws` starts from draws that were made before.
"""

from __future__ import annotations

from typing import Any

import torch

from sbi_colt.checks import check_inner_share, check_integer
from sbi_colt.colt import CoLT, train_and_test
from sbi_colt.config import CoLTConfig
from sbi_colt.draws import Draws
from sbi_colt.predictive import predictive
from sbi_colt.randomness import resolve_seed
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.sampling.at_xs import run_seed
from sbi_colt.sampling.draw import make_draws
from sbi_colt.sampling.pairs import PairSource
from sbi_colt.weighted import thinned

__all__ = ["check_colt", "colt_on_draws", "run_colt"]

# Below this many pairs on either side a test is valid but says nothing.
_MIN_PAIRS = 5


def run_colt(
    thetas: Any,
    xs: Any,
    posterior: Any,
    num_posterior_samples: int = 1000,
    num_workers: int = 1,
    show_progress_bar: bool = True,
    use_batched_sampling: bool = True,
    *,
    config: CoLTConfig | None = None,
    seed: int | None = None,
    device: str | torch.device = "cpu",
    simulator: Any = None,
    num_replicates: int = 6,
    num_replicated_pairs: int | None = None,
    prior: Any = None,
    proposal: Any = None,
    **sampling: Any,
) -> CoLTResult:
    """Test a posterior with CoLT, in the calling convention of sbi's `run_sbc`.

    Posterior draws are made for every x; ``config.train_fraction`` of the pairs train
    the probes, and the others test them. Untrained probes look at all pairs.

    With a simulator the *data side* is tested instead of the parameter side: some of
    the xs are compared with data simulated from one posterior draw at each of them, and
    ``num_posterior_samples`` is not used (`sbi_colt.predictive`). `diagnose` tests both
    sides with one verdict.

    Args:
        thetas: True parameters, simulated from the prior, with shape ``(N, d)``.
        xs: Observations simulated from them, with shape ``(N, …)``.
        posterior: A posterior of sbi, a callable ``q(xs, num)`` that returns draws with
            shape ``(num, len(xs), d)``, or an object with ``sample``.
        num_posterior_samples: Draws per x, K.
        num_workers: Processes for samplers that have no batched form.
        show_progress_bar: Whether to show progress.
        use_batched_sampling: Whether to sample all xs at once where possible.
        config: Settings; the default is the strongest found in the benchmark.
        seed: Seed of sampling, training and testing.
        device: Device to train and test on.
        simulator: Simulator of x given θ, to test the data side.
        num_replicates: Simulations from each posterior draw on the data side, M.
        num_replicated_pairs: Pairs that have replicates; by default a sixth of all
            pairs, and at least 50.
        prior: The prior of ``thetas``, which checks and ``proposal`` need; by default
            the one that sbi keeps with its posterior.
        proposal: What ``thetas`` were simulated from, if that is not the prior; see
            `diagnose`.
        **sampling: Further options of `draw_posterior_samples`, such as
            ``max_sampling_time`` and ``checkpoint``.

    Returns:
        The result. Null hypothesis: q(θ | x) = p(θ | x) for almost every x; the p-value
        is exact for every N and K, and no smaller than about 6e-5 with the default's
        999 re-drawings.

    References:
        Chen, Bansal and Scott, *CoLT: The conditional localization test for assessing
        the accuracy of neural posterior estimates*, NeurIPS 2025.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> thetas = torch.randn(200, 2, generator=generator)
        >>> xs = thetas + torch.randn(200, 2, generator=generator)
        >>> def the_prior(xs, num):  # a "posterior" that ignores x
        ...     return torch.randn(num, len(xs), 2)
        >>> result = run_colt(
        ...     thetas, xs, the_prior, 50, seed=0, show_progress_bar=False
        ... )
        >>> result.p_value < 0.01
        True
    """
    seed = run_seed(seed, sampling.get("checkpoint"))
    config = CoLT(config).config  # checked before the work begins
    if hasattr(thetas, "__len__"):
        _check_enough(len(thetas), config.train_fraction)
    draws, _ = make_draws(
        posterior,
        PairSource(prior, simulator, thetas, xs),
        num_posterior_samples,
        seed=seed,
        num_workers=num_workers,
        show_progress_bar=show_progress_bar,
        use_batched_sampling=use_batched_sampling,
        device=device,
        num_replicates=check_integer("num_replicates", num_replicates, least=1),
        num_replicated_pairs=num_replicated_pairs,
        parameter_side=simulator is None,
        proposal=proposal,
        **sampling,
    )
    _check_enough(len(draws.predictive or draws), config.train_fraction)
    test = colt_on_draws if simulator is None else predictive
    return test(
        draws,
        config=config,
        seed=seed,
        device=device,
        show_progress_bar=show_progress_bar,
    )


def colt_on_draws(
    draws: Draws,
    *,
    config: CoLTConfig | None = None,
    seed: int | None = None,
    device: str | torch.device = "cpu",
    show_progress_bar: bool = True,
) -> CoLTResult:
    """Train on a part of the pairs and test on the others.

    The arguments are those of `run_colt`.
    """
    seed = resolve_seed(seed)
    config = CoLT(config).config
    draws = thinned(draws, seed)
    train, test = draws.split(config.train_fraction, seed=seed)
    return train_and_test(
        train,
        test,
        config=config,
        seed=seed,
        device=device,
        show_progress_bar=show_progress_bar,
    )


def check_colt(result: CoLTResult, level: float = 0.05) -> dict[str, Any]:
    """Return the plain numbers of a result.

    Null hypothesis of the p-value: q(θ | x) = p(θ | x) for almost every x.

    Args:
        result: What `run_colt` or `CoLT.test` returned.
        level: Level of the verdict.

    Returns:
        A dict with ``p_value``, ``statistic``, ``distance``, ``distance_lower``,
        ``probe`` (the name of the leading probe) and ``verdict``: ``"rejected"`` or
        ``"not rejected"``.

    Example:
        >>> thetas, xs = torch.rand(40, 1), torch.rand(40, 1)
        >>> def q(xs, num):
        ...     return 2 + torch.rand(num, len(xs), 1)
        >>> result = run_colt(thetas, xs, q, 20, seed=0, show_progress_bar=False)
        >>> check_colt(result)["verdict"]
        'rejected'
    """
    if not isinstance(result, CoLTResult):
        raise TypeError(f"result: expected a CoLTResult, got {type(result).__name__}.")
    check_inner_share("level", level)
    return {
        "p_value": result.p_value,
        "statistic": result.statistic,
        "distance": result.distance,
        "distance_lower": result.distance_lower,
        "probe": result.leading.name,
        "verdict": "rejected" if result.p_value <= level else "not rejected",
    }


def _check_enough(num_pairs: int, train_fraction: float) -> None:
    num_train = round(train_fraction * num_pairs)
    if min(num_train, num_pairs - num_train) < _MIN_PAIRS:
        raise ValueError(
            f"thetas: {num_pairs} pairs are too few to split into training "
            f"({num_train}) and test ({num_pairs - num_train}); expected at least "
            f"{_MIN_PAIRS} on either side. Simulate more, 100 or better 1000."
        )
