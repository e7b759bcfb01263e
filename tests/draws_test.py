import numpy as np
import pytest
import torch

from sbi_colt import Draws
from sbi_colt.draws import make_predictive


def arrays(num_pairs=6, num_samples=4, dim=2, x_shape=(3,)):
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(num_pairs, dim, generator=generator),
        torch.randn(num_pairs, *x_shape, generator=generator),
        torch.randn(num_samples, num_pairs, dim, generator=generator),
    )


def test_numpy_and_torch_give_the_same_draws():
    tensors = arrays()
    ours = Draws(*(t.numpy() for t in tensors), shuffle=False)
    for mine, original in zip(
        (ours.thetas, ours.xs, ours.samples), tensors, strict=True
    ):
        assert torch.equal(mine, original)


def test_later_changes_to_an_array_do_not_reach_the_draws():
    thetas, xs, samples = (t.numpy().copy() for t in arrays())
    draws = Draws(thetas, xs, samples)
    thetas[:] = np.nan
    assert draws.thetas.isfinite().all()


def test_the_draws_of_each_x_are_shuffled(tmp_path):
    thetas, xs, _ = arrays(num_pairs=50)
    samples = torch.arange(20.0).reshape(20, 1, 1).expand(20, 50, 2)
    draws = Draws(thetas, xs, samples)
    assert torch.equal(draws.samples.sort(dim=0).values, samples)
    assert not torch.equal(draws.samples[:, 0], draws.samples[:, 1])
    assert torch.equal(draws.samples[..., 0], draws.samples[..., 1])  # whole draws
    assert float(draws.samples[0, :, 0].std()) > 4  # the first is any of them
    assert torch.equal(Draws(thetas, xs, samples).samples, draws.samples)
    draws.save(tmp_path / "ours.npz")
    assert torch.equal(Draws.load(tmp_path / "ours.npz").samples, draws.samples)
    np.savez(tmp_path / "theirs.npz", thetas=thetas, xs=xs, samples=samples)
    assert torch.equal(Draws.load(tmp_path / "theirs.npz").samples, draws.samples)


def test_split_is_a_partition_and_seeded():
    draws = Draws(*arrays(num_pairs=20))
    first, second = draws.split(0.3, seed=1)
    assert (len(first), len(second)) == (6, 14)
    together = torch.cat([first.thetas, second.thetas])
    assert torch.equal(together.sort(dim=0).values, draws.thetas.sort(dim=0).values)
    assert torch.equal(first.samples, draws.split(0.3, seed=1)[0].samples)
    assert not torch.equal(first.samples, draws.split(0.3, seed=2)[0].samples)


def test_split_keeps_pairs_and_their_samples_together():
    thetas = torch.arange(10.0).unsqueeze(1)
    draws = Draws(thetas, thetas.clone(), thetas.expand(3, 10, 1).clone())
    for part in draws.split(0.5, seed=0):
        assert torch.equal(part.thetas, part.xs)
        assert torch.equal(part.samples[2], part.thetas)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1, 2, 0.01])
def test_split_that_leaves_a_side_empty_is_refused(fraction):
    with pytest.raises(ValueError, match="fraction"):
        Draws(*arrays()).split(fraction)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"thetas": torch.zeros(6)}, ValueError, r"thetas: expected shape \(N, d\)"),
        ({"thetas": torch.zeros(0, 2)}, ValueError, "thetas: expected at least one"),
        ({"thetas": torch.zeros(5, 2)}, ValueError, "xs: expected 5 observations"),
        ({"thetas": torch.zeros(6, 3)}, ValueError, "samples: expected shape"),
        ({"thetas": torch.full((6, 2), torch.nan)}, ValueError, "thetas: .*finite"),
        ({"xs": torch.zeros(())}, ValueError, "xs: expected 6 observations"),
        ({"xs": torch.zeros(6, 0)}, ValueError, "xs: observations are empty"),
        ({"xs": [torch.zeros(3)] * 6}, TypeError, "xs: .*got a list; stack"),
        ({"xs": torch.full((6, 3), torch.nan)}, ValueError, "xs: every one of the 6"),
        ({"xs": np.array([["a"]] * 6)}, TypeError, "xs: expected an array of numbers"),
        ({"samples": torch.zeros(4, 6)}, ValueError, "samples: expected shape"),
        ({"samples": torch.zeros(6, 4, 2)}, ValueError, "looks transposed"),
        ({"samples": torch.zeros(0, 6, 2)}, ValueError, "samples: .*S = 0"),
        ({"samples": torch.full((4, 6, 2), torch.inf)}, ValueError, "samples: .*fin"),
        (
            {"samples": torch.zeros(4, 6, 2, dtype=torch.complex64)},
            TypeError,
            "samples: expected real",
        ),
    ],
)
def test_bad_input_names_the_argument(change, error, message):
    given = dict(zip(("thetas", "xs", "samples"), arrays(), strict=True)) | change
    with pytest.raises(error, match=message):
        Draws(**given)


def test_nan_xs_are_dropped_counted_and_masked():
    thetas, xs, samples = arrays()
    xs[1, 0], xs[4, 2] = torch.nan, torch.inf
    with pytest.warns(UserWarning, match="dropped 2 of 6 pairs"):
        draws = Draws(thetas, xs, samples, shuffle=False)
    assert draws.mask.tolist() == [True, False, True, True, False, True]
    assert torch.equal(draws.thetas, thetas[draws.mask])
    assert torch.equal(draws.samples, samples[:, draws.mask])


