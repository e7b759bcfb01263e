"""Seeds, generators and shuffled draws.

One ``seed`` at the public edge becomes one `torch.Generator` that is handed down;
library code never touches the global random state. Third-party code that can only
draw from the global state (sbi's samplers, dropout in a user's network) runs inside
`isolated_rng`, which lends it a state of its own and puts the caller's back.

Random numbers are made on the CPU and moved, so that a seed means the same on every
device.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "derive_seed",
    "digest",
    "generator_from",
    "isolated_rng",
    "resolve_seed",
    "shuffle_draws",
]

_SHUFFLED_AT_ONCE = 2**16  # draws

_lock = threading.RLock()  # threads share the global random state


def _renew_lock() -> None:
    """Replace the lock: a forked child has no thread that could release it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew_lock)


def resolve_seed(seed: int | None) -> int:
    """Return ``seed``, or one from the system's entropy where it is `None`.

    Example:
        >>> resolve_seed(3)
        3
    """
    if seed is None:
        return secrets.randbits(48)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed: expected an int or None, got {type(seed).__name__}.")
    if seed < 0:
        raise ValueError(f"seed: expected a non-negative int, got {seed}.")
    return int(seed)


def generator_from(seed: int, *stream: int | str) -> torch.Generator:
    """Return a CPU generator for one stream of a seed.

    Streams of the same seed are independent for all practical purposes, so that
    training, testing and each x have their own and no order of calls matters.

    Example:
        >>> a, b = generator_from(0, "fit"), generator_from(0, "test")
        >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
        False
    """
    return torch.Generator().manual_seed(derive_seed(seed, *stream))


def derive_seed(seed: int, *stream: int | str) -> int:
    """Return the seed of one stream of a seed.

    Example:
        >>> derive_seed(0, "x", 1) != derive_seed(0, "x", 2)
        True
    """
    key = "/".join(str(part) for part in (seed, *stream)).encode()
    value = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
    return value & (2**63 - 1)


def digest(*tensors: Tensor) -> str:
    """Return a fingerprint of tensors' values.

    Example:
        >>> digest(torch.zeros(2)) == digest(torch.zeros(2))
        True
    """
    fingerprint = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        tensor = tensor.detach().cpu()
        if tensor.dtype == torch.bfloat16:  # which NumPy does not have
            tensor = tensor.float()
        array = np.ascontiguousarray(tensor.numpy())
        fingerprint.update(str((array.dtype, array.shape)).encode())
        fingerprint.update(array.tobytes())
    return fingerprint.hexdigest()


@contextmanager
def isolated_rng(generator: torch.Generator) -> Iterator[None]:
    """Run a block on a global random state of its own, made from ``generator``.

    The caller's torch (CPU and CUDA), NumPy and Python states are put back
    afterwards, also after an error. Threads take turns: one block runs at a time.
    """
    with _lock:
        yield from _isolated(generator)


def _isolated(generator: torch.Generator) -> Iterator[None]:
    seeds = torch.randint(2**31, (3,), generator=generator).tolist()
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            torch.set_rng_state(generator_from(seeds[0]).get_state())
            if torch.cuda.is_available():
                torch.cuda.manual_seed_all(seeds[0])
            np.random.set_state(np.random.RandomState(seeds[1]).get_state())
            random.setstate(random.Random(seeds[2]).getstate())
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)


def shuffle_draws(samples: Tensor, generator: torch.Generator) -> None:
    """Shuffle the draws of each x in place, a few xs at a time to save memory."""
    num_samples, num_xs, _ = samples.shape
    step = max(1, _SHUFFLED_AT_ONCE // max(1, num_samples))
    for start in range(0, num_xs, step):
        part = samples[:, start : start + step]
        order = torch.rand(part.shape[:2], generator=generator).argsort(dim=0)
        order = order.to(part.device).unsqueeze(-1).expand_as(part)
        samples[:, start : start + step] = part.gather(0, order)
