"""The shared draws: pairs (θ, x) and K posterior draws for each x."""

from __future__ import annotations

import hashlib
import os
import warnings
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbi_colt.files import atomic_write
from sbi_colt.randomness import digest, generator_from, resolve_seed

__all__ = ["Draws", "clean_pairs", "pair_keys", "shuffle_draws"]

_CHUNK = 2**16  # draws that are shuffled at once


@dataclass(frozen=True, eq=False)
class Draws:
    """Pairs from the joint distribution, and draws from the posterior under test.

    Everything is checked here, once. Integer arrays are converted where that loses
    nothing; parameters and draws share one floating type. Pairs whose x has a NaN or an
    infinity are dropped with a warning. ``mask`` says which of the pairs handed in were
    kept, ``index`` where each of the pairs here stood among them; both survive a split.

    The *bag* at x_i is {θ_i, θ_i^1, …, θ_i^S}: the truth and its draws. If q(θ | x) =
    p(θ | x), its members are exchangeable; every test here is of that. Draws of each x
    are shuffled, so that they may come in any order, by component or sorted. But they
    must be independent: stratified or quasi-random ones, or a chain that has not mixed,
    count as wrong.

    Args:
        thetas: True parameters θ ~ p(θ | x), with shape ``(N, d)``; torch or NumPy.
        xs: Observations, with shape ``(N, …)``.
        samples: Independent draws from q(θ | x), with shape ``(S, N, d)``.
        shuffle: Whether to shuffle them. They may keep their order only where it says
            nothing, as that of independent draws.

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
    mask: Tensor = field(init=False)
    index: Tensor = field(init=False)
    shuffle: InitVar[bool] = field(default=True, kw_only=True)

    def __post_init__(self, shuffle: bool):
        thetas, xs, mask = clean_pairs(self.thetas, self.xs, stacklevel=4)
        samples = _as_float_tensor(self.samples, "samples")
        _check_samples(samples, num_pairs=len(mask), dim=thetas.shape[1])
        samples = samples[:, mask.to(samples.device)].to(thetas.device)
        _check_finite(samples, "samples")
        if shuffle:  # in place: taking the kept pairs has made a copy
            shuffle_draws(samples, generator_from(0, "draws", digest(thetas, xs)))
        thetas, samples = _alike(thetas, samples)
        index = mask.nonzero().flatten().cpu()
        _set(self, thetas, xs, samples, mask.cpu(), index)

    def __len__(self) -> int:
        return len(self.thetas)

    def __repr__(self) -> str:
        return (
            f"Draws(num_pairs={len(self)}, "
            f"num_posterior_samples={self.num_posterior_samples}, dim={self.dim}, "
            f"x_shape={tuple(self.xs.shape[1:])})"
        )

    @property
    def num_posterior_samples(self) -> int:
        """Draws per x, K."""
        return self.samples.shape[0]

    @property
    def dim(self) -> int:
        """Dimension of θ, d."""
        return self.thetas.shape[1]

    def to(self, device: str | torch.device) -> Draws:
        """Return the draws on another device."""
        thetas, xs, samples = (tensor.to(device) for tensor in self._tensors())
        return _replace(self, thetas, xs, samples, self.index)

    def select(self, index: Tensor) -> Draws:
        """Return the pairs at ``index`` (positions or a boolean mask)."""
        here = index.to(self.thetas.device)
        return _replace(
            self,
            self.thetas[here],
            self.xs[here],
            self.samples[:, here],
            self.index[index.cpu()],
        )

    def numbered(self, mask: Tensor, index: Tensor) -> Draws:
        """Return the draws with another account of the pairs handed in."""
        new = object.__new__(type(self))
        _set(new, *self._tensors(), mask.cpu(), index.cpu())
        return new

    def bags(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return bags ``(N, K + 1, d)`` and the place of the truth in each, ``(N,)``.

        The place is random: arithmetic may round differently from place to place, and
        members must be exchangeable to the last bit.
        """
        members = torch.cat([self.thetas.unsqueeze(0), self.samples])
        members = members.transpose(0, 1).clone()  # (N, K + 1, d), the truth first
        num_pairs, size, _ = members.shape
        truth = torch.randint(size, (num_pairs,), generator=generator)
        truth = truth.to(members.device)
        rows = torch.arange(num_pairs, device=members.device)
        members[rows, 0] = members[rows, truth]
        members[rows, truth] = self.thetas
        return members, truth

    def split(self, fraction: float, seed: int | None = None) -> tuple[Draws, Draws]:
        """Split the pairs at random into two disjoint sets.

        Args:
            fraction: Share of the pairs in the first set, in (0, 1).
            seed: Seed of the split.

        Returns:
            The two sets.
        """
        if not 0 < fraction < 1:
            raise ValueError(f"fraction: expected a number in (0, 1), got {fraction}.")
        first = round(fraction * len(self))
        if first == 0 or first == len(self):
            raise ValueError(
                f"fraction: a share of {fraction} of {len(self)} pairs leaves one side "
                "empty; simulate more pairs or choose another share."
            )
        generator = generator_from(resolve_seed(seed), "split")
        order = torch.randperm(len(self), generator=generator)
        return self.select(order[:first]), self.select(order[first:])

    def save(self, path: str | os.PathLike) -> None:
        """Write the draws to an ``.npz`` file, without pickle."""
        arrays = [t.detach().cpu().numpy() for t in self._tensors()]
        with atomic_write(path, "wb") as file:
            np.savez_compressed(
                file, thetas=arrays[0], xs=arrays[1], samples=arrays[2], shuffled=True
            )

    @classmethod
    def load(cls, path: str | os.PathLike) -> Draws:
        """Read draws from an ``.npz`` file with ``thetas``, ``xs`` and ``samples``."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except FileNotFoundError:
            raise
        except Exception as error:  # NumPy's own words suggest to allow pickle
            raise ValueError(
                f"{path}: expected an .npz file with thetas, xs and samples "
                "(numpy.savez or Draws.save)."
            ) from error
        missing = {"thetas", "xs", "samples"} - set(arrays)
        if missing:
            raise ValueError(
                f"{path}: expected arrays thetas, xs and samples, "
                f"missing {', '.join(sorted(missing))}."
            )
        return cls(
            arrays["thetas"],
            arrays["xs"],
            arrays["samples"],
            shuffle=not arrays.get("shuffled", False),
        )

    def _tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.thetas, self.xs, self.samples


def shuffle_draws(samples: Tensor, generator: torch.Generator) -> None:
    """Shuffle the draws of each x in place, a few xs at a time to save memory."""
    num_samples, num_xs, _ = samples.shape
    step = max(1, _CHUNK // num_samples)
    for start in range(0, num_xs, step):
        part = samples[:, start : start + step]
        order = torch.rand(part.shape[:2], generator=generator).argsort(dim=0)
        order = order.to(part.device).unsqueeze(-1).expand_as(part)
        samples[:, start : start + step] = part.gather(0, order)


def clean_pairs(
    thetas: Any, xs: Any, stacklevel: int = 3
) -> tuple[Tensor, Tensor, Tensor]:
    """Check pairs and drop those whose x has a NaN or an infinity, with a warning.

    Args:
        thetas: True parameters, with shape ``(N, d)``.
        xs: Observations, with shape ``(N, …)``.
        stacklevel: Whose line the warning names.

    Returns:
        Parameters and observations of the pairs kept, and the mask ``(N,)`` of them.
    """
    thetas = _as_float_tensor(thetas, "thetas")
    xs = _as_float_tensor(xs, "xs").to(thetas.device)
    _check_pairs(thetas, xs)
    mask = xs.isfinite().reshape(len(xs), -1).all(dim=1)  # (N,)
    dropped, total = int((~mask).sum()), len(mask)
    if dropped == total:
        raise ValueError(
            f"xs: every one of the {total} observations has a NaN or an infinity; "
            "nothing is left to test."
        )
    if dropped:
        warnings.warn(
            f"xs: dropped {dropped} of {total} pairs whose x has a NaN or an "
            "infinity; `mask` says which ones were kept.",
            stacklevel=stacklevel,
        )
    thetas, xs = thetas[mask], xs[mask]
    _check_finite(thetas, "thetas")
    return thetas, xs, mask


def pair_keys(thetas: Tensor, xs: Tensor) -> list[bytes]:
    """Return a fingerprint of each pair, and none at all for discrete data.

    A pair that occurs twice was used twice, unless it can repeat by chance: where no
    column of θ or x looks continuous, a repeat proves nothing.

    Raises:
        ValueError: Pairs repeat that cannot do so by chance. They are not independent,
            and half of them could train what the other half tests.
    """
    pairs = torch.cat([thetas.double(), xs.double().reshape(len(xs), -1)], dim=1)
    rows = pairs.cpu().contiguous().numpy()
    keys = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows]
    distinct = dict(zip(keys, range(len(keys)), strict=True))
    if not any(map(_looks_continuous, rows[sorted(distinct.values())].T)):
        return []
    if len(distinct) < len(keys):
        raise ValueError(
            f"thetas, xs: {len(keys) - len(distinct)} of {len(keys)} pairs are repeats "
            "of others; a test needs independent pairs, each simulated once."
        )
    return keys


def _looks_continuous(values: np.ndarray) -> bool:
    """Return whether values all differ and mostly have more than four digits."""
    if len(np.unique(values)) < len(values):
        return False
    size = np.where(values == 0, 1.0, np.abs(values))
    unit = 10.0 ** (np.floor(np.log10(size)) - 3)
    rounded = np.round(values / unit) * unit
    return float(np.mean(np.abs(rounded - values) > 1e-6 * size)) > 0.5


def _set(draws: Draws, *values: Tensor) -> None:
    names = ("thetas", "xs", "samples", "mask", "index")
    for name, value in zip(names, values, strict=True):
        object.__setattr__(draws, name, value)


def _replace(
    draws: Draws, thetas: Tensor, xs: Tensor, samples: Tensor, index: Tensor
) -> Draws:
    """Return draws from tensors that are known to be sound."""
    new = object.__new__(type(draws))
    _set(new, thetas, xs, samples, draws.mask, index)
    return new


def _alike(thetas: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in one type; in single precision if one of them is.

    Rounded alike, 0.1 is equal to 0.1. Else truths and draws of discrete parameters
    would all differ by one and the same rounding, which ranks would take for an error.
    """
    if thetas.dtype == samples.dtype:
        return thetas, samples
    return _rounded(thetas), _rounded(samples)


