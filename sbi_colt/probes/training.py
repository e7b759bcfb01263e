"""Algorithm 1: train a probe so that the ranks of the truths deviate most.

The loss is minus a divergence of the ranks from the uniform distribution (Chen, Bansal
and Scott 2025, Algorithm 1). A hundred pairs are few for a network. So each step sees a
fresh subset of the draws, and a part of the training pairs is held out: the state that
is kept is the best on the held-out pairs, and the initial state is a candidate too.
Test pairs are never seen here.
"""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from tqdm.auto import tqdm

from sbi_colt.checks import check_choice, check_integer, check_number
from sbi_colt.probes.bags import Bags
from sbi_colt.probes.divergences import DIVERGENCES
from sbi_colt.stats.ranks import ball_ranks, straight_through_ranks

if TYPE_CHECKING:  # the base of all probes imports this module
    from sbi_colt.probes.base import Probe

__all__ = ["History", "Training", "TrainingInterrupted", "train"]

# Draws per x on which the validation divergence is measured.
_VALIDATION_DRAWS = 128
_MAX_STEPS = 4  # of an epoch
# With fewer held-out pairs than the first their divergence says nothing, and with more
# than the second it says no more.
_MIN_VALIDATION_PAIRS, _MAX_VALIDATION_PAIRS = 5, 500

Stopped = Literal["untrained", "finished", "early", "interrupted", "diverged"]


class TrainingInterrupted(Warning):
    """Training was interrupted from the keyboard; the best state so far is kept."""


@dataclass(frozen=True)
class Training:
    """How a probe is trained.

    Args:
        divergence: What training maximises: ``"sinkhorn"`` or ``"cramer_von_mises"``.
        learning_rate: Step size of AdamW.
        weight_decay: Weight decay of AdamW.
        max_epochs: Most passes over the training pairs.
        batch_size: Pairs per step; `None` for all. An epoch has at most four steps:
            with more than four batches it sees fresh ones each time.
        draws_per_step: Draws per x in a step, a fresh subset each time; `None` for all.
        validation_fraction: Share of the training pairs held out for early stopping,
            at most 500 pairs. With 0, or with fewer than five such pairs, training runs
            to the end and the last state is used.
        patience: Epochs without a better validation divergence before training stops.
    """

    divergence: str = "cramer_von_mises"
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    max_epochs: int = 200
    batch_size: int | None = 512
    draws_per_step: int | None = 32
    validation_fraction: float = 0.2
    patience: int = 20

    def __post_init__(self):
        check_choice("divergence", self.divergence, tuple(DIVERGENCES))
        for name in ("max_epochs", "patience", "batch_size", "draws_per_step"):
            value = getattr(self, name)
            if value is not None or name in ("max_epochs", "patience"):
                object.__setattr__(self, name, check_integer(name, value, least=1))
        for name, expected, holds in (
            ("learning_rate", "a number > 0", lambda v: v > 0),
            ("weight_decay", "a number >= 0", lambda v: v >= 0),
            ("validation_fraction", "a number in [0, 1)", lambda v: 0 <= v < 1),
        ):
            check_number(name, getattr(self, name), expected, holds)


@dataclass(frozen=True)
class History:
    """How the training of one probe went.

    Args:
        training: Divergence of the training ranks in each epoch.
        validation: Divergence of the held-out ranks before the first epoch and after
            each; empty without early stopping.
        best_epoch: The epoch whose state was kept; 0 is the initial state.
        stopped: Why training stopped.
    """

    training: tuple[float, ...] = ()
    validation: tuple[float, ...] = ()
    best_epoch: int = 0
    stopped: Stopped = "untrained"

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> History:
        """Rebuild a history that has been through JSON."""
        lists = {name: tuple(plain[name]) for name in ("training", "validation")}
        return cls(**{**plain, **lists})


def train(
    probe: Probe,
    bags: Bags,
    settings: Training,
    generator: torch.Generator,
    show_progress_bar: bool = True,
) -> History:
    """Train a probe in place and return how it went.

    Ctrl-C stops training; the best state so far is kept, and a warning says so.

    Args:
        probe: The probe.
        bags: Training bags in the probe's coordinates; the first member of each is the
            truth.
        settings: How to train.
        generator: CPU generator of splits and subsets.
        show_progress_bar: Whether to show the epochs.
    """
    run = _Run(probe, bags, settings, generator)
    progress = tqdm(
        range(1, settings.max_epochs + 1),
        desc=f"Training {probe.name}",
        disable=not show_progress_bar,
        leave=False,
    )
    try:
        for epoch in progress:
            if run.epoch(epoch):
                break
    except KeyboardInterrupt:
        run.stopped = "interrupted"
        warnings.warn(
            f"Training of the probe {probe.name!r} was interrupted after "
            f"{len(run.training)} epochs; its state after epoch {run.kept_epoch} is "
            "kept.",
            TrainingInterrupted,
            stacklevel=2,
        )
    finally:
        progress.close()
    return run.finish()


