"""Principal curves and their curvature."""

import re
from argparse import Namespace

import numpy as np
import pytest
import torch

from sbi_colt.benchmark.studies.curvature import (
    principal_curve,
    run,
    total_curvature,
)
from sbi_colt.benchmark.tasks.curved import bend


def test_total_curvature_of_known_curves():
    angles = np.linspace(0, 2 * np.pi, 2000)
    circle = np.stack([3 * np.cos(angles), 3 * np.sin(angles)], axis=1)
    assert total_curvature(circle) == pytest.approx(360, rel=0.03)
    line = np.stack([angles, 2 * angles], axis=1)
    assert total_curvature(line) < 1e-3


def test_the_principal_curve_runs_through_the_middle():
    """Points about half a circle: the curve keeps its radius and its length."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, np.pi, 600)
    radius = 2 + 0.1 * rng.normal(size=600)
    points = np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=1)
    curve = principal_curve(points, span=0.15)
    assert np.linalg.norm(curve, axis=1).mean() == pytest.approx(2, abs=0.05)
    assert total_curvature(curve) == pytest.approx(180, rel=0.25)


def test_bending_adds_curvature():
    """The bivariate case: a straight cloud before, a curved one after."""
    factor = torch.linalg.cholesky(torch.tensor([[1.0, 0.9], [0.9, 1.0]]))
    cloud = (
        3 * torch.randn(500, 2, generator=torch.Generator().manual_seed(1)) @ factor.T
    )
    before = total_curvature(principal_curve(cloud.double().numpy()))
    after = total_curvature(principal_curve(bend(cloud, 2).double().numpy()))
    assert before < 150
    assert after > 2 * before


def test_curvature_is_tabulated():
    header, one, three = run(Namespace(), num_points=200, num_seeds=2)
    assert header.split() == ["deviation", "before", "after"]
    medians = [float(text) for text in re.findall(r"(\d+) \(", three)]
    assert one.split()[0] == "1"
    assert 0 < 2 * medians[0] < medians[1]