def _rounded(values: Tensor) -> Tensor:
    """Return doubles with the digits of single precision, and of any size."""
    single = values.float().double()
    return torch.where(single.isfinite(), single, values.double())


def _as_float_tensor(value: Any, name: str) -> Tensor:
    if isinstance(value, (list, tuple)):
        raise TypeError(
            f"{name}: expected a torch or NumPy array, got a {type(value).__name__}; "
            f"stack its {len(value)} entries with torch.stack or numpy.stack."
        )
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: expected a plain array, got a masked one; leave the masked pairs "
            "out."
        )
    if isinstance(value, Tensor):
        tensor = value.detach()
    else:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError(
                f"{name}: expected numbers, got dtype {array.dtype} "
                f"({type(value).__name__})."
            )
        if array.dtype.itemsize > 8 or array.dtype == np.uint64:
            # torch has neither: through doubles, if that loses nothing.
            exact = array.astype(np.float64)
            if not np.array_equal(exact.astype(array.dtype), array, equal_nan=True):
                raise TypeError(_inexact(name, array.dtype))
            array = exact
        tensor = torch.from_numpy(np.array(array))
    if tensor.is_complex():
        raise TypeError(
            f"{name}: expected real numbers, got {tensor.dtype}; "
            "split real and imaginary parts."
        )
    if tensor.dtype in (torch.float32, torch.float64):
        return tensor
    for dtype in (torch.float32, torch.float64):  # half, integers, booleans
        converted = tensor.to(dtype)
        same = (converted.to(tensor.dtype) == tensor) | converted.isnan()
        if bool(same.all()):
            return converted
    raise TypeError(_inexact(name, tensor.dtype))


