"""Workers that help or die, and runs that are killed and resumed."""

import copy
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import joblib
import pytest
import torch
from stand_ins import Deadly, Gaussian, numpy_posterior, sample

from sbi_colt import draw
from sbi_colt.benchmark.posterior_zoo import exhibit, prior
from sbi_colt.sampling.pool import SamplingError


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_workers_do_not_change_the_draws(backend, generator):
    xs = torch.randn(12, 2, generator=generator)
    alone = sample(Gaussian(), xs, 30)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        together = sample(Gaussian(), xs, 30)
    assert torch.equal(alone, together)
    assert torch.equal(alone, sample(Gaussian(), xs, 30, num_workers=2))


def test_a_backend_that_cannot_serve_is_named():
    backend = joblib.parallel_config(backend="multiprocessing", n_jobs=2)
    with backend, pytest.raises(ValueError, match='use "loky"'):
        sample(Gaussian(), torch.zeros(3, 2), 5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Dask's own remarks
def test_a_dask_cluster_gives_the_same_draws(generator):
    from distributed import Client, LocalCluster

    xs = torch.randn(12, 2, generator=generator)
    alone = sample(Gaussian(), xs, 30)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        processes = Gaussian(report=True)
        together = sample(processes, xs, 30)
    assert torch.equal(alone, together)


def test_a_worker_that_dies_once_is_replaced(tmp_path):
    xs = torch.arange(8.0).reshape(4, 2)
    posterior = Deadly(tmp_path / "died", deaths=1)
    samples = sample(posterior, xs, 10, num_workers=2)
    assert torch.equal(samples, sample(Gaussian(), xs, 10))


@pytest.mark.filterwarnings("ignore")
def test_a_worker_that_dies_twice_is_an_error_that_keeps_what_is_done(tmp_path):
    xs = torch.arange(24.0).reshape(12, 2)
    posterior = Deadly(tmp_path / "died", deaths=99, at=10.0)
    kept = tmp_path / "kept"
    with pytest.raises(SamplingError, match="a worker process died twice"):
        sample(posterior, xs, 10, num_workers=2, checkpoint=kept)
    assert list(kept.glob("x-*.npz"))


# Checkpoints

RUN = """
import sys, torch
sys.path.insert(0, {here!r})
from stand_ins import Gaussian
from sbi_colt import draw_posterior_samples
posterior = Gaussian(seconds=0.05)
target = posterior.batched if {batched} else posterior
xs = torch.arange(80.0).reshape(40, 2)
draw_posterior_samples(target, xs, {num}, seed=3, checkpoint={path!r})
"""


@pytest.mark.parametrize("batched", [False, True], ids=["parallel", "blocks"])
def test_a_killed_run_goes_on_and_gives_the_same_draws(tmp_path, batched):
    path = tmp_path / "kept"
    num = 10_000 if batched else 20
    script = RUN.format(
        here=str(Path(__file__).parents[1]), batched=batched, path=str(path), num=num
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while len(list(path.glob("*.npz"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = len(list(path.glob("*.npz")))
    assert done >= 3

    posterior = Gaussian(seconds=0.05)
    target = posterior.batched if batched else posterior
    xs = torch.arange(80.0).reshape(40, 2)
    resumed = sample(target, xs, num, seed=None, checkpoint=path)
    assert torch.equal(resumed, sample(target, xs, num, seed=3))
    total = 40 if not batched else -(-40 // (2**16 // num))
    assert posterior.calls == 2 * total - done  # what was done was not done again


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    xs = torch.zeros(3, 2)
    sample(Gaussian(), xs, 4, checkpoint=tmp_path / "kept")
    with pytest.raises(ValueError, match="num_samples differ"):
        sample(Gaussian(), xs, 5, checkpoint=tmp_path / "kept")
    with pytest.raises(ValueError, match="xs differ"):
        sample(Gaussian(), xs + 1, 4, checkpoint=tmp_path / "kept")


def test_a_checkpoint_of_a_retrained_posterior_is_refused(tmp_path, generator):
    xs = exhibit("npe-mdn").observe(3, generator)
    posterior = exhibit("npe-mdn").posterior
    sample(posterior, xs, 4, checkpoint=tmp_path / "kept")
    retrained = copy.deepcopy(posterior)
    with torch.no_grad():
        for weight in retrained.posterior_estimator.parameters():
            weight *= 1.1
    with pytest.raises(ValueError, match="posterior differ"):
        sample(retrained, xs, 4, seed=None, checkpoint=tmp_path / "kept")


def test_a_checkpoint_of_another_function_is_refused(tmp_path):
    xs = torch.zeros(3, 2)
    sample(lambda x, n: torch.zeros(n, *x.shape), xs, 4, checkpoint=tmp_path / "kept")
    with pytest.raises(ValueError, match="posterior differ"):
        sample(
            lambda x, n: torch.ones(n, *x.shape), xs, 4, checkpoint=tmp_path / "kept"
        )


def test_a_checkpoint_may_be_resumed_with_another_memory_budget(tmp_path):
    xs = torch.arange(40.0).reshape(20, 2)
    path = tmp_path / "kept"
    sample(Gaussian().batched, xs, 50, checkpoint=path)
    again = sample(Gaussian().batched, xs, 50, checkpoint=path, memory_budget=10_000)
    assert again.isfinite().all()


def test_a_file_is_no_checkpoint(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="checkpoint: expected a folder"):
        sample(numpy_posterior, torch.zeros(3, 2), 5, checkpoint=tmp_path / "file")


def test_draw_resumes_without_a_seed(tmp_path):
    draws, again = (
        draw(
            exhibit("npe-mdn").posterior,
            prior(),
            lambda t: t + 0.5 * torch.randn_like(t),
            20,
            5,
            checkpoint=tmp_path / "kept",
            show_progress_bar=False,
        )
        for _ in range(2)
    )
    assert torch.equal(draws.samples, again.samples)
