"""Single parameters, and fine structure of few."""

import pytest
import torch

from sbi_colt import CoLT, CoLTConfig, Draws
from sbi_colt.benchmark.tasks.gaussian import GaussianTask
from sbi_colt.probes.marginal import MarginalProbe


def test_a_coordinate_is_simulation_based_calibration(make_draws, generator):
    draws = make_draws(60, 20, 2, generator)
    thetas = draws.thetas + torch.tensor([0.0, 3.0])
    draws = Draws(thetas, draws.xs, draws.samples)
    p_values = []
    for index in (0, 1):
        config = CoLTConfig(
            probes=("marginal",), settings={"marginal": {"index": index}}
        )
        colt = CoLT(config, seed=0)
        colt.fit(make_draws(10, 20, 2, generator), show_progress_bar=False)
        p_values.append(colt.test(draws).p_value)
    assert p_values[1] < 1e-6 < 1e-2 < p_values[0]
    assert not MarginalProbe(index=2).fits(dim=2)
    assert [p.name for p in MarginalProbe().parts(2)] == ["marginal[0]", "marginal[1]"]
    assert MarginalProbe().parts(51) == []  # so many probes would cost power
    assert MarginalProbe(index=-1).fits(dim=1)  # the last one
    with pytest.raises(ValueError, match="index: expected an integer >= -1"):
        MarginalProbe(index=-2)


def test_relief_is_for_few_parameters():
    config = CoLTConfig(probes=("relief", "density"))
    draws = GaussianTask("mean", 0.0, 3, 3).draws(20, 10, torch.Generator())
    colt = CoLT(config, seed=0).fit(draws, show_progress_bar=False)
    assert [probe.name for probe in colt.probes] == ["density"]
    with pytest.raises(ValueError, match="probes: none of .'relief'."):
        CoLT(CoLTConfig(probes=("relief",))).fit(draws)


def test_relief_finds_a_blurred_comb_and_nothing_where_draws_do_not_overlap(generator):
    """θ lies on a comb of narrow teeth, the same at every x, which q blurs."""

    def draws(num, blur, spread=0.0):
        def comb(*shape):
            teeth = torch.randint(20, shape, generator=generator) / 10
            return teeth + blur_of * torch.randn(*shape, generator=generator)

        xs = torch.randn(num, 1, generator=generator)
        blur_of = 0.01
        thetas = comb(num, 1) + spread * xs
        blur_of = blur
        return Draws(thetas, xs, comb(50, num, 1) + spread * xs)

    colt = CoLT(CoLTConfig(probes=("relief",)), seed=0)
    colt.fit(draws(300, 0.02), show_progress_bar=False)
    assert colt.test(draws(300, 0.02)).p_value < 1e-6
    colt.fit(draws(300, 0.02, spread=100.0), show_progress_bar=False)
    far = draws(50, 0.02, spread=100.0)
    assert len(colt.probes[0].heights) == 0  # its scores are equal: ties, broken fairly
    assert colt.test(far).p_value > 1e-4
