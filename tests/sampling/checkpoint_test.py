"""Runs that are interrupted and resumed, and folders that must be refused."""

import copy
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from sbi.inference.posteriors import DirectPosterior, EnsemblePosterior
from sbi.utils import BoxUniform
from stand_ins import Gaussian, numpy_posterior, sample

from sbi_colt import (
    CoLTConfig,
    compare,
    diagnose,
    draw,
    run_colt,
)
from sbi_colt.benchmark.posterior_zoo import exhibit, prior
from sbi_colt.sampling.checkpoint import Checkpoint

XS = torch.arange(40.0).reshape(20, 2)
QUICK = CoLTConfig(probes=("mahalanobis",))


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "kept"


# Resuming

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
def test_a_killed_run_goes_on_and_gives_the_same_draws(kept, batched):
    num = 10_000 if batched else 20
    parts = "block-*.npz" if batched else "x-*.npz"
    script = RUN.format(
        here=str(Path(__file__).parents[1]), batched=batched, path=str(kept), num=num
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while len(list(kept.glob(parts))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = len(list(kept.glob(parts)))
    assert done >= 3

    posterior = Gaussian(seconds=0.05)
    target = posterior.batched if batched else posterior
    xs = torch.arange(80.0).reshape(40, 2)
    resumed = sample(target, xs, num, seed=None, checkpoint=kept)
    total = 40 if not batched else -(-40 // (2**16 // num))
    reference = 1 if batched else 5  # calls for the reference draws
    assert posterior.calls == reference + total - done + 2  # two look for a fixed seed
    assert torch.equal(resumed, sample(target, xs, num, seed=3))


WITH_LAMBDA = """
import torch
from sbi_colt import draw_posterior_samples
def posterior(xs, num):
    return (lambda x: x + torch.randn(num, *x.shape))(xs)
xs = torch.arange(40.0).reshape(20, 2)
draws = draw_posterior_samples(posterior, xs, 5, checkpoint={path!r})
print(float(draws.sum()))
"""


def test_a_function_with_a_lambda_inside_is_resumed_in_a_new_process(kept):
    command = [sys.executable, "-c", WITH_LAMBDA.format(path=str(kept))]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first == second != ""


def test_a_checkpoint_may_be_resumed_with_another_memory_budget(kept):
    sample(Gaussian().batched, XS, 50, checkpoint=kept)
    again = sample(Gaussian().batched, XS, 50, checkpoint=kept, memory_budget=10_000)
    assert again.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("batched", [True, False])
def test_the_type_of_the_draws_is_kept(kept, dtype, batched):
    class Rounded(Gaussian):
        def sample(self, shape, x):
            return super().sample(shape, x).to(dtype)

        def batched(self, xs, num):
            return super().batched(xs, num).to(dtype)

    posterior = Rounded().batched if batched else Rounded()
    first, again = (sample(posterior, XS, 5, checkpoint=kept) for _ in range(2))
    assert first.dtype == again.dtype == dtype
    assert torch.equal(first, again)


def test_an_ensemble_is_resumed_and_its_components_are_recognised(kept, generator):
    posterior = exhibit("npe-mdn").posterior
    xs = exhibit("npe-mdn").observe(6, generator)
    other = _retrained(posterior)
    first = sample(EnsemblePosterior([posterior, other]), xs, 9, checkpoint=kept)
    again = sample(EnsemblePosterior([posterior, other]), xs, 9, checkpoint=kept)
    assert torch.equal(first, again)
    with pytest.raises(ValueError, match="component-1 holds draws of another"):
        sample(EnsemblePosterior([posterior, posterior]), xs, 9, checkpoint=kept)


def _simulator(thetas):
    return thetas + 0.5 * torch.randn_like(thetas)


@pytest.mark.parametrize("name", ["draw", "run_colt", "diagnose", "compare"])
def test_every_front_door_resumes_without_a_seed(kept, name, generator):
    posterior = Gaussian()
    thetas = torch.randn(40, 2, generator=generator)
    xs = thetas + torch.randn(40, 2, generator=generator)
    options = {"checkpoint": kept, "show_progress_bar": False}
    simulated = {"num_simulations": 40, "num_posterior_samples": 9}
    colt = {"config": QUICK, "methods": ("colt",)}
    both = {"a": posterior, "b": Gaussian(scale=2.0)}

    def number():
        if name == "run_colt":
            return run_colt(thetas, xs, posterior, 9, config=QUICK, **options).p_value
        made = (prior(), _simulator)
        if name == "draw":
            return float(draw(posterior, *made, **simulated, **options).samples.sum())
        if name == "diagnose":
            report = diagnose(posterior, *made, **simulated, **colt, **options)
            return report["colt"].p_value
        comparison = compare(both, *made, **simulated, **colt, **options)
        return comparison["a"].colt.p_value

    first = number()
    before = posterior.calls
    assert number() == first
    assert posterior.calls == before + 5 + 2  # the reference draws, and for a seed


# Another posterior


def _retrained(posterior):
    retrained = copy.deepcopy(posterior)
    with torch.no_grad():
        for weight in retrained.posterior_estimator.parameters():
            weight *= 1.1
    return retrained


class Model:
    def __init__(self, scale):
        self.net = torch.nn.Linear(1, 1)
        with torch.no_grad():
            self.net.weight.fill_(scale)

    def q(self, xs, num):
        with torch.no_grad():
            return xs + self.net.weight * torch.randn(num, *xs.shape)


def scaled(xs, num, scale):
    return xs + scale * torch.randn(num, *xs.shape)


def default(scale):
    def q(xs, num, scale=scale):
        return scaled(xs, num, scale)

    return q


SCALE = 1.0


def by_global(scale):
    def q(xs, num):
        return scaled(xs, num, SCALE)

    globals()["SCALE"] = scale
    return q


def stretched(stretch):
    return lambda xs, num: xs + stretch(torch.randn(num, *xs.shape))


def over_lambda(scale):
    return stretched(lambda noise: scale * noise)


def narrow(scale):
    """Far from zero: with scales 1 and 1.001, draws agree in six digits."""

    def q(xs, num):
        noise = torch.randn(num, *xs.shape, dtype=torch.float64)
        return 1002 + 0.001 * (noise + 900 * (scale - 1))

    return q


class AtSomeXs(Gaussian):
    """Another scale at the last ten xs only."""

    def sample(self, shape, x):
        is_last = x[..., :1] >= 20
        return x + torch.where(is_last, self.scale, 1.0) * torch.randn(*shape, 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda scale: Model(scale).q,
        lambda scale: functools.partial(scaled, scale=scale),
        default,
        by_global,
        over_lambda,
        lambda scale: Gaussian(scale=scale),
        lambda scale: Gaussian(scale=scale).batched,
        narrow,
        lambda scale: AtSomeXs(scale=scale),
    ],
    ids=[
        "method",
        "partial",
        "default",
        "global",
        "lambda",
        "object",
        "batched",
        "narrow",
        "some-xs",
    ],
)
@pytest.mark.parametrize("changed", [1.001, 2.0])
def test_another_posteriors_draws_are_never_returned(kept, make, changed):
    first = sample(make(1.0), XS, 5, checkpoint=kept)
    with pytest.raises(ValueError, match="kept holds draws of another posterior"):
        sample(make(changed), XS, 5, checkpoint=kept)
    assert torch.equal(sample(make(1.0), XS, 5, checkpoint=kept), first)


def test_a_checkpoint_of_a_retrained_posterior_is_refused(kept, generator):
    xs = exhibit("npe-mdn").observe(3, generator)
    posterior = exhibit("npe-mdn").posterior
    sample(posterior, xs, 4, checkpoint=kept)
    with pytest.raises(ValueError, match="holds draws of another posterior"):
        sample(_retrained(posterior), xs, 4, seed=None, checkpoint=kept)


def test_another_prior_support_is_another_posterior(kept, generator):
    """The network is the same; only the prior's box differs."""
    estimator = exhibit("npe-mdn").posterior.posterior_estimator
    xs = torch.randn(30, 2, generator=generator)

    def box(low):
        prior = BoxUniform(low * torch.ones(2), 4 * torch.ones(2))
        return DirectPosterior(estimator, prior)

    sample(box(-4.0), xs, 50, checkpoint=kept)
    with pytest.raises(ValueError, match="holds draws of another posterior"):
        sample(box(0.0), xs, 50, checkpoint=kept, max_lost=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["warmup_steps", "thin"])
def test_other_settings_of_markov_chains_are_refused(kept, generator, setting):
    name = "nle, vectorised slice"
    posterior, xs = exhibit(name).posterior, exhibit(name).observe(2, generator)
    sample(posterior, xs, 60, checkpoint=kept)
    other = copy.deepcopy(posterior)
    setattr(other, setting, getattr(other, setting) + 3)
    with pytest.raises(ValueError, match="holds draws of another posterior"):
        sample(other, xs, 60, checkpoint=kept)


def test_rounding_is_no_other_posterior(kept):
    """Another number of threads may change the last bits."""

    def q(scale):
        return lambda xs, num: (1e3 + xs + torch.randn(num, *xs.shape)) * scale

    first = sample(q(1.0), XS, 5, checkpoint=kept)
    assert torch.equal(sample(q(1 + 2e-7), XS, 5, checkpoint=kept), first)


# Another run


def test_a_checkpoint_of_another_run_is_refused(kept):
    sample(Gaussian(), XS, 4, checkpoint=kept)
    for options, message in (
        ({"num_samples": 5}, "num_samples differs"),
        ({"xs": XS + 1}, "xs differs"),
        ({"seed": 1}, "seed differs"),
        ({"checkpoint_name": "mine"}, "checkpoint_name differs"),
    ):
        arguments = {"xs": XS, "num_samples": 4} | options
        xs, num = arguments.pop("xs"), arguments.pop("num_samples")
        with pytest.raises(ValueError, match=message):
            sample(Gaussian(), xs, num, checkpoint=kept, **arguments)


def test_batched_and_single_sampling_do_not_share_a_folder(kept, generator):
    posterior = exhibit("npe-mdn").posterior
    xs = exhibit("npe-mdn").observe(3, generator)
    sample(posterior, xs, 4, checkpoint=kept)
    with pytest.raises(ValueError, match="use_batched_sampling differs"):
        sample(posterior, xs, 4, checkpoint=kept, use_batched_sampling=False)


def test_a_file_is_no_checkpoint(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="checkpoint: expected a folder"):
        sample(numpy_posterior, torch.zeros(3, 2), 5, checkpoint=tmp_path / "file")


# Draws that do not follow the seed


def _with_its_own_generator():
    own = np.random.default_rng(7)

    def posterior(xs, num):
        return xs.numpy() + own.normal(size=(num, *xs.shape))

    return posterior


def test_draws_that_do_not_follow_the_seed_cannot_be_resumed(kept):
    with pytest.warns(UserWarning, match="do not follow the seed.*checkpoint_name"):
        sample(_with_its_own_generator(), XS, 5, checkpoint=kept)
    with pytest.raises(ValueError, match="cannot be resumed.*checkpoint_name"):
        sample(_with_its_own_generator(), XS, 5, checkpoint=kept)


def test_a_name_resumes_draws_that_do_not_follow_the_seed(kept):
    posterior = _with_its_own_generator()
    first = sample(posterior, XS, 5, checkpoint=kept, checkpoint_name="mine")
    again = sample(posterior, XS, 5, checkpoint=kept, checkpoint_name="mine")
    assert torch.equal(first, again)
    with pytest.raises(ValueError, match="checkpoint_name differs"):
        sample(posterior, XS, 5, checkpoint=kept, checkpoint_name="yours")
    with pytest.raises(ValueError, match="checkpoint_name differs"):
        sample(posterior, XS, 5, checkpoint=kept)


@pytest.mark.parametrize(
    ("name", "folder", "message"),
    [("mine", False, "expected checkpoint=folder"), (3, True, "expected a name")],
)
def test_bad_names_are_named(kept, name, folder, message):
    with pytest.raises(ValueError, match=f"checkpoint_name: {message}"):
        sample(
            Gaussian(),
            XS,
            5,
            checkpoint=kept if folder else None,
            checkpoint_name=name,
        )


# Damage, and runs at the same time


def _cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("posterior", [Gaussian(), Gaussian().batched])
def test_a_part_that_is_cut_off_is_drawn_again(kept, posterior):
    first = sample(posterior, XS, 5, checkpoint=kept)
    part = min([*kept.glob("x-*.npz"), *kept.glob("block-*.npz")])
    _cut(part)
    assert torch.equal(sample(posterior, XS, 5, checkpoint=kept), first)
    with np.load(part) as arrays:
        assert arrays.files


@pytest.mark.parametrize("name", ["header.json", "reference.npz"])
@pytest.mark.parametrize("seed", [0, None])
def test_a_folder_without_its_header_or_reference_is_named(kept, name, seed):
    sample(Gaussian(), XS, 5, checkpoint=kept)
    _cut(kept / name)
    with pytest.raises(ValueError, match=f"{name}.*damaged; delete the folder"):
        sample(Gaussian(), XS, 5, checkpoint=kept, seed=seed)


def test_runs_at_the_same_time_share_a_folder(kept):
    together = threading.Barrier(4)
    header = {"seed": 0, "checkpoint_name": None}
    errors = []

    def run():
        try:
            checkpoint = Checkpoint(kept, header)
            checkpoint.recognise(lambda: torch.zeros(3, 1, 1), is_batched=True)
            for part in range(50):
                together.wait()
                checkpoint.save("part", {"number": torch.full((1000,), part)})
        except Exception as error:
            errors.append(error)
            together.abort()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert Checkpoint(kept, header).load("part")["number"].shape == (1000,)
    assert {file.name for file in kept.iterdir()} == {
        "header.json",
        "reference.npz",
        "part.npz",
    }


def test_a_run_that_began_a_moment_later_is_compared_too(kept):
    """Both find an empty folder; the second to write its reference is refused."""
    header = {"seed": 0, "checkpoint_name": None}
    first, second = Checkpoint(kept, header), Checkpoint(kept, header)

    def draw_while_the_other_writes():
        first.recognise(lambda: torch.zeros(3, 1, 1), is_batched=True)
        return torch.ones(3, 1, 1)

    with pytest.raises(ValueError, match="holds draws of another posterior"):
        second.recognise(draw_while_the_other_writes, is_batched=True)
