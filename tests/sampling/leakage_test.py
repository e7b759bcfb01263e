"""Leakage, limits of time, and draws that cannot be had."""

import time

import pytest
import torch
from configs import make_config
from sbi.inference.posteriors import DirectPosterior
from sbi.utils import BoxUniform
from stand_ins import Gaussian, numpy_posterior, sample

from sbi_colt.benchmark.posterior_zoo import exhibit
from sbi_colt.sampling.draw import sample_posterior
from sbi_colt.sampling.pool import SamplingError


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
            thetas, xs, leaky(), 20, 1, False, seed=0, config=make_config(max_epochs=2)
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
