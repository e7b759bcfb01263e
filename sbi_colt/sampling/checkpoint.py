"""Draws already made, kept on disk so that a run can be killed and resumed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from torch import Tensor, nn

from sbi_colt.randomness import digest

__all__ = ["Checkpoint", "fingerprint"]


def fingerprint(thing: Any) -> str:
    """Return what tells a posterior from a retrained one.

    That of its tensors where it holds any (weights, in modules at any depth); else that
    of its code and attributes, as far as they can be read.
    """
    tensors: list[Tensor] = []
    _collect(thing, tensors, set(), depth=6)
    if tensors:
        return digest(*tensors)
    code = getattr(thing, "__code__", None)
    if code is not None:  # a function: what it does and what it has closed over
        closure = [cell.cell_contents for cell in thing.__closure__ or ()]
        return _hash((code.co_code, code.co_names, str(code.co_consts)), *closure)
    return _hash(vars(thing)) if hasattr(thing, "__dict__") else type(thing).__name__


def _collect(thing: Any, found: list[Tensor], seen: set[int], depth: int) -> None:
    if id(thing) in seen or depth < 0:
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        found.append(thing)
    elif isinstance(thing, nn.Module):
        found.extend(thing.state_dict().values())
    elif isinstance(thing, (list, tuple)):
        for entry in thing:
            _collect(entry, found, seen, depth - 1)
    elif isinstance(thing, dict):
        for entry in thing.values():
            _collect(entry, found, seen, depth - 1)
    elif hasattr(thing, "__dict__") and not callable(getattr(thing, "__code__", None)):
        _collect(dict(vars(thing)), found, seen, depth - 1)


def _hash(*things: Any) -> str:
    try:
        return str(joblib.hash(things))
    except Exception:  # what cannot be pickled is told apart by its type alone
        return "/".join(type(thing).__name__ for thing in things)


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
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(
                f"checkpoint: expected a folder, got the file {self.path}."
            )
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