class _Run:
    """One training: the state so far, and the best one."""

    def __init__(
        self, probe: Probe, bags: Bags, settings: Training, generator: torch.Generator
    ):
        self.probe, self.bags = probe, bags
        self.settings, self.generator = settings, generator
        self.divergence = DIVERGENCES[settings.divergence]
        self.pairs, self.held_out = _hold_out(len(bags), settings, generator)
        self.optimizer = torch.optim.AdamW(
            [p for p in probe.parameters() if p.requires_grad],
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.training: list[float] = []
        self.best, self.best_epoch = copy.deepcopy(probe.state_dict()), 0
        self.stopped: Stopped = "finished"
        self.validation = [self._validate()] if len(self.held_out) else []

    @property
    def kept_epoch(self) -> int:
        """The epoch whose state is kept if training stops now."""
        ends_with_last = not len(self.held_out) and self.stopped != "diverged"
        return len(self.training) if ends_with_last else self.best_epoch

    def epoch(self, number: int) -> bool:
        """Train for one epoch and return whether that was the last."""
        self.probe.train()
        batches = _batches(self.pairs, self.settings.batch_size, self.generator)
        total = sum(self._step(pairs) * len(pairs) for pairs in batches)
        self.training.append(total / sum(map(len, batches)))
        if len(self.held_out):
            self.validation.append(self._validate())
        if not math.isfinite(self.training[-1] + sum(self.validation[-1:])):
            self.stopped = "diverged"
            return True
        if not len(self.held_out):
            return False
        if self.validation[-1] > self.validation[self.best_epoch]:
            self.best, self.best_epoch = copy.deepcopy(self.probe.state_dict()), number
        elif number - self.best_epoch >= self.settings.patience:
            self.stopped = "early"
            return True
        return False

    def finish(self) -> History:
        """Put the state that is kept into the probe."""
        kept = self.kept_epoch
        if len(self.held_out) or self.stopped == "diverged":
            self.probe.load_state_dict(self.best)
        self.probe.eval()
        return History(tuple(self.training), tuple(self.validation), kept, self.stopped)

    def _step(self, pairs: Tensor) -> float:
        size = self.bags.points.shape[1]
        columns = _subset(size, self.settings.draws_per_step, self.generator)
        scores = self.probe(self._part(pairs, columns))  # (B, M + 1)
        ranks = straight_through_ranks(scores[:, 0], scores[:, 1:].T)
        value = self.divergence(ranks)
        self.optimizer.zero_grad()
        (-value).backward()
        self.optimizer.step()
        return value.item()

    def _validate(self) -> float:
        self.probe.eval()
        columns = torch.arange(self.bags.points.shape[1])[: _VALIDATION_DRAWS + 1]
        with torch.no_grad():
            scores = self.probe(self._part(self.held_out, columns))
            if not scores.isfinite().all():
                return math.nan  # comparisons would take NaN for a rank of zero
            return float(self.divergence(ball_ranks(scores[:, 0], scores[:, 1:].T)))

    def _part(self, pairs: Tensor, columns: Tensor) -> Bags:
        points = self.bags.points[pairs.unsqueeze(1), columns]  # (B, M + 1, d)
        return Bags(points, self.bags.xs[pairs])


def _hold_out(
    num_pairs: int, settings: Training, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    num_held_out = round(settings.validation_fraction * num_pairs)
    num_held_out = min(num_held_out, _MAX_VALIDATION_PAIRS)
    if num_held_out < _MIN_VALIDATION_PAIRS or num_held_out == num_pairs:
        num_held_out = 0
    order = torch.randperm(num_pairs, generator=generator)
    return order[num_held_out:], order[:num_held_out]


def _batches(
    pairs: Tensor, batch_size: int | None, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Shuffle pairs into batches of nearly equal size, at most as many as an epoch has.

    The number of steps that a network needs does not grow with the number of pairs.
    """
    count = 1 if batch_size is None else math.ceil(len(pairs) / batch_size)
    order = torch.randperm(len(pairs), generator=generator)
    return torch.tensor_split(pairs[order], count)[:_MAX_STEPS]


def _subset(size: int, num_draws: int | None, generator: torch.Generator) -> Tensor:
    """Choose columns of a bag: the truth, and a fresh subset of the draws."""
    draws = torch.randperm(size - 1, generator=generator)[:num_draws] + 1
    return torch.cat([torch.zeros(1, dtype=torch.long), draws])
