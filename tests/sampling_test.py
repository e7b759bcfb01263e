"""The adapter's promises: order, leakage, memory, time, workers, checkpoints, seeds."""

import copy
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from sbi.inference.posteriors import DirectPosterior, EnsemblePosterior
from sbi.utils import BoxUniform

from sbi_colt import CoLT, CoLTConfig, Draws, draw, draw_posterior_samples
from sbi_colt.benchmark.zoo import exhibit, prior
from sbi_colt.runs import SamplingError
from sbi_colt.sampling import sample_posterior

sys.path.insert(0, str(Path(__file__).parent))
from slow_posterior import Deadly, Gaussian


def sample(posterior, xs, num, **options):
    options = {"seed": 0, "show_progress_bar": False} | options
    return draw_posterior_samples(posterior, xs, num, **options)


# What sbi did not make


def numpy_posterior(xs, num_samples):
    rng = np.random.default_rng(0)
    return np.asarray(xs) + rng.normal(size=(num_samples, *xs.shape))


def test_a_numpy_callable_goes_all_the_way(generator):
    thetas = torch.randn(100, 2, generator=generator)
    xs = thetas + torch.randn(100, 2, generator=generator)
    samples = sample(numpy_posterior, xs, 50)
    assert samples.shape == (50, 100, 2)
    train, test = Draws(thetas, xs, samples).split(0.5, seed=0)
    config = CoLTConfig(probes=("mahalanobis",))
    result = CoLT(config, seed=0).fit(train).test(test)
    assert 0 < result.p_value <= 1


def test_an_object_with_sample_only(generator):
    xs = 3 * torch.randn(20, 2, generator=generator)
    samples = sample(Gaussian(), xs, 500)
    torch.testing.assert_close(samples.mean(dim=0), xs, atol=0.25, rtol=0)


def test_a_batched_form_that_is_not_implemented_falls_back():
    class Pretender(Gaussian):
        def sample_batched(self, shape, x):
            raise NotImplementedError

    assert sample(Pretender(), torch.zeros(4, 2), 7).shape == (7, 4, 2)


def test_batched_sampling_can_be_switched_off(generator):
    posterior = exhibit("npe-mdn").posterior
    xs = exhibit("npe-mdn").observe(4, generator)
    batched = sample(posterior, xs, 2000)
    looped = sample(posterior, xs, 2000, use_batched_sampling=False)
    torch.testing.assert_close(batched.mean(0), looped.mean(0), atol=0.1, rtol=0)


@pytest.mark.parametrize(
    ("xs", "message"),
    [
        (torch.zeros(0, 2), "xs: expected shape"),
        (torch.full((3, 2), torch.nan), "xs: expected finite"),
    ],
)
def test_bad_xs_are_named(xs, message):
    with pytest.raises(ValueError, match=message):
        sample(numpy_posterior, xs, 5)


def test_a_list_of_xs_is_named():
    with pytest.raises(TypeError, match="xs: expected a torch or NumPy array"):
        sample(numpy_posterior, [torch.zeros(2)], 5)


# Order


def test_an_ensembles_members_are_drawn_for_each_x_by_itself(generator):
    """Two components far apart: shares vary from x to x, and order means nothing."""
    estimator = exhibit("npe-mdn").posterior.posterior_estimator
    parts = [DirectPosterior(estimator, prior()) for _ in range(2)]
    for part, shift in zip(parts, (0.0, 100.0), strict=True):
        original = part.posterior_estimator.sample

        class Shifted:
            condition_shape = estimator.condition_shape

            def __init__(self, original, shift):
                self.original, self.shift = original, shift

            def sample(self, shape, condition):
                return self.original(shape, condition=condition) + self.shift

        part.posterior_estimator = Shifted(original, shift)
    ensemble = EnsemblePosterior(parts, weights=[0.7, 0.3])
    xs = exhibit("npe-mdn").observe(500, generator)
    second = sample(ensemble, xs, 10)[..., 0] > 50  # (10, 500)
    counts = second.sum(dim=0).float()
    assert abs(counts.mean() - 3) < 0.3
    assert abs(counts.var() - 2.1) < 0.5  # binomial; equal shares would give 0
    first_half = second[:5].float().mean()
    assert abs(first_half - 0.3) < 0.04


# Leakage


def leaky(low=-1.5, high=1.5):
    """An NPE whose prior is a box: at xs far from it nearly all draws lie outside."""
    estimator = exhibit("npe-mdn").posterior.posterior_estimator
    return DirectPosterior(
        estimator, BoxUniform(low * torch.ones(2), high * torch.ones(2))
    )


