"""Measure the total curvature of principal curves through bivariate Gaussians.

The table has the curvature before and after the map of the curved family, in degrees of
turning along the whole curve (half a minute).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import torch

from sbi_colt.benchmark.tasks.curved import bend
from sbi_colt.randomness import generator_from

OPTIONS = {}


def run(
    options: argparse.Namespace, num_points: int = 1000, num_seeds: int = 10
) -> Iterator[str]:
    """Yield medians of total curvature, with the smallest and the largest.

    Bivariate Gaussians with correlation 0.9 and standard deviation 1 or 3 are bent by
    networks of several seeds.
    """
    yield f"{'deviation':>9}{'before':>20}{'after':>20}"
    generator = generator_from(0, "curvature")
    factor = torch.linalg.cholesky(torch.tensor([[1.0, 0.9], [0.9, 1.0]]))
    for deviation in (1, 3):
        before, after = [], []
        for seed in range(num_seeds):
            normal = torch.randn(num_points, 2, generator=generator)
            cloud = deviation * normal @ factor.T
            for points, into in ((cloud, before), (bend(cloud, seed), after)):
                curve = principal_curve(points.double().numpy())
                into.append(total_curvature(curve))
        yield f"{deviation:>9}" + "".join(
            f"{np.median(values):>8.0f} ({min(values):>3.0f}-{max(values):>4.0f})"
            for values in (before, after)
        )


def principal_curve(
    points: np.ndarray, span: float = 0.35, iterations: int = 20
) -> np.ndarray:
    """Return the principal curve of points ``(n, d)``, in the order of arc length.

    Every point of a principal curve (Hastie and Stuetzle 1989) is the mean of the
    points that project onto it. From the principal axis on, two steps alternate:
    project the points onto the curve, and smooth each coordinate over arc length by
    local linear fits to a share ``span`` of the points. The paper does not name its
    smoother.
    """
    centred = points - points.mean(axis=0)
    axis = np.linalg.svd(centred, full_matrices=False)[2][0]
    position = centred @ axis
    for _ in range(iterations):
        order = np.argsort(position, kind="stable")
        curve = _smooth(position[order], points[order], span)
        position = _project(points, curve)
    order = np.argsort(position, kind="stable")
    return _smooth(position[order], points[order], span)


def total_curvature(curve: np.ndarray, num_segments: int = 50) -> float:
    """Return the total absolute curvature ∫|κ|ds of a curve, in degrees.

    The curve is resampled at equal arc length first, or the noise of its many short
    pieces would count.

    Example:
        >>> angles = np.linspace(0, np.pi, 500)
        >>> half_circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        >>> round(total_curvature(half_circle) / 10)
        18
    """
    length = _arc_length(curve)
    stops = np.linspace(0, length[-1], num_segments + 1)
    resampled = np.stack([np.interp(stops, length, c) for c in curve.T], axis=1)
    steps = np.diff(resampled, axis=0)
    steps /= np.linalg.norm(steps, axis=1, keepdims=True).clip(1e-300)
    turns = np.arccos((steps[1:] * steps[:-1]).sum(axis=1).clip(-1, 1))
    return float(np.degrees(turns.sum()))


def _arc_length(curve: np.ndarray) -> np.ndarray:
    steps = np.linalg.norm(np.diff(curve, axis=0), axis=1)
    return np.concatenate([[0.0], steps.cumsum()])


def _smooth(position: np.ndarray, points: np.ndarray, span: float) -> np.ndarray:
    """Return local linear fits at sorted positions, with tricube weights."""
    n = len(position)
    count = min(n, max(3, round(span * n)))
    starts = (np.arange(n) - count // 2).clip(0, n - count)
    window = starts[:, None] + np.arange(count)  # (n, count)
    gaps = position[window] - position[:, None]
    reach = np.abs(gaps).max(axis=1, keepdims=True).clip(1e-300)
    weights = (1 - (np.abs(gaps) / (1.001 * reach)) ** 3) ** 3
    weights /= weights.sum(axis=1, keepdims=True)
    centre = (weights * gaps).sum(axis=1, keepdims=True)
    values = points[window]  # (n, count, d)
    mean = (weights[..., None] * values).sum(axis=1)
    spread = (weights * (gaps - centre) ** 2).sum(axis=1).clip(1e-300)
    slope = ((weights * (gaps - centre))[..., None] * values).sum(axis=1)
    return mean - centre * slope / spread[:, None]


def _project(points: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """Return the arc length at which the curve is nearest to each point."""
    length = _arc_length(curve)
    start, step = curve[:-1], np.diff(curve, axis=0)
    size = (step**2).sum(axis=1).clip(1e-300)
    nearest = np.empty(len(points))
    for i, point in enumerate(points):
        share = (((point - start) * step).sum(axis=1) / size).clip(0, 1)
        gaps = ((start + share[:, None] * step - point) ** 2).sum(axis=1)
        best = int(gaps.argmin())
        nearest[i] = length[best] + share[best] * np.sqrt(size[best])
    return nearest
