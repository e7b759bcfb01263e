"""What the adapter takes and gives: foreign samplers, order, memory, devices."""

import numpy as np
import pytest
import torch
from sbi.inference.posteriors import DirectPosterior, EnsemblePosterior
from stand_ins import Gaussian, numpy_posterior, sample

from sbi_colt import CoLT, CoLTConfig, Draws, diagnose, draw
from sbi_colt.benchmark.posterior_zoo import exhibit, prior
from sbi_colt.sampling.draw import draw_at_pairs

# What sbi did not make


def test_a_numpy_callable_goes_all_the_way(generator):
    thetas = torch.randn(100, 2, generator=generator)
    xs = thetas + torch.randn(100, 2, generator=generator)
    samples = sample(lambda xs, num: 2 + numpy_posterior(xs, num), xs, 50)
    assert samples.shape == (50, 100, 2)
    train, test = Draws(thetas, xs, samples).split(0.5, seed=0)
    config = CoLTConfig(probes=("mahalanobis",))
    result = CoLT(config, seed=0).fit(train).test(test)
    assert result.p_value < 0.01


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


class Returns(Gaussian):
    """Returns one thing, through `sample` or as a callable."""

    def __init__(self, made):
        super().__init__()
        self.made = made

    def sample(self, shape, x):
        return self.made

    def batched(self, xs, num):
        return self.made


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(
    ("made", "message"),
    [
        (None, r"expected draws of shape \(5, ., d\), got None"),
        ("draws", r"expected draws of shape \(5, ., d\), got str"),
        ([[1.0], [2.0, 3.0]], r"expected draws of shape .*, got list that is no array"),
        (torch.eye(5).to_sparse(), "expected a dense tensor.*convert it with to_dense"),
        (torch.zeros(5, 3, 2) * 1j, "expected real numbers, got torch.complex64"),
        (np.zeros((5, 3, 2)) * 1j, "expected real numbers, got complex128"),
        (torch.zeros(5, 3, 0), r"expected draws of shape .*d >= 1, got \(5, 3, 0\)"),
    ],
)
def test_what_are_no_draws_is_named(made, message, batched):
    posterior = Returns(made)
    with pytest.raises((TypeError, ValueError), match=f"^posterior: {message}"):
        sample(posterior.batched if batched else posterior, torch.zeros(3, 2), 5)


def test_numbers_of_every_form_are_draws():
    """Lists, integers beyond single precision, and bytes in another order."""
    for made in (
        [[[0.0, 1.0]] * 3] * 5,
        torch.full((5, 3, 2), 2**24 + 1),
        np.full((5, 3, 2), 0.1, dtype=">f8"),
    ):
        draws = sample(Returns(made).batched, torch.zeros(3, 2), 5)
        assert torch.equal(
            draws.double()[0, 0, 1],
            torch.as_tensor(np.asarray(made)[0, 0, 1].astype("=f8")),
        )


@pytest.mark.parametrize(
    "posterior",
    [
        None,
        torch.nn.Linear(2, 2),
        Gaussian,  # the class
        lambda xs: xs,
        exhibit("npe-mdn").posterior.posterior_estimator,
    ],
    ids=["None", "Linear", "class", "one argument", "estimator"],
)
def test_what_is_no_posterior_is_named(posterior):
    with pytest.raises(TypeError, match="posterior: expected a posterior of sbi"):
        sample(posterior, torch.zeros(3, 2), 5)


def test_a_module_with_the_right_arguments_is_a_posterior():
    class Own(torch.nn.Module):
        def forward(self, xs, num):
            return xs + torch.randn(num, *xs.shape)

    assert sample(Own(), torch.zeros(3, 2), 5).shape == (5, 3, 2)


def test_a_device_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device: .*this machine has no CUDA"):
        sample(numpy_posterior, torch.zeros(3, 2), 5, device="cuda")


# Posteriors that change what they are given


class ChangesOne(Gaussian):
    def sample(self, shape, x):
        x += 1
        return super().sample(shape, x - 1)


def changes_many(xs, num):
    xs += 1
    return xs - 1 + torch.randn(num, *xs.shape)