def test_draws_are_those_of_sbi_under_mild_leakage(generator):
    xs = 0.5 * exhibit("npe-mdn").observe(5, generator)
    posterior = leaky()
    ours = sample(posterior, xs, 2000)
    assert ours.abs().max() <= 1.5
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = posterior.sample_batched((2000,), xs, show_progress_bars=False)
    torch.testing.assert_close(ours.mean(0), theirs.mean(0), atol=0.1, rtol=0)
    torch.testing.assert_close(ours.std(0), theirs.std(0), atol=0.06, rtol=0)


def test_a_hopeless_x_is_reported_and_the_others_are_kept(generator):
    xs = 0.5 * exhibit("npe-mdn").observe(20, generator)
    xs[7] = 30.0
    with pytest.warns(UserWarning, match=r"1 of 20 xs could not be sampled.*7 \(0\)"):
        result = sample_posterior(leaky(), xs, 50, seed=0, show_progress_bar=False)
    assert result.mask.tolist() == [i != 7 for i in range(20)]
    assert result.acceptance[7] == 0
    assert result.acceptance[result.mask].min() > 0.05
    assert result.samples[:, 7].isnan().all()
    assert result.samples[:, result.mask].isfinite().all()


def test_too_many_hopeless_xs_are_an_error():
    with pytest.raises(SamplingError, match=r"more than max_lost = 0\.1.*leaks"):
        sample(leaky(), torch.full((10, 2), 30.0), 50)


def test_time_bounds_the_whole_call():
    start = time.monotonic()
    with pytest.raises(SamplingError, match="could not be sampled"):
        sample(
            leaky(),
            torch.full((10, 2), 30.0),
            1000,
            max_sampling_time=1.0,
            min_acceptance=1e-12,
        )
    assert time.monotonic() - start < 20


def test_time_bounds_samplers_that_see_one_x_at_a_time():
    with pytest.warns(UserWarning, match="could not be sampled"):
        samples = sample(
            Gaussian(seconds=0.2),
            torch.zeros(30, 2),
            5,
            max_sampling_time=2,
            max_lost=0.99,
        )
    done = samples.isfinite().all(dim=(0, 2))
    assert 0 < done.sum() < 30


def test_no_time_at_all_is_an_error():
    for posterior in (Gaussian(), numpy_posterior):
        with pytest.raises(SamplingError, match="max_sampling_time: no x"):
            sample(posterior, torch.zeros(3, 2), 5, max_sampling_time=0)


def test_run_colt_leaves_out_what_cannot_be_sampled(generator):
    from sbi_colt import run_colt

    thetas = torch.rand(60, 2, generator=generator) - 0.5
    xs = thetas + 0.1 * torch.randn(60, 2, generator=generator)
    xs[3] = 30.0
    with pytest.warns(UserWarning, match="1 of 60 xs could not be sampled"):
        result = run_colt(
            thetas, xs, leaky(), 20, 1, False, seed=0, config=CoLTConfig(max_epochs=2)
        )
    assert result.mask.tolist() == [i != 3 for i in range(60)]
    assert 3 not in result.index.tolist()


def test_a_subclass_is_bounded_too():
    class Own(DirectPosterior):
        pass

    class Rejecting(DirectPosterior):
        def sample_batched(self, *args, **kwargs):
            return super().sample_batched(*args, **kwargs)

    inside = leaky()
    for kind in (Own, Rejecting):
        posterior = kind(inside.posterior_estimator, inside.prior)
        with pytest.raises((SamplingError, RuntimeError), match="sampl"):
            sample(posterior, torch.full((3, 2), 30.0), 20, max_sampling_time=1)


def test_draws_that_are_not_finite_are_drawn_again_or_reported():
    def sometimes(xs, num):
        draws = xs + torch.randn(num, *xs.shape)
        draws[torch.rand(num, len(xs)) < 0.2] = torch.nan
        return draws

    assert sample(sometimes, torch.zeros(10, 2), 50).isfinite().all()

    def always(xs, num):
        return torch.where(xs[:, :1] > 0, torch.nan, torch.randn(num, *xs.shape))

    xs = torch.zeros(20, 2)
    xs[4] = 1
    with pytest.warns(UserWarning, match="1 of 20 xs could not be sampled"):
        samples = sample(always, xs, 50)
    assert samples[:, 4].isnan().all()


def test_an_error_carries_what_was_drawn():
    xs = torch.zeros(10, 2)
    xs[5:] = 30.0
    with pytest.raises(SamplingError, match="5 of 10") as caught:
        sample(leaky(), xs, 50)
    assert caught.value.partial.samples[:, :5].isfinite().all()


