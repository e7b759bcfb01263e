"""The conditional logit: its optimum, its gain, and the bounds of the gain."""

import math

import pytest
import torch
from scipy.optimize import minimize
from tilt_helpers import evidence_of, noise

from sbi_colt.tilt.logit import fit_logit, fit_tilt, held_out_gain


def test_newton_finds_the_optimum(generator):
    values = torch.randn(50, 8, 3, generator=generator).double()
    truth = torch.randint(8, (50,), generator=generator)
    offset = torch.randn(50, 8, generator=generator).double()
    beta = fit_logit(values, truth, offset, 2.0)

    def loss(b):
        b = torch.from_numpy(b)
        s = values @ b
        chosen = s[torch.arange(50), truth]
        total = (offset + s).logsumexp(dim=1)
        return float((total - chosen).sum() + b.square().sum())

    best = minimize(loss, [0.0, 0.0, 0.0])
    assert loss(beta.numpy()) == pytest.approx(best.fun, abs=0.01)


def families(evidence, *names):
    return [evidence.features.families[name] for name in names]


@pytest.mark.parametrize("shift", [0.3, 0.8])
def test_the_gain_of_a_shift_is_its_divergence(generator, shift):
    """KL of Gaussians a shift δ apart is δ²/2; the tilt of t reaches it."""
    xs, members = noise(generator, 99, 3000, 1)
    evidence = evidence_of(members[0] + shift, xs, members[1:], generator)
    gain = held_out_gain(evidence, families(evidence, "shift"))
    assert gain.mean == pytest.approx(shift**2 / 2, abs=4 * gain.error + 0.02)
    assert gain.mean <= math.log(100)
    assert held_out_gain(evidence, families(evidence, "width")).mean < gain.mean / 2


def test_the_gain_of_wrong_widths_of_correlated_parameters(generator):
    """KL of Gaussians that differ by a factor c is d (log c + 1 / (2 c²) − 1/2)."""
    xs, members = noise(generator, 99, 2000, 4)
    for j in range(1, 4):
        members[..., j] = 0.9 * members[..., j - 1] + 0.19**0.5 * members[..., j]
    evidence = evidence_of(members[0], xs, 1.4 * members[1:], generator)
    gain = held_out_gain(evidence, families(evidence, "width"))
    divergence = 4 * (math.log(1.4) + 1 / (2 * 1.4**2) - 0.5)
    assert gain.mean == pytest.approx(divergence, rel=0.1)


def test_the_gain_of_a_shift_in_a_corner_of_x(generator):
    """KL is δ²/2 in a corner with a share of the xs, and 0 elsewhere."""
    xs, members = noise(generator, 99, 2000, 3)
    corner = (xs[:, 0] > 0.43) & (xs[:, 2] > 0.43)  # upper thirds
    samples = members[1:].clone()
    samples[..., 1] += 2 * corner
    evidence = evidence_of(members[0], xs, samples, generator)
    gain = held_out_gain(evidence, families(evidence, "shift", "shift with x"))
    divergence = 2 * float(corner.double().mean())
    assert 0.75 * divergence < gain.mean < 1.1 * divergence


def test_the_gain_of_a_correct_posterior_is_none(generator):
    xs, members = noise(generator, 50, 500, 2)
    evidence = evidence_of(members[0], xs, members[1:], generator)
    for family in evidence.features.families.values():
        assert held_out_gain(evidence, [family]).mean < 0.005, family


def test_a_tilt_is_larger_at_truths(generator):
    xs, members = noise(generator, 50, 300, 2)
    evidence = evidence_of(members[0] + 0.7, xs, members[1:], generator)
    tilt = fit_tilt(evidence, families(evidence, "shift"), 1.0)
    at_truth = tilt.scores[torch.arange(300), evidence.truth]
    assert at_truth.mean() > tilt.scores.mean() + 0.3
