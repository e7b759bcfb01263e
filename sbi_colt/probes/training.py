"""Algorithm 1: train a probe so that the ranks of the truth deviate most.

The loss is minus a divergence of the ranks from the uniform distribution (Chen, Bansal
and Scott 2025, Algorithm 1). A hundred pairs are few for a network, so a step sees a
fresh subset of the draws, and a part of the training pairs is held out: the state kept
is the best one *there*, the initial state included. Training can then only improve on
a sensible start. No test pair ever comes here.
"""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.config import CoLTConfig
from sbi_colt.probes.ball import Probe, ProbeSpec
from sbi_colt.probes.coordinates import Scales
from sbi_colt.probes.divergences import DIVERGENCES
from sbi_colt.probes.registry import KINDS, Parts

__all__ = ["History", "TrainingInterrupted", "build_probe", "train_probe"]

# Draws per x on which the validation divergence is measured.
_VALIDATION_DRAWS = 256
# With fewer held-out pairs than this their divergence says nothing.
_MIN_VALIDATION_PAIRS = 5


class TrainingInterrupted(Warning):
    """Training was interrupted from the keyboard; the best state so far is kept."""


@dataclass(frozen=True)
class History:
    """How one probe was trained.

    ``training`` and ``validation`` hold the gain of each epoch (the divergence; minus a
    classifier's cross-entropy), the latter from the initial state on and empty without
    early stopping.
    """

    training: tuple[float, ...] = ()
    validation: tuple[float, ...] = ()
    best_epoch: int = 0
    stopped: Literal["untrained", "finished", "early", "interrupted", "diverged"] = (
        "untrained"
    )

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> History:
        """Rebuild a history that has been through JSON."""
        lists = {name: tuple(plain[name]) for name in ("training", "validation")}
        return cls(**{**plain, **lists})


def build_probe(
    spec: ProbeSpec,
    config: CoLTConfig,
    scales: Scales,
    x_example: Tensor,
    generator: torch.Generator,
) -> Probe:
    """Return an untrained probe on the CPU.

    Args:
        spec: Which probe.
        config: Settings of its networks.
        scales: Scales of the training pairs.
        x_example: At least two xs, to know their shape.
        generator: CPU generator of the initial weights.
    """
    parts = Parts(
        len(scales.theta_mean),
        scales.network_xs(x_example, spec.coordinates).cpu(),
        scales,
        generator,
        config.num_hidden,
        config.num_layers,
        config.embedding_net,
        config.embedding,
    )
    return KINDS[spec.kind](spec, parts)


def train_probe(
    probe: Probe,
    members: Tensor,
    xs: Tensor,
    config: CoLTConfig,
    generator: torch.Generator,
    show_progress_bar: bool = True,
) -> History:
    """Train a probe in place, or solve for it, and return how it went.

    Args:
        probe: The probe.
        members: Training bags in the probe's coordinates, with shape ``(N, K + 1, d)``,
            the truth first.
        xs: Observations, with shape ``(N, …)``.
        config: Settings.
        generator: CPU generator of splits and subsets.
        show_progress_bar: Whether to show the epochs.

    Returns:
        The history. On Ctrl-C the best state so far is kept, and a warning says so.
    """
    if not probe.is_trainable:
        probe.solve(members, xs, generator)
        return History()
    if type(probe).solve is not Probe.solve:
        raise TypeError(
            f"{type(probe).__name__}: has solve and parameters that gradients would "
            "train; freeze them with requires_grad_(False), or leave solve out."
        )
    divergence = DIVERGENCES[config.divergence]
    fit_pairs, held_out = _hold_out(len(members), config, generator)
    optimizer = torch.optim.AdamW(
        [p for p in probe.parameters() if p.requires_grad],
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
    )
    training: list[float] = []
    validation: list[float] = []
    best, best_epoch = copy.deepcopy(probe.state_dict()), 0
    stopped = "finished"

    def validate() -> float:
        probe.eval()
        with torch.no_grad():
            columns = slice(0, _VALIDATION_DRAWS + 1)
            distances = probe(members[held_out, columns], xs[held_out])
            if not distances.isfinite().all():
                return math.nan  # comparisons would take NaN for a rank of zero
            return float(probe.gain(distances, divergence))

    if len(held_out):
        validation.append(validate())
    progress = tqdm(
        range(1, config.max_epochs + 1),
        desc=f"Training {probe.spec.name}",
        disable=not show_progress_bar,
        leave=False,
    )
    try:
        for epoch in progress:
            probe.train()
            total = 0.0
            for pairs in _batches(fit_pairs, config.batch_size, generator):
                columns = _subset(members.shape[1], config.draws_per_step, generator)
                bags = members[pairs.unsqueeze(1), columns]  # (B, M + 1, d)
                value = probe.gain(probe(bags, xs[pairs]), divergence)
                optimizer.zero_grad()
                (-value).backward()
                optimizer.step()
                total += value.item() * len(pairs)
            training.append(total / len(fit_pairs))
            if len(held_out):
                validation.append(validate())
            if not math.isfinite(training[-1] + sum(validation[-1:])):
                stopped = "diverged"
                break
            if not len(held_out):
                continue
            if validation[-1] > validation[best_epoch]:
                best, best_epoch = copy.deepcopy(probe.state_dict()), epoch
            elif epoch - best_epoch >= config.patience:
                stopped = "early"
                break
    except KeyboardInterrupt:
        stopped = "interrupted"
        if not len(held_out):
            best_epoch = len(training)
        warnings.warn(
            f"Training of the probe {probe.spec.name!r} was interrupted after "
            f"{len(training)} epochs; its state after epoch {best_epoch} is kept.",
            TrainingInterrupted,
            stacklevel=2,
        )
    finally:
        progress.close()
    if len(held_out) or stopped == "diverged":
        probe.load_state_dict(best)
    else:
        best_epoch = len(training)
    probe.eval()
    return History(tuple(training), tuple(validation), best_epoch, stopped)


def _hold_out(
    num_pairs: int, config: CoLTConfig, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    num_held_out = round(config.validation_fraction * num_pairs)
    if num_held_out < _MIN_VALIDATION_PAIRS or num_held_out == num_pairs:
        num_held_out = 0
    order = torch.randperm(num_pairs, generator=generator)
    return order[num_held_out:], order[:num_held_out]


def _batches(
    pairs: Tensor, batch_size: int | None, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Shuffle pairs into batches of nearly equal size."""
    count = 1 if batch_size is None else math.ceil(len(pairs) / batch_size)
    order = torch.randperm(len(pairs), generator=generator)
    return torch.tensor_split(pairs[order], count)


def _subset(size: int, num_draws: int | None, generator: torch.Generator) -> Tensor:
    """Choose columns of a bag: the truth, and a fresh subset of the draws."""
    draws = torch.randperm(size - 1, generator=generator)[:num_draws] + 1
    return torch.cat([torch.zeros(1, dtype=torch.long), draws])
