"""Work spread over processes, or whatever joblib backend the user has set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import joblib
import torch

__all__ = ["in_parallel", "one_thread"]


def in_parallel(
    function: Callable,
    tasks: Iterable[tuple],
    num_workers: int,
    *,
    ordered: bool = True,
) -> Iterator[Any]:
    """Yield ``function(*task)`` for each task as they are done.

    Args:
        function: A function that can be pickled.
        tasks: Its arguments.
        num_workers: Processes. With 1, a backend set by ``joblib.parallel_config``
            (processes, threads, Dask, Ray) decides how many; without one it is 1.
        ordered: Whether to keep the order of the tasks.

    Example:
        >>> list(in_parallel(max, [(1, 2), (4, 3)], num_workers=1))
        [2, 4]
    """
    jobs = None if num_workers == 1 else num_workers
    try:
        kind = "generator" if ordered else "generator_unordered"
        parallel = joblib.Parallel(n_jobs=jobs, return_as=kind)
    except ValueError as error:
        raise ValueError(
            "The joblib backend that is set cannot hand out results as they are done "
            '(multiprocessing cannot); use "loky", "threading", "dask" or "ray".'
        ) from error
    results: Any = parallel(joblib.delayed(function)(*task) for task in tasks)
    yield from results


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: processes side by side have a core each."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