def test_a_failure_names_its_x():
    class Failing(Gaussian):
        def sample(self, shape, x):
            if x[0, 0] == 4:
                raise RuntimeError("not positive definite")
            return super().sample(shape, x)

    xs = torch.arange(8.0).reshape(4, 2)
    with pytest.raises(SamplingError, match="at x number 2: .*not positive definite"):
        sample(Failing(), xs, 5)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("min_acceptance", 0),
        ("memory_budget", "1GB"),
        ("max_lost", 2),
        ("num_workers", 0),
        ("max_sampling_time", -1),
    ],
)
def test_bad_options_are_named(option, value):
    with pytest.raises(ValueError, match=f"{option}: expected"):
        sample(numpy_posterior, torch.zeros(3, 2), 5, **{option: value})


def test_draws_of_the_wrong_shape_are_named():
    class Transposed(Gaussian):
        def sample(self, shape, x):
            return super().sample(shape, x).T

    with pytest.raises(ValueError, match="posterior: expected draws of shape"):
        sample(Transposed(), torch.zeros(3, 2), 5)


def test_xs_without_a_feature_axis_fit_where_only_axes_differ(generator):
    posterior = exhibit("npe-mdn").posterior
    xs = exhibit("npe-mdn").observe(4, generator)
    assert torch.equal(
        sample(posterior, xs.unsqueeze(1).unsqueeze(1), 9), sample(posterior, xs, 9)
    )


# Memory and seeds


def test_proposals_stay_within_the_memory_budget():
    sizes = []

    def posterior(xs, num):
        sizes.append(4 * num * xs.numel())
        return xs + torch.randn(num, *xs.shape)

    budget = 100_000
    assert sample(posterior, torch.zeros(300, 2), 100, memory_budget=budget).shape == (
        100,
        300,
        2,
    )
    assert max(sizes) <= budget


def test_many_draws_at_one_x_come_in_pieces(monkeypatch, generator):
    posterior = exhibit("npe-mdn").posterior
    sizes = []
    original = type(posterior).sample_batched

    def spy(self, shape, x, **options):
        sizes.append(shape[0])
        assert not torch.is_grad_enabled()
        return original(self, shape, x, **options)

    # Kept as the class's own, so that it is still sampled as one of sbi's.
    monkeypatch.setattr(DirectPosterior, "sample_batched", spy)
    xs = exhibit("npe-mdn").observe(1, generator)
    assert sample(posterior, xs, 200_000).shape == (200_000, 1, 2)
    assert max(sizes) <= 2**16


def test_large_requests_come_in_blocks():
    calls = []

    def posterior(xs, num):
        calls.append(len(xs))
        return xs + torch.randn(num, *xs.shape)

    sample(posterior, torch.zeros(1000, 2), 1000)
    assert max(calls) <= 65
    assert sum(calls) == 1000


@pytest.mark.usefixtures("unchanged_random_state")
def test_the_callers_random_state_is_untouched():
    sample(lambda xs, num: xs + torch.randn(num, *xs.shape), torch.zeros(5, 2), 4)
    sample(Gaussian(), torch.zeros(5, 2), 4, seed=None)


# Devices


def test_xs_go_to_the_posteriors_device_and_draws_to_the_callers(
    monkeypatch, generator
):
    posterior = exhibit("npe-mdn").posterior
    xs = exhibit("npe-mdn").observe(4, generator)
    asked = []
    original = torch.Tensor.to

    def spy(tensor, *args, **kwargs):
        asked.extend(a for a in args if isinstance(a, (str, torch.device)))
        return original(tensor, *args, **kwargs)

    theirs, ours = torch.device("cpu", 0), torch.device("cpu")
    monkeypatch.setattr(posterior, "_device", theirs)
    monkeypatch.setattr(torch.Tensor, "to", spy)
    samples = sample(posterior, xs, 5, device=ours)
    assert theirs in asked  # the xs followed the posterior
    assert ours in asked  # and the draws the caller
    assert samples.shape == (5, 4, 2)


# Workers


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
from slow_posterior import Gaussian
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
        here=str(Path(__file__).parent), batched=batched, path=str(path), num=num
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


# The whole way


def test_draw_simulates_and_samples(generator):
    posterior = exhibit("npe-mdn").posterior

    def simulator(thetas):
        return thetas + 0.5 * torch.randn_like(thetas)

    draws, again = (
        draw(posterior, prior(), simulator, 50, 20, seed=4, show_progress_bar=False)
        for _ in range(2)
    )
    assert draws.samples.shape == (20, 50, 2)
    assert torch.equal(draws.samples, again.samples)
    assert torch.equal(draws.thetas, again.thetas)
