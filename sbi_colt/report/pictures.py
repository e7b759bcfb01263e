"""Data that are images, and how they are shown."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from sbi_colt.report.colours import ORANGE

__all__ = ["as_picture", "frame", "is_image"]

_MIN_IMAGE = 6  # pixels on a side; a smaller matrix is shown as a line


def is_image(x_shape: tuple[int, ...]) -> bool:
    """Return whether data of this shape are images, with channels first or without."""
    return len(x_shape) in (2, 3) and min(x_shape[-2:]) >= _MIN_IMAGE


def as_picture(values: np.ndarray, x_shape: tuple[int, ...]) -> np.ndarray:
    """Return values as an image, averaged over channels."""
    picture = values.reshape(x_shape)
    return picture.mean(axis=0) if len(x_shape) == 3 else picture


def frame(ax: Axes) -> None:
    """Give a picture the frame of an observation."""
    for spine in ax.spines.values():
        spine.set(color=ORANGE, linewidth=2)
