"""Workers that help or die."""

import joblib
import pytest
import torch
from stand_ins import Deadly, Gaussian, sample

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
        together = sample(Gaussian(), xs, 30)
    assert torch.equal(alone, together)


def test_a_worker_that_dies_once_is_replaced(tmp_path):
    xs = torch.arange(8.0).reshape(4, 2)
    posterior = Deadly(tmp_path / "died", deaths=1)
    samples = sample(posterior, xs, 10, num_workers=2)
    assert torch.equal(samples, sample(Gaussian(), xs, 10))


@pytest.mark.filterwarnings("ignore")
def test_a_worker_that_dies_twice_is_an_error_that_keeps_what_is_done(tmp_path):
    xs = torch.arange(24.0).reshape(12, 2)
    posterior = Deadly(tmp_path / "died", deaths=99, at=14.0)
    kept = tmp_path / "kept"
    with pytest.raises(SamplingError, match="a worker process died twice"):
        sample(posterior, xs, 10, num_workers=2, checkpoint=kept)
    assert list(kept.glob("x-*.npz"))
