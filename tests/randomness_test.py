import os
import random
import signal
import threading
import time

import numpy as np
import pytest
import torch

from sbi_colt.randomness import digest, generator_from, isolated_rng, resolve_seed


@pytest.mark.usefixtures("unchanged_random_state")
def test_isolation_puts_every_state_back_even_after_an_error():
    def fail():
        with isolated_rng(generator_from(0)):
            torch.randn(3), np.random.rand(3), random.random()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()


def test_isolation_is_seeded():
    def numbers(seed):
        with isolated_rng(generator_from(seed)):
            return torch.rand(1).item(), np.random.rand(), random.random()

    assert numbers(0) == numbers(0)
    assert all(a != b for a, b in zip(numbers(0), numbers(1), strict=True))


def test_streams_of_a_seed_differ_and_repeat():
    def number(*stream):
        return torch.rand(1, generator=generator_from(0, *stream)).item()

    assert len({number(), number("fit"), number("test"), number("test", 1)}) == 4
    assert number("test", 1) == number("test", 1)


def test_digest_sees_values_shapes_and_types():
    zeros = torch.zeros(2, 3)
    others = (zeros + 1, zeros.T, zeros.double(), zeros[:1])
    assert len({digest(t) for t in (zeros, *others)}) == 5


@pytest.mark.parametrize("seed", [1.5, "0", True])
def test_seeds_are_integers(seed):
    with pytest.raises(TypeError, match="seed: expected an int"):
        resolve_seed(seed)


def test_negative_seeds_are_refused():
    with pytest.raises(ValueError, match="seed: expected a non-negative"):
        resolve_seed(-1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking beside threads
def test_a_forked_child_does_not_wait_for_a_thread_that_it_does_not_have():
    held, release = threading.Event(), threading.Event()

    def hold():
        with isolated_rng(generator_from(0)):
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        with isolated_rng(generator_from(1)):
            os._exit(0)
    deadline = time.monotonic() + 10
    done, status = 0, -1
    while not done and time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if not done:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    release.set()
    thread.join()
    assert done == child, "the child was still waiting for the lock after 10 s"
    assert status == 0
