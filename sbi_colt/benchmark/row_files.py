"""Files of results: one row for each measurement, in a CSV file that can be resumed.

A row is a frozen dataclass. Its first field is the key, a dataclass too, which tells
the row from all others; the other fields are measured numbers or words. Lines that
start with ``#`` are comments: the commands and the versions that made the rows below
them.
"""

from __future__ import annotations

import csv
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

__all__ = ["append_rows", "read_rows", "rows_so_far"]

Row = TypeVar("Row")
_NONE = "all"  # stands for `None` in a file


def rows_so_far(path: str | os.PathLike, kind: type[Row]) -> list[Row]:
    """Return the rows of a CSV file, none if there is no file yet or an empty one."""
    path = Path(path)
    return read_rows(path, kind) if path.exists() and path.stat().st_size else []


def read_rows(path: str | os.PathLike, kind: type[Row]) -> list[Row]:
    """Return the rows of a CSV file.

    A last line that was cut off when its process was killed is left out.
    """
    text = Path(path).read_bytes().decode(errors="replace")
    lines = text.splitlines()
    columns = _columns(kind)
    head = next((line for line in lines if not line.startswith("#")), "")
    if head.split(",") != columns:
        raise ValueError(
            f"{path}: expected a file of sbi-colt benchmark, with columns "
            f"{', '.join(columns)}."
        )
    rows = []
    for number, line in enumerate(lines[: text.count("\n")], start=1):
        if line.startswith("#") or line in ("", head):
            continue
        try:
            texts = next(csv.reader([line]))
            if len(texts) != len(columns):
                raise ValueError(f"{len(texts)} instead of {len(columns)} columns")
            rows.append(_parsed(kind, iter(texts)))
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number}: expected a row of sbi-colt benchmark, got "
                f"{line!r} ({error}); remove it, and run the command again."
            ) from error
    return rows


def append_rows(path: str | os.PathLike, rows: Sequence[Any], command: str) -> None:
    """Add rows of one kind to a CSV file, below a comment with the command line."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0)
        content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        file.truncate(len(whole))  # without a line that was cut off
    made_by = _made_by(command)
    with path.open("a", encoding="utf-8", newline="") as file:
        if made_by.encode() not in whole:
            file.write(made_by)
        writer = csv.writer(file, lineterminator="\n")
        if not whole:
            writer.writerow(_columns(type(rows[0])))
        writer.writerows(map(_texts, rows))
        file.flush()
        os.fsync(file.fileno())


@cache
def _columns(kind: type) -> list[str]:
    columns = []
    for name, hint in get_type_hints(kind).items():
        columns += _columns(hint) if is_dataclass(hint) else [name]
    return columns


def _parsed(kind: Any, texts: Iterator[str]) -> Any:
    """Return a row, a key or a value from the next texts of a line."""
    if not is_dataclass(kind):
        text = next(texts)
        if kind == int | None:
            return None if text == _NONE else int(text)
        return kind(text)
    make: Any = kind
    return make(*(_parsed(hint, texts) for hint in get_type_hints(kind).values()))


def _texts(row: Any) -> list[str]:
    key, *measured = (getattr(row, field.name) for field in fields(row))
    texts = (own if isinstance(own, str) else f"{own:.6g}" for own in measured)
    return [*_key_texts(key), *texts]


def _key_texts(key: Any) -> list[str]:
    if not is_dataclass(key):
        return [_NONE if key is None else str(key)]
    return [t for field in fields(key) for t in _key_texts(getattr(key, field.name))]


def _made_by(command: str) -> str:
    """Return the command and the versions that make the rows below, as comments."""
    packages = ("sbi_colt", "sbi", "torch", "numpy", "scipy")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    python = f"Python {platform.python_version()}"
    made = f"{python}, {versions}, commit {_commit()}"
    return f"# {command or 'sbi_colt.benchmark'}\n# {made}\n"


@cache
def _commit() -> str:
    """Return the commit of this package's checkout, "unknown" where there is none."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True
        )
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"