def test_bad_values_of_dropped_pairs_do_not_matter():
    thetas, xs, samples = arrays()
    xs[1], thetas[1], samples[:, 1] = torch.nan, torch.nan, torch.inf
    with pytest.warns(UserWarning, match="dropped 1 of 6 pairs"):
        assert len(Draws(thetas, xs, samples)) == 5


def test_mask_and_index_lead_back_to_the_arrays_handed_in():
    thetas, xs, samples = arrays(num_pairs=20)
    xs[3] = torch.nan
    with pytest.warns(UserWarning, match="dropped"):
        draws = Draws(thetas, xs, samples)
    for part in draws.split(0.5, seed=0):
        assert torch.equal(part.thetas, thetas[part.index])
        assert torch.equal(part.mask, draws.mask)


def test_masked_arrays_are_refused():
    thetas, xs, samples = arrays()
    masked = np.ma.masked_array(xs.numpy(), mask=False)
    with pytest.raises(TypeError, match="xs: expected a plain array"):
        Draws(thetas, masked, samples)


def test_one_repeated_pair_does_not_switch_the_guard_off():
    thetas, xs, samples = arrays(num_pairs=20)
    rows = torch.cat([torch.arange(20), torch.tensor([0])])
    with pytest.raises(ValueError, match="1 of 21 positions are repeats"):
        Draws(thetas, xs, samples).select(rows)
    with pytest.raises(ValueError, match="1 of 21 pairs are repeats"):
        Draws(thetas[rows], xs[rows], samples[:, rows])


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.half])
def test_other_dtypes_are_converted_without_loss(dtype):
    thetas = torch.tensor([[0, 1], [1, 0]]).to(dtype)
    draws = Draws(thetas, thetas, thetas.expand(3, 2, 2))
    assert draws.thetas.dtype == torch.float32
    assert torch.equal(draws.thetas.to(dtype), thetas)


def test_large_integers_become_doubles_or_an_error():
    large = torch.tensor([[2**40 + 1]])
    assert Draws(large, large, large.expand(2, 1, 1)).thetas.dtype == torch.float64
    huge = torch.tensor([[2**60 + 1]])
    with pytest.raises(TypeError, match="thetas: .*no float represents"):
        Draws(huge, huge, huge.expand(2, 1, 1))


@pytest.mark.parametrize("is_double", ["thetas", "samples"])
def test_mixed_precision_is_rounded_alike(is_double):
    """Or 0.1 would differ from 0.1; sizes beyond single precision are kept."""
    large = torch.tensor([[0.1, 1e100]], dtype=torch.float64)
    small = torch.tensor([[0.1, 2.0]])
    thetas, samples = (large, small) if is_double == "thetas" else (small, large)
    draws = Draws(thetas, torch.zeros(1, 1), samples.expand(3, 1, 2))
    assert draws.samples.dtype == draws.thetas.dtype == torch.float64
    assert draws.samples[0, 0, 0] == draws.thetas[0, 0]
    both = draws.samples[0] if is_double == "samples" else draws.thetas
    assert both[0, 1] == 1e100


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("is_half", ["thetas", "samples"])
def test_half_precision_rounds_both_sides_alike(generator, dtype, is_half):
    members = torch.randn(6, 20, 2, generator=generator)
    thetas, samples = members[0], members[1:]
    if is_half == "thetas":
        thetas = thetas.to(dtype)
    else:
        samples = samples.to(dtype)
    draws = Draws(thetas, torch.randn(20, 1, generator=generator), samples)
    for values in (draws.thetas, draws.samples):
        assert torch.equal(values.to(dtype).to(values), values)
    large = Draws(
        torch.full((1, 1), 1e6), torch.zeros(1, 1), torch.zeros(1, 1, 1).half()
    )
    assert large.thetas.item() == 1e6  # beyond half precision: kept as it is


def test_later_changes_to_a_tensor_do_not_reach_the_draws():
    thetas, xs, samples = arrays()
    draws = Draws(thetas, xs, samples)
    before = [t.clone() for t in (draws.thetas, draws.xs, draws.samples)]
    for tensor in (thetas, xs, samples):
        tensor += 1
    for kept, own in zip(before, (draws.thetas, draws.xs, draws.samples), strict=True):
        assert torch.equal(kept, own)


def test_pairs_with_replicates_train_and_no_test_pair_has_any(generator):
    thetas, xs = torch.randn(2, 50, 1, generator=generator)
    draws = Draws(thetas, xs, torch.randn(4, 50, 1, generator=generator))
    places = torch.randperm(50, generator=generator)[:12]
    replicates = torch.randn(3, 12, 1, generator=generator)
    data = make_predictive(xs[places], thetas[places], replicates)
    for fraction, num_kept in ((0.4, 12), (0.1, 5)):
        train, test = draws.with_predictive(data).split(fraction, seed=0)
        assert len(train) == round(50 * fraction)
        assert len(train.predictive) == num_kept
        assert set(train.predictive.thetas.flatten().tolist()) <= set(
            train.xs.flatten().tolist()
        )
        assert test.predictive is None
        assert sorted([*train.index.tolist(), *test.index.tolist()]) == list(range(50))
