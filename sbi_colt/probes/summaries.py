"""Summaries of data that know the shape of x: series, images, sets and channels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["LEAST_SUMMARISED", "summaries", "summary_names"]

LEAST_SUMMARISED = 8  # fewer numbers have no summaries
_MAX_CHANNELS = 4
_QUANTILES = {"10% quantile": 0.1, "median": 0.5, "90% quantile": 0.9}


def _channel_axis(x_shape: Sequence[int]) -> int | None:
    """Return the axis of x that counts channels, if any: one that is short."""
    if len(x_shape) < 2:
        return None
    shortest = min(x_shape)
    others = sorted(x_shape)[1]
    is_clear = shortest <= _MAX_CHANNELS and 2 * shortest <= others
    return x_shape.index(shortest) if is_clear else None


def summaries(rows: Tensor, x_shape: Sequence[int]) -> Tensor:
    """Return summaries of squashed data ``(N, D)``, in the order of their names."""
    axis = _channel_axis(x_shape)
    values = rows.reshape(-1, *x_shape)
    values = values.unsqueeze(1) if axis is None else values.movedim(axis + 1, 1)
    flat = values.flatten(2)  # (N, C, …) -> (N, C, D / C)
    mean = flat.mean(dim=2)  # (N, C)
    centred = flat - mean.unsqueeze(2)
    variance = centred.square().mean(dim=2) + 1e-12
    ordered = flat.sort(dim=2).values
    last = flat.shape[2] - 1
    columns = [mean, variance.log() / 2, ordered[..., 0], ordered[..., -1]]
    columns += [ordered[..., round(q * last)] for q in _QUANTILES.values()]
    grid = centred.reshape(values.shape)
    for place, lag in _lags(values.shape[2:]):
        length = grid.shape[place + 2]
        early = grid.narrow(place + 2, 0, length - lag)
        late = grid.narrow(place + 2, lag, length - lag)
        columns.append((early * late).flatten(2).mean(dim=2) / variance)
    columns.append(_clustering(grid))
    unit = centred / variance.sqrt().unsqueeze(2)
    first, second = torch.triu_indices(flat.shape[1], flat.shape[1], offset=1)
    columns.append((unit[:, first] * unit[:, second]).mean(dim=2))
    return torch.cat(columns, dim=1)


def _clustering(grid: Tensor) -> Tensor:
    """Return the autocorrelation of absolute deviations along the last axis, (N, C)."""
    sizes = grid.abs()
    sizes = sizes - sizes.mean(dim=tuple(range(2, grid.ndim)), keepdim=True)
    products = (sizes[..., 1:] * sizes[..., :-1]).flatten(2).sum(dim=2)
    return products / (sizes.square().flatten(2).sum(dim=2) + 1e-12)


def _lags(space: Sequence[int]) -> list[tuple[int, int]]:
    """Return axes and lags of the autocorrelations of a channel."""
    lags = [(axis, 1) for axis, length in enumerate(space) if length > 2]
    if len(space) == 1 and space[0] > 4:
        lags.append((0, 2))
    return lags


def summary_names(x_shape: Sequence[int]) -> list[str]:
    """Return the names of `summaries`."""
    axis = _channel_axis(x_shape)
    space = [n for i, n in enumerate(x_shape) if i != axis]
    lags = [
        f"autocorrelation at lag {lag}" + (f" of axis {place}" if space[1:] else "")
        for place, lag in _lags(space)
    ]
    kinds = ["mean", "log spread", "minimum", "maximum", *_QUANTILES, *lags]
    kinds.append("autocorrelation of absolute deviations")
    if axis is None:
        return kinds
    number = x_shape[axis]
    first, second = torch.triu_indices(number, number, offset=1).tolist()
    return [f"{kind} of channel {i}" for kind in kinds for i in range(number)] + [
        f"correlation of channels {i} and {j}"
        for i, j in zip(first, second, strict=True)
    ]
