"""Scales and axes of data of any kind: heavy tails, counts, constant columns."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["principal_axes", "robust_scales", "signed", "squash"]


def squash(values: Tensor, origin: Tensor, unit: Tensor) -> Tensor:
    """Return sign(z) log(1 + |z| / c), z = x − a: linear near a, else logarithmic."""
    centred = values - origin
    return centred.sign() * (centred.abs() / unit).log1p()


def robust_scales(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return medians and scales of columns; constant columns have scale 1.

    The scale is the interquartile range in units of a Gaussian's standard deviation,
    or the mean distance from the median where half of a column or more is equal.
    """
    places = [int(q * (len(rows) - 1)) for q in (0.25, 0.5, 0.75)]
    ordered = np.partition(rows.T.cpu().numpy(), places, axis=1)  # faster than torch
    low, middle, high = (torch.from_numpy(ordered[:, i]).to(rows) for i in places)
    scale = (high - low) / 1.349
    distance = ((rows - middle).abs() / len(rows)).sum(dim=0)
    scale = torch.where(scale > 0, scale, distance)
    return middle, torch.where(scale > 0, scale, 1.0)


def principal_axes(rows: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Return the mean and the first principal axes, with shape ``(D, number)``.

    Where there are fewer directions than axes, the other axes are zero.
    """
    mean = rows.mean(dim=0)
    centred = rows - mean
    if len(centred) > centred.shape[1]:
        axes = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, :number]
        return mean, signed(axes)
    sizes, left = torch.linalg.eigh(centred @ centred.T)  # the smaller of the two
    sizes, left = sizes.flip(0)[:number], left.flip(1)[:, :number]
    kept = sizes > 1e-12 * sizes[0].clamp_min(1e-300)
    axes = centred.T @ left / torch.where(kept, sizes, 1.0).sqrt() * kept
    return mean, signed(axes)


def signed(columns: Tensor) -> Tensor:
    """Return columns with the sign that makes their largest entry positive."""
    largest = columns.gather(0, columns.abs().argmax(dim=0, keepdim=True))
    return torch.where(largest < 0, -columns, columns)