@pytest.mark.parametrize("posterior", [ChangesOne(), changes_many])
def test_a_posterior_that_changes_its_xs_does_no_harm(posterior, generator):
    thetas = torch.randn(20, 2, generator=generator)
    xs = thetas + torch.randn(20, 2, generator=generator)
    before = xs.clone()
    draws = draw_at_pairs(posterior, thetas, xs, 400, seed=0, show_progress_bar=False)
    assert torch.equal(xs, before)
    assert torch.equal(draws.xs, before)
    torch.testing.assert_close(draws.samples.mean(dim=0), before, atol=0.25, rtol=0)


def test_a_posteriors_own_array_of_draws_is_left_alone():
    own = torch.randn(500, 3, 2)
    own[0, 0] = torch.nan
    before = own.clone()
    samples = sample(lambda xs, num: own[:num, : len(xs)], torch.zeros(3, 2), 5)
    assert samples.isfinite().all()
    torch.testing.assert_close(own, before, equal_nan=True, rtol=0, atol=0)


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
    assert sum(calls[:-2]) == 1000  # the last two look for a fixed seed


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_truths_and_draws_are_rounded_alike(generator, dtype):
    thetas = (100 + torch.randn(40, 1, generator=generator)).to(dtype)
    xs = torch.randn(40, 1, generator=generator)

    def q(xs, num):
        return 100 + torch.randn(num, len(xs), 1)

    draws = draw_at_pairs(q, thetas, xs, 30, seed=0, show_progress_bar=False)
    assert torch.equal(draws.samples.to(dtype).to(draws.samples), draws.samples)


def test_an_unknown_option_is_named():
    with pytest.raises(TypeError, match="foo: there is no such option"):
        draw_at_pairs(Gaussian(), torch.randn(20, 1), torch.randn(20, 1), 5, foo=1)


def test_xs_of_half_precision_can_be_sampled():
    xs = torch.randn(30, 1, generator=torch.Generator().manual_seed(0)).bfloat16()

    def q(xs, num):
        return torch.randn(num, len(xs), 1)

    assert sample(q, xs, 5).shape == (5, 30, 1)


class Seeded(Gaussian):
    """Sets a seed before it draws: the same noise in every call."""

    def sample(self, shape, x):
        torch.manual_seed(0)
        return super().sample(shape, x)

    def batched(self, xs, num):
        torch.manual_seed(0)
        return super().batched(xs, num)


def own_generator(xs, num):
    rng = np.random.default_rng(3)
    return np.asarray(xs) + rng.normal(size=(num, *xs.shape))


def one_noise_for_all(xs, num):
    return xs + torch.randn(num, 1, xs.shape[1])


@pytest.mark.parametrize("num", [1, 20])
@pytest.mark.parametrize(
    "posterior",
    [Seeded(), Seeded().batched, own_generator, one_noise_for_all],
    ids=["single", "batched", "generator", "noise"],
)
def test_a_posterior_that_sets_a_seed_itself_is_reported(posterior, num):
    xs = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="sets a random seed itself"):
        sample(posterior, xs, num)


@pytest.mark.parametrize(
    "posterior",
    [
        lambda xs, num: torch.bernoulli(torch.full((num, len(xs), 1), 0.01)),
        lambda xs, num: torch.bernoulli(torch.full((num, len(xs), 1), 0.5)),
        lambda xs, num: xs.expand(num, *xs.shape),
    ],
    ids=["rare", "coins", "no noise"],
)
@pytest.mark.parametrize("seed", range(20))
def test_discrete_draws_are_not_taken_for_a_fixed_seed(posterior, seed):
    xs = torch.randn(30, 1, generator=torch.Generator().manual_seed(seed))
    sample(posterior, xs, 1, seed=seed)


def test_both_sides_report_a_posterior_that_sets_a_seed_itself():
    def simulator(thetas):
        return thetas + torch.randn_like(thetas)

    prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    for methods in (("sbc",), ("predictive",), ("predictive", "sbc")):
        with pytest.warns(UserWarning, match="sets a random seed itself"):
            diagnose(
                Seeded(),
                prior,
                simulator,
                num_simulations=50,
                num_posterior_samples=20,
                methods=methods,
                seed=0,
                show_progress_bar=False,
            )
