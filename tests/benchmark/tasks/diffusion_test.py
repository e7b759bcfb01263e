"""The diffusion model: noise levels, the reverse process and the training."""

import pytest
import torch
from benchmark_helpers import fixed_distance

from sbi_colt.benchmark.tasks.diffusion import (
    DiffusionTask,
    noise_levels,
    reverse,
    spiral,
    train,
)


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def test_the_diffusion_is_batched_and_seeded():
    task = DiffusionTask(2, training_steps=20)
    first, again, other = (task.draws(6, 4, seeded(i)) for i in (1, 1, 2))
    assert first.samples.shape == (4, 6, 2)
    assert torch.equal(first.samples, again.samples)
    assert torch.equal(first.thetas, again.thetas)
    assert not torch.equal(first.thetas, other.thetas)


def test_noise_levels_are_those_of_the_paper():
    levels = noise_levels()
    assert len(levels) == 21
    assert float(levels[0]) == pytest.approx(80, rel=1e-5)
    assert float(levels[19]) == pytest.approx(0.002, rel=1e-4)
    assert levels[20] == 0
    assert (levels.diff() < 0).all()


def test_heuns_method_is_exact_for_a_perfect_denoiser():
    """If D is the clean θ whatever the noise, the reverse process ends there."""

    class Perfect:
        def __call__(self, thetas, sigma, xs):
            return spiral(xs)

    xs = torch.linspace(5, 14, 50).unsqueeze(1)
    ends = reverse(Perfect(), xs, 20, seeded())
    assert torch.allclose(ends, spiral(xs), atol=1e-3)
    early = reverse(Perfect(), xs, 15, seeded()) - spiral(xs)
    assert float(early.std()) == pytest.approx(float(noise_levels()[15]), rel=0.2)


def test_the_diffusion_learns_the_spiral_and_fewer_steps_are_worse():
    denoiser = train(0, 400)
    xs = torch.linspace(5, 14, 200).unsqueeze(1)
    with torch.no_grad():
        ends = reverse(denoiser, xs, 20, seeded())
    assert float((ends - spiral(xs)).abs().mean()) < 0.5
    sizes = [
        fixed_distance(DiffusionTask(alpha, training_steps=400), 200, 40, seeded())
        for alpha in (0, 5, 8)
    ]
    assert sizes[0] < 0.15
    assert sizes[0] < sizes[1] < sizes[2]
