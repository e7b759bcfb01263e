"""Files of draws, with and without a data side."""

import gc
import warnings

import numpy as np
import pytest
import torch
from data_side_helpers import made

from sbi_colt import Draws
from sbi_colt.cli import main


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_save_and_load_round_trip(tmp_path, generator, dtype):
    draws = Draws(
        torch.randn(6, 2, generator=generator).to(dtype),
        torch.randn(6, 2, 5, generator=generator).to(dtype),
        torch.randn(4, 6, 2, generator=generator).to(dtype),
    )
    draws.save(tmp_path / "draws.npz")
    loaded = Draws.load(tmp_path / "draws.npz")
    for name in ("thetas", "xs", "samples"):
        assert torch.equal(getattr(loaded, name), getattr(draws, name))
        assert getattr(loaded, name).dtype == dtype


def test_load_names_what_is_missing(tmp_path):
    np.savez(tmp_path / "other.npz", thetas=np.zeros((3, 1)))
    with pytest.raises(ValueError, match="missing samples, xs"):
        Draws.load(tmp_path / "other.npz")


def test_load_closes_a_damaged_file(tmp_path):
    file = tmp_path / "cut.npz"
    np.savez(file, thetas=np.zeros((10, 2)))
    file.write_bytes(file.read_bytes()[:100])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="expected an .npz file"):
            Draws.load(file)
        gc.collect()
    assert [w.category for w in caught if w.category is ResourceWarning] == []


def test_load_refuses_pickles_and_other_files(tmp_path):
    np.savez(tmp_path / "evil.npz", thetas=np.array([{}]), xs=1, samples=1)
    with pytest.raises(ValueError, match="expected an .npz file"):
        Draws.load(tmp_path / "evil.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match="expected an .npz file"):
        Draws.load(tmp_path / "text.npz")


def test_draws_with_a_data_side_survive_a_file(tmp_path):
    draws = made()
    draws.save(tmp_path / "draws.npz")
    loaded = Draws.load(tmp_path / "draws.npz")
    assert draws.predictive is not None
    assert loaded.predictive is not None
    for name in ("thetas", "xs", "samples"):
        before = getattr(draws.predictive, name)
        assert torch.equal(getattr(loaded.predictive, name), before)


def test_replicates_of_the_first_xs_need_no_other_array(tmp_path):
    rng = np.random.default_rng(0)
    thetas, xs = rng.normal(size=(40, 2)), rng.normal(size=(40, 3))
    replicates = rng.normal(size=(5, 30, 3))
    path = tmp_path / "data.npz"
    np.savez(
        path,
        thetas=thetas,
        xs=xs,
        thetas_of_posterior=thetas[:30],
        replicates=replicates,
    )
    draws = Draws.load(path)
    assert draws.num_posterior_samples == 0
    assert draws.predictive is not None
    assert np.array_equal(draws.predictive.thetas.numpy(), xs[:30])
    np.savez(path, thetas=thetas, xs=xs, replicates=replicates)
    with pytest.raises(ValueError, match="missing thetas_of_posterior"):
        Draws.load(path)


def saved(path, num_replicated=30, **arrays):
    """A file of another framework, with a data side."""
    rng = np.random.default_rng(0)
    given = {
        "thetas": rng.normal(size=(40, 2)),
        "xs": rng.normal(size=(40, 3)),
        "samples": rng.normal(size=(10, 40, 2)),
        "thetas_of_posterior": rng.normal(size=(num_replicated, 2)),
        "replicates": rng.normal(size=(5, num_replicated, 3)),
    } | arrays
    np.savez(path, **given)
    return given


def test_draws_of_the_data_side_must_be_further_ones(tmp_path):
    path = tmp_path / "draws.npz"
    samples = saved(path)["samples"]
    saved(path, thetas_of_posterior=samples[3, :30])
    with pytest.raises(ValueError, match="30 of 30 are among samples"):
        Draws.load(path)
    coins = samples > 0  # discrete draws agree by chance
    saved(path, samples=coins, thetas=coins[0], thetas_of_posterior=coins[3, :30])
    assert Draws.load(path).predictive is not None


def test_pairs_with_a_nan_are_dropped_whole(tmp_path):
    """If x or a replicate is not finite, the pair is dropped: members count alike."""
    path = tmp_path / "draws.npz"
    given = saved(path)
    given["xs"][2, 0] = given["replicates"][4, 7, 1] = np.nan
    np.savez(path, **given)
    with (
        pytest.warns(UserWarning, match="dropped 1 of 40 pairs whose x"),
        pytest.warns(UserWarning, match="dropped 2 of 30 pairs of the data side"),
    ):
        data = Draws.load(path).predictive
    assert data is not None
    kept = np.delete(np.arange(30), [2, 7])
    assert np.array_equal(data.thetas, given["xs"][kept])
    assert np.array_equal(data.xs, given["thetas_of_posterior"][kept])


def test_a_file_with_few_replicated_pairs_is_refused(tmp_path, capsys):
    saved(tmp_path / "draws.npz", num_replicated=19)
    assert main(["report", str(tmp_path / "draws.npz"), "--quiet"]) == 2
    assert "expected at least 20 xs with replicates, got 19" in capsys.readouterr().err
