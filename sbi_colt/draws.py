"""The shared draws: pairs (θ, x) and K posterior draws for each x."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbi_colt.randomness import generator_from, resolve_seed

__all__ = ["Draws", "clean_pairs"]


@dataclass(frozen=True, eq=False)
class Draws:
    """Pairs from the joint distribution, and draws from the posterior under test.

    Everything is checked here, once. Integer arrays are converted where that loses
    nothing; parameters and draws share one floating type. Pairs whose x has a NaN or an
    infinity are dropped with a warning, and ``mask`` says which ones were kept.

    Args:
        thetas: True parameters θ ~ p(θ | x), with shape ``(N, d)``; torch or NumPy.
        xs: Observations, with shape ``(N, …)``.
        samples: Draws from q(θ | x), with shape ``(S, N, d)``: for each x, S draws that
            are exchangeable with each other (no order by chain or component).

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

    def __post_init__(self):
        thetas, xs, mask = clean_pairs(self.thetas, self.xs)
        samples = _as_float_tensor(self.samples, "samples")
        _check_samples(samples, num_pairs=len(mask), dim=thetas.shape[1])
        _check_finite(samples, "samples")
        samples = samples[:, mask.to(samples.device)]
        dtype = torch.promote_types(thetas.dtype, samples.dtype)
        for name, value in (
            ("thetas", thetas.to(dtype)),
            ("xs", xs),
            ("samples", samples.to(thetas.device, dtype)),
            ("mask", mask),
        ):
            object.__setattr__(self, name, value)

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
        return _replace(self, *(t.to(device) for t in self._tensors()))

    def select(self, index: Tensor) -> Draws:
        """Return the pairs at ``index`` (positions or a boolean mask)."""
        index = index.to(self.thetas.device)
        return _replace(
            self, self.thetas[index], self.xs[index], self.samples[:, index]
        )

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
        with open(path, "wb") as file:
            np.savez_compressed(file, thetas=arrays[0], xs=arrays[1], samples=arrays[2])

    @classmethod
    def load(cls, path: str | os.PathLike) -> Draws:
        """Read draws from an ``.npz`` file with ``thetas``, ``xs`` and ``samples``."""
        try:
            with np.load(path, allow_pickle=False) as file:
                missing = {"thetas", "xs", "samples"} - set(file.files)
                if missing:
                    raise ValueError(
                        f"{path}: expected arrays thetas, xs and samples, "
                        f"missing {', '.join(sorted(missing))}."
                    )
                return cls(file["thetas"], file["xs"], file["samples"])
        except (AttributeError, EOFError, OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise ValueError(f"{path}: not an .npz file of draws.") from error

    def _tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.thetas, self.xs, self.samples


def clean_pairs(thetas: Any, xs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Check pairs and drop those whose x has a NaN or an infinity, with a warning.

    Args:
        thetas: True parameters, with shape ``(N, d)``.
        xs: Observations, with shape ``(N, …)``.

    Returns:
        Parameters and observations of the pairs kept, and the mask ``(N,)`` of them.
    """
    thetas = _as_float_tensor(thetas, "thetas")
    xs = _as_float_tensor(xs, "xs").to(thetas.device)
    _check_pairs(thetas, xs)
    _check_finite(thetas, "thetas")
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
            stacklevel=4,
        )
    return thetas[mask], xs[mask], mask


def _replace(draws: Draws, thetas: Tensor, xs: Tensor, samples: Tensor) -> Draws:
    """Return draws from tensors that are known to be sound."""
    new = object.__new__(type(draws))
    mask = torch.ones(len(thetas), dtype=torch.bool)
    for name, value in (
        ("thetas", thetas),
        ("xs", xs),
        ("samples", samples),
        ("mask", mask),
    ):
        object.__setattr__(new, name, value)
    return new


def _as_float_tensor(value: Any, name: str) -> Tensor:
    if isinstance(value, (list, tuple)):
        raise TypeError(
            f"{name}: expected a torch or NumPy array, got a {type(value).__name__}; "
            f"stack its {len(value)} entries with torch.stack or numpy.stack."
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
        if array.dtype.kind == "f" and array.dtype.itemsize > 8:
            array = array.astype(np.float64)
        if array.dtype.kind == "u" and array.dtype.itemsize > 1:
            array = array.astype(np.float64)
        tensor = torch.from_numpy(np.ascontiguousarray(array.copy()))
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
    raise TypeError(
        f"{name}: dtype {tensor.dtype} holds values that no float represents exactly; "
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
