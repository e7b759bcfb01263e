"""The shared draws: pairs (θ, x) and K posterior draws for each x."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from sbi_colt.arrays import (
    check_finite,
    check_log_weights,
    check_samples,
    clean_pairs,
    in_one_precision,
)
from sbi_colt.checks import check_inner_share, checked_device
from sbi_colt.draws_file import read_arrays, write_draws
from sbi_colt.pair_keys import make_pair_keys
from sbi_colt.randomness import digest, generator_from, resolve_seed, shuffle_draws
from sbi_colt.replicate_checks import check_further, clean_data_side

__all__ = ["Draws", "make_predictive"]

# Numbers in one block of bags: 2**20 doubles are 8 MiB.
_BLOCK = 2**20


@dataclass(frozen=True, eq=False)
class Draws:
    """Pairs from the joint distribution, and draws from the posterior under test.

    All checks are made here, once. Integer arrays are converted where that loses
    nothing; parameters and draws are rounded to the same precision. Pairs whose x has
    a NaN or an infinity are dropped with a warning. ``mask`` says which of the pairs
    handed in were kept, and ``index`` at which place each pair was handed in; a split
    keeps both. Pairs that occur twice are refused unless they can repeat by chance.

    The *bag* at x_i is {θ_i, θ_i^1, …, θ_i^S}: the truth and its draws. If q(θ | x) =
    p(θ | x), its members are exchangeable, which is what every test here tests. The
    draws at each x are shuffled, so they may come in any order, for example sorted or
    by component. They must be independent: stratified or quasi-random draws, or a
    chain that has not mixed, count as wrong.

    Args:
        thetas: True parameters θ ~ p(θ | x), with shape ``(N, d)``; torch or NumPy.
        xs: Observations, with shape ``(N, …)``.
        samples: Independent draws from q(θ | x), with shape ``(S, N, d)``. `None`, kept
            as S = 0, where only the data side is wanted.
        predictive: The data side, or `None`: draws with the roles swapped, made by
            `make_predictive`. Selections do not keep it, and of a split the first set
            keeps what belongs to its pairs.
        log_weights: For pairs from a proposal π̃ instead of the prior π: log π̃(θ) −
            log π(θ) of all members, up to a constant for each x, with shape ``(S + 1,
            N)``, the truth first; −∞ for draws outside the prior. `None` for pairs from
            the prior. Draws with weights must be thinned before they are tested
            (`sbi_colt.weighted.thinned`).
        drawn: On a data side, at which xs the posterior could be sampled, with shape
            ``(n,)``; `None` for all. At the other xs θ' is the true parameter: such a
            bag is valid for every posterior, and says nothing about it.
        mask: For internal use. Draws that are given ``mask`` and ``index`` are not
            checked again.
        index: For internal use.
        keys: For internal use: fingerprints of the pairs.
        shuffle: Whether to shuffle the draws. Switch it off only where their order
            carries no information, as with independent draws.

    Example:
        >>> draws = Draws(torch.zeros(10, 2), torch.zeros(10, 3), torch.zeros(5, 10, 2))
        >>> draws
        Draws(num_pairs=10, num_posterior_samples=5, dim=2, x_shape=(3,))
        >>> [len(part) for part in draws.split(0.4, seed=0)]
        [4, 6]
    """

    thetas: Tensor
    xs: Tensor
    samples: Tensor
    predictive: Draws | None = field(default=None, kw_only=True)
    log_weights: Tensor | None = field(default=None, kw_only=True)
    drawn: Tensor | None = field(default=None, kw_only=True)
    mask: Tensor = field(default_factory=lambda: torch.zeros(0), kw_only=True)
    index: Tensor = field(default_factory=lambda: torch.zeros(0), kw_only=True)
    keys: Tensor | None = field(default=None, kw_only=True)
    shuffle: InitVar[bool] = field(default=True, kw_only=True)

    def __post_init__(self, shuffle: bool):
        if len(self.index):
            return  # made from draws that were checked
        thetas, samples = self.thetas, self.samples
        if samples is not None:
            thetas, samples = in_one_precision(thetas, "thetas", samples, "samples")
        thetas, xs, mask = clean_pairs(thetas, self.xs)
        if samples is None:
            samples = thetas.new_zeros((0, len(mask), thetas.shape[1]))
        else:
            check_samples(samples, num_pairs=len(mask), dim=thetas.shape[1])
        samples = samples.to(thetas.device)
        if shuffle or not mask.all():
            samples = samples[:, mask]  # a copy
        check_finite(samples, "samples")
        log_weights = self.log_weights
        if log_weights is not None:
            log_weights = check_log_weights(log_weights, (len(samples) + 1, len(mask)))
            log_weights = log_weights[:, mask.cpu()]
            shuffle = False  # thinning takes draws in random order
        if shuffle:
            shuffle_draws(samples, generator_from(0, "draws", digest(thetas, xs)))
        for name, value in (
            ("thetas", thetas),
            ("xs", xs),
            ("samples", samples),
            ("log_weights", log_weights),
            ("mask", mask.cpu()),
            ("index", mask.nonzero().flatten().cpu()),
            ("keys", make_pair_keys(thetas, xs)),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.thetas)

    def __repr__(self) -> str:
        return (
            f"Draws(num_pairs={len(self)}, "
            f"num_posterior_samples={self.num_posterior_samples}, dim={self.dim}, "
            f"x_shape={tuple(self.xs.shape[1:])}"
            + ("" if self.predictive is None else f", predictive={self.predictive}")
            + ")"
        )

    @property
    def num_posterior_samples(self) -> int:
        """Draws per x, S in shapes and K in formulas."""
        return self.samples.shape[0]

    @property
    def num_drawn(self) -> int:
        """On a data side, the bags that test the posterior: it was sampled there."""
        return len(self) if self.drawn is None else int(self.drawn.sum())

    @property
    def dim(self) -> int:
        """Dimension of θ, d."""
        return self.thetas.shape[1]

    def to(self, device: str | torch.device) -> Draws:
        """Return the draws on another device."""
        device = checked_device(device)
        return replace(
            self,
            thetas=self.thetas.to(device),
            xs=self.xs.to(device),
            samples=self.samples.to(device),
            predictive=self.predictive and self.predictive.to(device),
        )

    def with_predictive(self, predictive: Draws | None) -> Draws:
        """Return the same draws with a data side, or without one."""
        return replace(self, predictive=predictive)

    def map_bags(
        self, function: Callable[[Tensor], Tensor], generator: torch.Generator
    ) -> Draws:
        """Return the same pairs with all members of their bags mapped.

        Args:
            function: A function from bags ``(N, K + 1, d)`` to ``(N, K + 1, e)`` that
                treats all members of a bag alike.
            generator: CPU generator of the place of the truth in each bag, which the
                function does not know.
        """
        truth = self.place_truths(generator)
        members = function(self.bags(truth))
        rows = torch.arange(len(self), device=members.device)
        thetas = members[rows, truth]
        members[rows, truth] = members[:, 0]
        samples = members[:, 1:].transpose(0, 1)
        return replace(self, thetas=thetas, samples=samples)

    def select(self, index: Tensor) -> Draws:
        """Return the pairs at ``index`` (positions or a boolean mask)."""
        here, there = index.to(self.thetas.device), index.cpu()
        repeats = 0 if there.dtype == torch.bool else len(there) - len(there.unique())
        if repeats:
            raise ValueError(
                f"index: {repeats} of {len(there)} positions are repeats of others; a "
                "test needs independent pairs."
            )
        weights = self.log_weights
        return replace(
            self,
            thetas=self.thetas[here],
            xs=self.xs[here],
            samples=self.samples[:, here],
            log_weights=None if weights is None else weights[:, there],
            predictive=None,
            drawn=None if self.drawn is None else self.drawn[there],
            index=self.index[there],
            keys=None if self.keys is None else self.keys[there],
        )

    def place_truths(self, generator: torch.Generator) -> Tensor:
        """Return a random place for the truth in each bag, with shape ``(N,)``.

        Arithmetic may round differently from place to place, and members must be
        exchangeable to the last bit.
        """
        self.check_equal_weights()
        size = self.num_posterior_samples + 1
        truth = torch.randint(size, (len(self),), generator=generator)
        return truth.to(self.thetas.device)

    def check_equal_weights(self) -> None:
        """Raise if the members of bags have weights."""
        if self.log_weights is not None:
            raise ValueError(
                "draws: the pairs come from a proposal, so the members of a bag have "
                "weights (log_weights); use sbi_colt.weighted.thinned(draws) first."
            )

    def bags(self, truth: Tensor, rows: slice = slice(None)) -> Tensor:
        """Return the bags of some pairs, with shape ``(n, K + 1, d)``.

        Args:
            truth: The place of the truth in each of the N bags, with shape ``(N,)``.
            rows: Which pairs.
        """
        thetas, truth = self.thetas[rows], truth[rows]
        size = (len(thetas), self.num_posterior_samples + 1, self.dim)
        members = torch.empty(size, dtype=thetas.dtype, device=thetas.device)
        members[:, 1:] = self.samples[:, rows].transpose(0, 1)
        bags = torch.arange(len(thetas), device=thetas.device)
        members[:, 0] = members[bags, truth]  # of no use where the truth comes first
        members[bags, truth] = thetas
        return members

    def blocks(self) -> Iterator[slice]:
        """Yield the pairs in blocks whose bags fit into a few dozen MiB."""
        numbers = (self.num_posterior_samples + 1) * self.dim
        step = max(1, _BLOCK // numbers)
        for start in range(0, len(self), step):
            yield slice(start, min(start + step, len(self)))

    def split(self, fraction: float, seed: int | None = None) -> tuple[Draws, Draws]:
        """Split the pairs at random into two disjoint sets.

        The first set, for training, takes the pairs that have replicates before all
        others, and keeps the data side of its own pairs: a data side shows more about
        the simulator, and no test may have seen the replicates of its pairs.

        Args:
            fraction: Share of the pairs in the first set, in (0, 1).
            seed: Seed of the split.

        Returns:
            The two sets.
        """
        check_inner_share("fraction", fraction)
        first = round(fraction * len(self))
        if first == 0 or first == len(self):
            raise ValueError(
                f"fraction: a share of {fraction} of {len(self)} pairs leaves one side "
                "empty; simulate more pairs or choose another share."
            )
        generator = generator_from(resolve_seed(seed), "split")
        order = torch.randperm(len(self), generator=generator)
        data = self.predictive
        if data is None:
            return self.select(order[:first]), self.select(order[first:])
        own = _row_keys(self.xs)
        replicated = _are_among(own, _row_keys(data.thetas))
        order = order[replicated[order].argsort(descending=True, stable=True)]
        train, test = self.select(order[:first]), self.select(order[first:])
        tested = {own[i] for i in order[first:].tolist()}
        kept = ~_are_among(_row_keys(data.thetas), tested)
        return train.with_predictive(data.select(kept) if kept.any() else None), test

    def save(self, path: str | os.PathLike) -> None:
        """Write the draws to an ``.npz`` file, without pickle."""
        write_draws(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Draws:
        """Read draws from an ``.npz`` file, made by `save` or by ``numpy.savez``.

        `sbi_colt.draws_file` describes its arrays.
        """
        arrays = read_arrays(path)
        shuffle = not arrays.get("shuffled", False)  # not from `save`
        draws = cls(
            arrays["thetas"],
            arrays["xs"],
            cast(Tensor, arrays.get("samples")),
            log_weights=arrays.get("log_weights"),
            shuffle=shuffle,
        )
        if "replicates" not in arrays:
            return draws
        chosen = arrays["thetas_of_posterior"]
        if shuffle and "samples" in arrays:
            check_further(chosen, arrays["samples"])
        return draws.with_predictive(
            make_predictive(
                arrays.get("replicated_xs", arrays["xs"][: len(chosen)]),
                chosen,
                arrays["replicates"],
                drawn=arrays.get("drawn"),
                shuffle=shuffle,
            )
        )


def _row_keys(rows: Tensor) -> list[bytes]:
    """Return what tells data ``(n, …)`` apart, in single precision."""
    return [row.tobytes() for row in rows.flatten(1).float().cpu().numpy()]


def _are_among(keys: Sequence[bytes], others: Iterable[bytes]) -> Tensor:
    """Return which keys are among the others, with shape ``(n,)``."""
    known = set(others)
    return torch.tensor([key in known for key in keys])


def make_predictive(
    xs: Any, thetas: Any, replicates: Any, *, drawn: Any = None, shuffle: bool = True
) -> Draws:
    """Return the data side: bags of data, with parameters as the condition.

    At each x there is one draw θ' from q(θ | x) and M replicates x' from p(x | θ'). If
    q is right, (θ', x) is a pair like any other, so x and its replicates are
    exchangeable: a bag in which x plays the part of the true parameter, and θ' that of
    the observation. Data are flattened.

    Args:
        xs: Observations, with shape ``(n, …)``.
        thetas: One draw θ' of the posterior at each x, with shape ``(n, d)``. It must
            not be one of the draws that the parameter side looks at, but it may be a
            random member of the whole bag, true parameter included.
        replicates: Data simulated from θ', with shape ``(M, n, …)``.
        drawn: At which xs the posterior could be sampled, with shape ``(n,)``; `None`
            for all. The true parameter may stand in at the others.
        shuffle: Whether to shuffle the replicates at each x.

    Pairs whose x or one of whose replicates has a NaN or an infinity are dropped with a
    warning. That treats all members of a bag alike, so they stay exchangeable.

    Raises:
        ValueError: Shapes do not fit, or the simulator has no randomness of its own.
    """
    xs, thetas, replicates, drawn = clean_data_side(xs, thetas, replicates, drawn)
    return Draws(xs, thetas, replicates, drawn=drawn, shuffle=shuffle)
