"""Files of arrays and JSON, never of pickled objects."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "atomic_write",
    "load_file",
    "prefixed",
    "refused",
    "save_file",
    "unprefixed",
    "write_text",
]


@contextmanager
def atomic_write(
    path: str | os.PathLike, mode: Literal["w", "wb"] = "w", *, overwrite: bool = True
) -> Iterator[IO]:
    """Open a file for writing that appears under its name only once it is complete.

    The content goes into a temporary file with a unique name in the same folder, which
    is renamed when the block ends. If the block fails (an error, a full disk), the
    temporary file is removed and a file that was there before stays as it was.

    Args:
        path: Name of the file.
        mode: ``"w"`` for text in UTF-8, ``"wb"`` for bytes.
        overwrite: Whether to replace a file of this name; if not and there is one,
            `FileExistsError` is raised.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> with atomic_write(folder / "a.txt") as file:
        ...     _ = file.write("whole")
        >>> [file.name for file in folder.iterdir()], (folder / "a.txt").read_text()
        (['a.txt'], 'whole')
    """
    path = Path(os.path.realpath(path))  # a symbolic link stays a link
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected the name of a file, got a folder.")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
        os.chmod(temporary, _permissions(path))
        if overwrite:
            os.replace(temporary, path)
        else:
            _link(Path(temporary), path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _link(temporary: Path, path: Path) -> None:
    """Give a complete file its name; raise `FileExistsError` if the name is taken."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # some file systems have no links
        with open(path, "xb") as file:
            file.write(temporary.read_bytes())


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text file as a whole; a failure leaves an older file as it was."""
    with atomic_write(path) as file:
        file.write(text)


def _permissions(path: Path) -> int:
    """Return the permissions of a file, or those that a new file would get."""
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def save_file(
    path: str | os.PathLike, header: dict[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Write a header and tensors to a file, in NumPy's ``.npz`` format."""
    arrays: dict[str, Any] = {
        f"tensor/{name}": tensor.detach().cpu().numpy()
        for name, tensor in tensors.items()
    }
    with atomic_write(path, "wb") as file:
        np.savez_compressed(file, header=np.array(json.dumps(header)), **arrays)


def load_file(
    path: str | os.PathLike, kind: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a header of a kind and its tensors; nothing in the file is executed."""
    try:
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            tensors = {
                name.removeprefix("tensor/"): torch.from_numpy(file[name])
                for name in file.files
                if name != "header"
            }
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy's own message suggests to allow pickle
        raise ValueError(f"{path}: expected a file of {kind}.") from error
    if not isinstance(header, dict) or header.get("format") != kind:
        raise ValueError(f"{path}: expected a file of {kind}.")
    return header, tensors


@contextmanager
def refused(where: str | os.PathLike) -> Iterator[None]:
    """Name the file or the entry that is damaged, or was changed by hand.

    Results and reports check their own numbers when they are made.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except KeyError as error:
        raise ValueError(f"{where}: expected an entry {error}, got none.") from error
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{where}: {error}") from error


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors under names that begin with a prefix and a dot."""
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def unprefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a prefix under their own names."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): value
        for name, value in tensors.items()
        if name.startswith(start)
    }