def _inexact(name: str, dtype: Any) -> str:
    return (
        f"{name}: dtype {dtype} holds values that no float represents exactly; "
        "convert it yourself."
    )


def _check_pairs(thetas: Tensor, xs: Tensor) -> None:
    if thetas.ndim != 2:
        raise ValueError(
            f"thetas: expected shape (N, d), got {tuple(thetas.shape)}; "
            "use thetas.reshape(-1, 1) for a single parameter."
        )
    num_pairs, dim = thetas.shape
    if num_pairs == 0 or dim == 0:
        raise ValueError(
            "thetas: expected at least one pair and one parameter, "
            f"got shape {tuple(thetas.shape)}."
        )
    if xs.ndim == 0 or len(xs) != num_pairs:
        raise ValueError(
            f"xs: expected {num_pairs} observations, one per row of thetas, "
            f"got shape {tuple(xs.shape)}."
        )
    if xs[0].numel() == 0:
        raise ValueError(f"xs: observations are empty, got shape {tuple(xs.shape)}.")


def _check_samples(samples: Tensor, num_pairs: int, dim: int) -> None:
    if samples.ndim != 3 or samples.shape[1:] != (num_pairs, dim):
        hint = ""
        if samples.ndim == 3 and samples.shape[0] == num_pairs != samples.shape[1]:
            hint = "; it looks transposed: use samples.transpose(0, 1)"
        raise ValueError(
            f"samples: expected shape (S, {num_pairs}, {dim}), as thetas has shape "
            f"({num_pairs}, {dim}), got {tuple(samples.shape)}{hint}."
        )
    if samples.shape[0] == 0:
        raise ValueError(
            "samples: expected at least one posterior draw per x (S >= 1), got S = 0."
        )


def _check_finite(values: Tensor, name: str) -> None:
    bad = ~values.isfinite()
    if bad.any():
        where = bad.nonzero()[0].tolist()
        raise ValueError(
            f"{name}: expected finite values, got {int(bad.sum())} NaN or infinite, "
            f"the first at index {where}; a posterior or simulator that fails must "
            "be mended or its pairs left out before the test."
        )
