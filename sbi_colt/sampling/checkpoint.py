"""Draws already made, kept in a folder so that a run can be interrupted and resumed.

The folder holds ``header.json`` (seed, number of draws, fingerprint of the xs),
``reference.npz`` and one ``.npz`` file for each finished part.

*Which posterior do the draws belong to?* No property of a Python object answers this
with certainty. So the first run keeps a few **reference draws**, made with a random
stream of their own, and every run that resumes the folder makes them again and refuses
the folder if they differ by more than rounding. The first run makes them twice, to find
samplers whose draws do not follow the seed (a callable with a random generator of its
own, some computations on GPUs); such a run cannot be resumed, and a warning says so.

Reference draws cost 16 xs more (32 in the first run); one x more (two) for samplers of
sbi that take one x at a time, for vector fields and for Markov chains. Other objects
with ``sample`` make as many draws as at one x, at five xs. Two changes can go
unnoticed: a posterior that differs at other xs only, and discrete draws that agree by
chance.

*A name instead.* With ``checkpoint_name`` the user says which posterior it is. The name
must be the same when the folder is resumed; there are no reference draws.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbi_colt.checks import warn_caller
from sbi_colt.files import atomic_write

__all__ = ["Checkpoint"]

_HEADER = "header.json"
_BFLOAT16 = "/bfloat16"  # NumPy has no such type: kept as float32, with this suffix
_REFERENCE = "reference"
# Rounding may differ between machines and numbers of threads: in units of the draws'
# standard deviation, and of the last digit of their type.
_TOLERANCE = 1e-4
_LAST_DIGITS = 8

_UNSEEDED = (
    "The draws of the {0} do not follow the seed: with the same random state it gives "
    "other draws, so they cannot be recognised."
)
_ADVICE = (
    'Use a new folder and give the {0} a name with checkpoint_name="…"; you then vouch '
    "that runs with this name and folder have the same {0}, and draws are not compared."
)


class Checkpoint:
    """A folder of finished parts; with ``path=None`` nothing is kept.

    Args:
        path: The folder, made where it does not exist.
        header: What the parts belong to, by the names of the arguments that say so. A
            folder with another header is refused.
        subject: What made the parts, in messages.

    Example:
        >>> checkpoint = Checkpoint(None, {})
        >>> checkpoint.save("block-0", {"samples": torch.zeros(3)})
        >>> checkpoint.load("block-0") is None
        True
    """

    def __init__(
        self,
        path: str | os.PathLike | None,
        header: dict[str, Any],
        subject: str = "posterior",
    ):
        self.subject = subject
        self.path = None if path is None else Path(path)
        self.header = header
        if self.path is None:
            return
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(
                f"checkpoint: expected a folder, got the file {self.path}."
            )
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with atomic_write(self.path / _HEADER, overwrite=False) as file:
                json.dump(header, file)
        except FileExistsError:  # of an earlier run, or of one at the same time
            self._check_header()

    @staticmethod
    def known_header(path: str | os.PathLike | None) -> dict[str, Any] | None:
        """Return the header of a folder, or `None` if there is none."""
        if path is None or not (file := Path(path) / _HEADER).is_file():
            return None
        try:
            header = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(header, dict) or not isinstance(header["seed"], int):
                raise ValueError
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"checkpoint: {file} is damaged; delete the folder and start again."
            ) from error
        return header

    def recognise(self, draw: Callable[[], Tensor], is_batched: bool) -> None:
        """Raise unless the posterior is the one whose draws the folder holds.

        ``draw`` makes the reference draws. Samplers that take many xs at once
        (``is_batched``) use random numbers differently from those that take one.
        """
        if self.path is None or self.header.get("checkpoint_name") is not None:
            return
        unseeded, advice = (text.format(self.subject) for text in (_UNSEEDED, _ADVICE))
        fresh = draw()
        stored = self._reference()
        if stored is None:
            stored = self._keep_reference(fresh, is_batched, _agree(fresh, draw()))
        if stored["draws"] is fresh:  # this is the first run
            if not stored["follows_seed"]:
                warn_caller(
                    f"checkpoint: {unseeded} If this run is interrupted, it cannot be "
                    f"resumed from {self.path}. {advice}"
                )
            return
        if bool(stored["is_batched"]) != is_batched:
            raise ValueError(
                f"checkpoint: {self.path} belongs to another run "
                "(use_batched_sampling differs); use another folder, or the same "
                "arguments as the run that made it."
            )
        if stored["follows_seed"] and _agree(stored["draws"], fresh):
            return
        if not stored["follows_seed"] or not _agree(fresh, draw()):
            raise ValueError(
                f"checkpoint: {self.path} cannot be resumed. {unseeded} {advice}"
            )
        who = self.subject
        raise ValueError(
            f"checkpoint: {self.path} holds draws of another {who}: with the same "
            f"random numbers and the same inputs, this {who} gives other draws. Use "
            f"another folder, or the {who} of the run that made it. If it is the same "
            f"{who} and its draws depend on the machine (a GPU, long Markov chains), "
            f"start again. {advice}"
        )

    def load(self, name: str) -> dict[str, Tensor] | None:
        """Return a finished part, or `None` where it is missing or damaged."""
        if self.path is None or not (file := self.path / f"{name}.npz").is_file():
            return None
        try:
            with open(file, "rb") as opened, np.load(opened) as part:
                return dict(_as_tensor(key, part[key]) for key in part.files)
        except Exception:  # cut off or overwritten: it is made again
            return None

    def save(
        self, name: str, tensors: Mapping[str, Tensor], *, overwrite: bool = True
    ) -> None:
        """Keep a finished part."""
        if self.path is None:
            return
        arrays: dict[str, Any] = dict(map(_as_array, tensors.items()))
        path = self.path / f"{name}.npz"
        with atomic_write(path, "wb", overwrite=overwrite) as file:
            np.savez(file, **arrays)

    def child(self, name: str, **more: Any) -> Checkpoint:
        """Return a checkpoint in a folder inside this one, with more in its header."""
        path = None if self.path is None else self.path / name
        return Checkpoint(path, {**self.header, **more}, self.subject)

    def _check_header(self) -> None:
        assert self.path is not None
        known = self.known_header(self.path) or {}
        other = [
            key
            for key in {**self.header, **known}
            if key not in known or known[key] != self.header.get(key)
        ]
        if other:
            differ = "differs" if len(other) == 1 else "differ"
            raise ValueError(
                f"checkpoint: {self.path} belongs to another run ({', '.join(other)} "
                f"{differ}); use another folder, or the same arguments as the run that "
                "made it."
            )

    def _reference(self) -> dict[str, Tensor] | None:
        assert self.path is not None
        # In this order, because a run at the same time may write between the two lines.
        has_parts = any(self.path.glob("*.npz"))
        part = self.load(_REFERENCE)
        damaged = part is None and has_parts
        if damaged or (part and set(part) != {"draws", "is_batched", "follows_seed"}):
            raise ValueError(
                f"checkpoint: {self.path / _REFERENCE}.npz, by which a run recognises "
                f"its {self.subject}, is missing or damaged; delete the folder and "
                "start again."
            )
        return part

    def _keep_reference(
        self, draws: Tensor, is_batched: bool, follows_seed: bool
    ) -> dict[str, Tensor]:
        reference = {
            "draws": draws,
            "is_batched": torch.tensor(is_batched),
            "follows_seed": torch.tensor(follows_seed),
        }
        try:
            self.save(_REFERENCE, reference, overwrite=False)
        except FileExistsError:  # a run that began at the same time was first
            return self._reference() or reference
        return reference


def _as_array(item: tuple[str, Tensor]) -> tuple[str, np.ndarray]:
    name, tensor = item
    if tensor.dtype == torch.bfloat16:
        name, tensor = name + _BFLOAT16, tensor.float()
    return name, tensor.cpu().numpy()


def _as_tensor(name: str, array: np.ndarray) -> tuple[str, Tensor]:
    tensor = torch.from_numpy(array)
    if name.endswith(_BFLOAT16):
        return name.removesuffix(_BFLOAT16), tensor.bfloat16()
    return name, tensor


def _agree(first: Tensor, second: Tensor) -> bool:
    """Return whether two sets of draws ``(S, n, d)`` are the same up to rounding."""
    if first.shape != second.shape:
        return False
    digit = min(_LAST_DIGITS * torch.finfo(first.dtype).eps, 1e-3)
    first, second = first.cpu().double(), second.cpu().double()
    finite = first.isfinite()
    if not torch.equal(finite, second.isfinite()):
        return False
    first, second = first.where(finite, 0), second.where(finite, 0)
    limit = _TOLERANCE * first.std(dim=0, correction=0) + digit * first.abs()
    return bool(((first - second).abs() <= limit).all())
