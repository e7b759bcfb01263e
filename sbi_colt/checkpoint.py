"""Draws already made, kept on disk so that a run can be killed and resumed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Checkpoint"]


class Checkpoint:
    """A folder with a header and one ``.npz`` file for each finished part.

    A part is written under another name and then renamed, so a file that is there is
    whole. With ``path=None`` nothing is kept.

    Args:
        path: The folder, made where it does not exist.
        header: What the parts belong to. A folder made for something else is refused.

    Example:
        >>> checkpoint = Checkpoint(None, {})
        >>> checkpoint.save("block-0", samples=np.zeros(3))
        >>> checkpoint.load("block-0") is None
        True
    """

    def __init__(self, path: str | os.PathLike | None, header: dict[str, Any]):
        self.path = None if path is None else Path(path)
        self.header = header
        if self.path is None:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        known = self.known_header(self.path)
        if known is None:
            self._write("header.json", json.dumps(header).encode())
        elif known != header:
            other = [key for key in header if known.get(key) != header[key]]
            raise ValueError(
                f"checkpoint: {self.path} belongs to another run "
                f"({', '.join(other) or 'its header'} differ); use another folder, or "
                "the same arguments as the run that made it."
            )

    @staticmethod
    def known_header(path: str | os.PathLike) -> dict[str, Any] | None:
        """Return the header of a folder, or `None` if it has none."""
        file = Path(path) / "header.json"
        return json.loads(file.read_text()) if file.exists() else None

    def load(self, name: str) -> dict[str, np.ndarray] | None:
        """Return a finished part, or `None`."""
        if self.path is None or not (file := self.path / f"{name}.npz").exists():
            return None
        with np.load(file, allow_pickle=False) as part:
            return {key: part[key] for key in part.files}

    def save(self, name: str, **arrays: np.ndarray) -> None:
        """Keep a finished part."""
        if self.path is None:
            return
        temporary = self.path / f"{name}.part"
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
        os.replace(temporary, self.path / f"{name}.npz")

    def child(self, name: str, header: dict[str, Any]) -> Checkpoint:
        """Return a checkpoint inside this one."""
        return Checkpoint(None if self.path is None else self.path / name, header)

    def _write(self, name: str, content: bytes) -> None:
        assert self.path is not None
        temporary = self.path / f"{name}.part"
        temporary.write_bytes(content)
        os.replace(temporary, self.path / name)
