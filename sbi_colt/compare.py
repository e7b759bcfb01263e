"""Several posteriors on the same simulations, ranked by how wrong they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import torch

from sbi_colt.checks import checked_device
from sbi_colt.config import CoLTConfig
from sbi_colt.diagnose import check_options, diagnose_draws
from sbi_colt.draws import Draws
from sbi_colt.report.comparison import ComparisonReport
from sbi_colt.report.diagnostic import DiagnosticReport
from sbi_colt.results.colt_result import CoLTResult
from sbi_colt.sampling.at_xs import run_seed
from sbi_colt.sampling.draw import Spent, make_draws, ready_pairs
from sbi_colt.sampling.pairs import PairSource
from sbi_colt.stats.paired import Regions, closer_p_value

__all__ = ["compare"]


def compare(
    posteriors: Mapping[str, Any],
    prior: Any = None,
    simulator: Any = None,
    *,
    thetas: Any = None,
    xs: Any = None,
    num_simulations: int = 1000,
    num_posterior_samples: int = 500,
    methods: Sequence[str | Callable] | None = None,
    config: CoLTConfig | None = None,
    level: float = 0.05,
    parameter_names: Sequence[str] | None = None,
    seed: int | None = None,
    device: str | torch.device = "cpu",
    num_workers: int = 1,
    show_progress_bar: bool = True,
    checkpoint: str | os.PathLike | None = None,
    num_replicates: int = 6,
    num_replicated_pairs: int | None = None,
    **sampling: Any,
) -> ComparisonReport:
    """Test several posteriors on the same simulations, with the same seeds.

    They are ranked by their distances D = max_p sup_u |F_p(u) − u|
    (`DiagnosticReport.distance`): the largest difference, over all regions that the
    probes looked at, between the share of true parameters (or observations) and the
    share of posterior draws (or replicates) in the region. Whether one posterior is
    closer than another is tested on each side, at regions that were fixed before the
    test pairs were seen (`sbi_colt.stats.paired`). Pairs are shared; replicates are
    made for each posterior.

    Args:
        posteriors: Posteriors by name, at least two, as in `diagnose`.
        prior: Prior, to simulate pairs from; with ``simulator``.
        simulator: Simulator of x given θ; with ``prior``.
        thetas: True parameters of pairs already simulated, with shape ``(N, d)``. No
            posterior may have been trained on them.
        xs: Their observations, with shape ``(N, …)``.
        num_simulations: Pairs to simulate, with ``prior`` and ``simulator``.
        num_posterior_samples: Draws per x.
        methods: As in `diagnose`; ``"colt"`` or ``"predictive"`` must be among them.
        config: Settings of CoLT.
        level: Level of each posterior's verdict, and of all comparisons together.
        parameter_names: Names of the parameters.
        seed: Seed of everything.
        device: Device to train and test on.
        num_workers: Processes for simulators and samplers that take one at a time.
        show_progress_bar: Whether to show progress.
        checkpoint: A folder that keeps the draws; each posterior has a folder in it.
        num_replicates: Simulations from each posterior draw on the data side; 0 for no
            data side.
        num_replicated_pairs: Pairs that have replicates, as in `diagnose`.
        **sampling: Further options of `draw_posterior_samples`.

    Returns:
        The comparison; print it. A pair is left out for all posteriors if one of them
        could not be sampled there. Null hypothesis of "a is closer than b": a deviates
        in one of its regions by at least as much as b does in the worst region that
        training chose for b. Its p-value is asymptotic, unlike those of the methods.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> prior = MultivariateNormal(torch.zeros(1), torch.eye(1))
        >>> def simulator(thetas):
        ...     return thetas + torch.randn_like(thetas)
        >>> def normal(scale):  # exact for scale = 0.5 ** 0.5
        ...     return lambda xs, num: xs / 2 + scale * torch.randn(num, *xs.shape)
        >>> comparison = compare(
        ...     {"wide": normal(2.0), "exact": normal(0.5**0.5)},
        ...     prior,
        ...     simulator,
        ...     num_simulations=300,
        ...     num_posterior_samples=30,
        ...     methods=("colt",),
        ...     seed=0,
        ...     show_progress_bar=False,
        ... )
        >>> list(comparison.reports)
        ['exact', 'wide']
        >>> comparison.closer["colt", "exact", "wide"] < 0.05
        True
    """
    # One folder for each posterior; the first has the seed of the run.
    seed = run_seed(seed, None if checkpoint is None else Path(checkpoint) / "0")
    _check_posteriors(posteriors)
    has_data_side = simulator is not None and num_replicates != 0
    runs = check_options(methods, level, has_data_side=has_data_side)
    _check_sides(runs)
    device = checked_device(device)
    draws, spent = draw_for_each(
        posteriors,
        PairSource(prior, simulator, thetas, xs, num_simulations),
        num_posterior_samples,
        checkpoint,
        seed=seed,
        num_workers=num_workers,
        show_progress_bar=show_progress_bar,
        device=device,
        num_replicates=num_replicates if "predictive" in runs else 0,
        num_replicated_pairs=num_replicated_pairs,
        parameter_side=set(runs) != {"predictive"},
        **sampling,
    )
    has_data_side = all(own.predictive is not None for own in draws.values())
    if methods is not None and "predictive" in runs and not has_data_side:
        methods = [method for method in methods if method != "predictive"]
    reports = {
        name: diagnose_draws(
            own,
            methods=methods,
            config=config,
            level=level,
            parameter_names=parameter_names,
            seed=seed,
            device=device,
            show_progress_bar=show_progress_bar,
            spent=spent[name],
        )
        for name, own in draws.items()
    }
    return _rank(reports, level)


def draw_for_each(
    posteriors: Mapping[str, Any],
    source: PairSource,
    num_posterior_samples: int,
    checkpoint: str | os.PathLike | None,
    **options: Any,
) -> tuple[dict[str, Draws], dict[str, Spent]]:
    """Return draws of each posterior at the pairs that all have, and what they cost.

    Every posterior gets the same call of `make_draws`, with the same seed. The pairs
    are simulated before; their simulations count for each posterior. A data side that
    one posterior cannot have is left out for all.
    """
    draws: dict[str, Draws] = {}
    spent: dict[str, Spent] = {}
    vouched = options.pop("checkpoint_name", None)
    options["of_prior"] = source.thetas is None
    source, options["num_replicated_pairs"] = ready_pairs(
        source,
        num_posterior_samples,
        options["num_replicated_pairs"],
        options["parameter_side"],
        **{k: options[k] for k in ("seed", "num_workers", "show_progress_bar")},
    )
    for_pairs = source.num_spent
    for number, (name, posterior) in enumerate(posteriors.items()):
        if vouched is not None:  # for each posterior by its own name
            options["checkpoint_name"] = f"{vouched}: {name}"
        draws[name], own_cost = make_draws(
            posterior,
            replace(source, prior=None),
            num_posterior_samples,
            checkpoint=None if checkpoint is None else Path(checkpoint) / str(number),
            **options,
        )
        spent[name] = replace(
            own_cost,
            seconds={"sampling": sum(own_cost.seconds.values())},
            num_spent=for_pairs + own_cost.num_spent,
        )
    shared = torch.stack([own.mask for own in draws.values()]).all(dim=0)
    have_data = all(own.predictive is not None for own in draws.values())
    for name, own in draws.items():
        if own.predictive is not None and not have_data:
            spent[name] = replace(spent[name], left_out="another")
    selected = {
        name: own.select(shared[own.index]).with_predictive(
            own.predictive if have_data else None
        )
        for name, own in draws.items()
    }
    return selected, spent


def _rank(reports: Mapping[str, DiagnosticReport], level: float) -> ComparisonReport:
    """Return the comparison, with the smallest distance first."""
    ranked = sorted(reports, key=lambda name: reports[name].distance or 0.0)
    sides = next(iter(reports.values())).sides
    return ComparisonReport(
        reports={name: reports[name] for name in ranked},
        closer={
            (side, a, b): _closer(reports[a].sides[side], reports[b].sides[side])
            for side in sides
            for a, b in permutations(ranked, 2)
        },
        level=level,
    )


def _closer(first: CoLTResult, second: CoLTResult) -> float:
    """Compare two results at the test pairs that both have, in one order."""
    at = {int(i): place for place, i in enumerate(second.index)}
    here = [place for place, i in enumerate(first.index) if int(i) in at]
    there = [at[int(first.index[place])] for place in here]
    return closer_p_value(_regions(first, here), _regions(second, there))


def _regions(result: CoLTResult, pairs: list[int]) -> Regions:
    return Regions(
        torch.stack([probe.ranks for probe in result.probes])[:, pairs],
        [probe.mass_q for probe in result.probes],
        [probe.sign for probe in result.probes],
    )


def _check_sides(methods: Mapping[str, Any]) -> None:
    if not {"colt", "predictive"} & set(methods):
        raise ValueError(
            "methods: expected 'colt' or 'predictive' among them, got "
            f"{', '.join(methods)}."
        )


def _check_posteriors(posteriors: Any) -> None:
    if not isinstance(posteriors, Mapping):
        raise TypeError(
            'posteriors: expected a dict such as {"npe": a, "fmpe": b}, got '
            f"{type(posteriors).__name__}."
        )
    if len(posteriors) < 2:
        raise ValueError(
            f"posteriors: expected at least two to compare, got {len(posteriors)}; "
            "use diagnose for one."
        )
    for name in posteriors:
        if not isinstance(name, str) or not name:
            raise TypeError(f"posteriors: expected names as keys, got {name!r}.")
