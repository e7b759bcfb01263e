import json
from dataclasses import replace

import pytest
import torch
from configs import make_config
from saved_files import change_header
from sbi.neural_nets.embedding_nets import (
    CNNEmbedding,
    FCEmbedding,
    PermutationInvariantEmbedding,
)
from torch import nn

from sbi_colt import CoLT, CoLTConfig, Draws, check_colt
from sbi_colt.benchmark.tasks.gaussian import GaussianTask

QUICK = make_config(max_epochs=8, num_redraws=199, num_hidden=16)


def fitted(draws, config=QUICK, seed=0):
    return CoLT(config, seed=seed).fit(draws, show_progress_bar=False)


def numbers(result):
    return (
        result.p_value,
        result.statistic,
        result.distance,
        result.distance_lower,
        [(p.name, p.statistic, p.p_value) for p in result.probes],
        result.ranks.tolist(),
    )


@pytest.fixture
def result(make_draws, generator):
    train, test = (make_draws(40, 10, 2, generator) for _ in range(2))
    return fitted(train).test(test)


@pytest.mark.parametrize("width", [0.6, 1.6])
def test_a_wrong_width_is_rejected(make_draws, generator, width):
    colt = fitted(make_draws(100, 100, 3, generator, width))
    result = colt.test(make_draws(100, 100, 3, generator, width))
    assert result.p_value <= 0.005
    assert 0 < result.distance_lower < result.distance
    assert check_colt(result)["verdict"] == "rejected"


def test_the_direction_of_a_wrong_width_shows_in_the_ranks(make_draws, generator):
    means = {}
    for width in (0.6, 1.0, 1.6):
        colt = fitted(
            make_draws(50, 50, 2, generator, width), CoLTConfig(probes=("mahalanobis",))
        )
        ranks = colt.test(make_draws(500, 50, 2, generator, width)).ranks
        means[width] = ranks.mean().item()
    assert means[0.6] > 0.6  # too narrow: the truth lies outside
    assert 0.45 < means[1.0] < 0.55
    assert means[1.6] < 0.4


def test_same_seed_same_result_bit_for_bit(make_draws, generator):
    train = make_draws(60, 30, 2, generator, 1.2)
    test = make_draws(60, 30, 2, generator, 1.2)
    first, second = (numbers(fitted(train, seed=5).test(test)) for _ in range(2))
    assert first == second
    assert numbers(fitted(train, seed=6).test(test)) != first


def test_order_of_tests_does_not_matter(make_draws, generator):
    colt = fitted(make_draws(60, 30, 2, generator))
    a, b = (make_draws(60, 30, 2, generator) for _ in range(2))
    first = numbers(colt.test(a))
    colt.test(b)
    assert numbers(colt.test(a)) == first


def test_without_a_seed_results_differ_but_can_be_repeated(make_draws, generator):
    train, test = (make_draws(60, 30, 2, generator) for _ in range(2))
    first, second = (fitted(train, seed=None).test(test) for _ in range(2))
    assert first.seed != second.seed
    assert numbers(fitted(train, seed=first.seed).test(test)) == numbers(first)


@pytest.mark.usefixtures("unchanged_random_state")
def test_public_calls_leave_the_random_state_alone(make_draws, generator, tmp_path):
    draws = make_draws(60, 10, 2, generator)
    train, test = draws.split(0.5)
    with torch.random.fork_rng():  # building a user's net is the user's business
        net = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5))
    config = replace(QUICK, embedding_net=net)
    colt = fitted(train, config, seed=None)
    result = colt.test(test)
    result.at(test.xs[0])
    result.localize(test.xs[:2] + 1)
    check_colt(result)
    draws.save(tmp_path / "draws.npz")
    Draws.load(tmp_path / "draws.npz")
    colt.save(tmp_path / "colt.npz")
    CoLT.load(tmp_path / "colt.npz", embedding_net=net)


def test_training_pairs_are_refused_in_the_test(make_draws, generator):
    draws = make_draws(60, 10, 2, generator)
    colt = fitted(draws)
    with pytest.raises(ValueError, match="60 of 60 test pairs were used in training"):
        colt.test(draws)
    fresh = Draws(draws.thetas, draws.xs, draws.samples.flip(0) + 0.1)
    with pytest.raises(ValueError, match="used in training"):
        colt.test(fresh)  # the same pairs with other draws are no better


def test_without_a_fit_or_after_one_that_fails_there_is_no_test(make_draws, generator):
    class Failing(nn.Module):
        def forward(self, xs):
            if len(xs) > 2:
                raise MemoryError
            return xs

    colt = CoLT(replace(QUICK, embedding_net=Failing()), seed=0)
    with pytest.raises(RuntimeError, match=r"call fit\(draws\) before"):
        colt.test(make_draws(60, 10, 2, generator))
    with pytest.raises(MemoryError):
        colt.fit(make_draws(60, 10, 2, generator), show_progress_bar=False)
    with pytest.raises(RuntimeError, match=r"call fit\(draws\) before"):
        colt.test(make_draws(60, 10, 2, generator))


def test_discrete_pairs_may_repeat_by_chance():
    ones = torch.ones(20, 1)
    draws = Draws(ones, ones, ones.expand(3, 20, 1))
    ranks = fitted(draws).test(draws).ranks  # ties are broken at random
    assert len(ranks.unique()) == 20


def test_other_dimensions_than_in_training_are_refused(make_draws, generator):
    colt = fitted(make_draws(40, 5, 2, generator))
    with pytest.raises(ValueError, match="trained on θ of dimension 2"):
        colt.test(make_draws(40, 5, 3, generator))


def test_arguments_of_the_wrong_type_are_named(result):
    with pytest.raises(TypeError, match="config: expected a CoLTConfig"):
        CoLT({"probes": 3})
    with pytest.raises(TypeError, match="seed: expected an int"):
        CoLT(seed="one")
    with pytest.raises(TypeError, match="draws: expected Draws"):
        CoLT().fit((1, 2, 3))
    with pytest.raises(ValueError, match="level: expected"):
        check_colt(result, level=5)
    with pytest.raises(TypeError, match="result: expected a CoLTResult"):
        check_colt("result")


def test_another_number_of_draws_at_test_time_is_fine(make_draws, generator):
    colt = fitted(make_draws(60, 100, 2, generator, 1.6))
    result = colt.test(make_draws(100, 7, 2, generator, 1.6))
    assert result.num_posterior_samples == 7
    assert result.p_value <= 0.05


def test_save_and_load_give_the_same_test(make_draws, generator, tmp_path):
    config = replace(QUICK, embedding=nn.Linear(2, 2))
    train, test = (make_draws(60, 20, 2, generator) for _ in range(2))
    colt = fitted(train, config)
    colt.save(tmp_path / "colt.npz")
    with pytest.raises(ValueError, match="embedding: expected Linear"):
        CoLT.load(tmp_path / "colt.npz")
    loaded = CoLT.load(tmp_path / "colt.npz", embedding=nn.Linear(2, 2))
    assert numbers(loaded.test(test)) == numbers(colt.test(test))
    assert loaded.history == colt.history
    with pytest.raises(ValueError, match="used in training"):
        loaded.test(train)


@pytest.mark.parametrize("column", ["x", "theta", "both"])
def test_constant_columns_do_no_harm(make_draws, generator, column):
    def make(n):
        draws = make_draws(n, 50, 2, generator, 1.6)
        thetas, xs, samples = draws.thetas, draws.xs, draws.samples
        if column != "theta":
            xs = torch.cat([xs, torch.full((n, 1), 1e4)], dim=1)
        if column != "x":
            thetas = torch.cat([thetas, torch.full((n, 1), -7.0)], dim=1)
            samples = torch.cat([samples, torch.full((50, n, 1), -7.0)], dim=2)
        return Draws(thetas, xs, samples)

    assert fitted(make(100)).test(make(100)).p_value <= 0.01


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_of_parameters_and_data_do_not_matter(make_draws, generator, scale):
    def make(n):
        draws = make_draws(n, 50, 2, generator, 1.6)
        return Draws(scale * draws.thetas, draws.xs / scale, scale * draws.samples)

    assert fitted(make(100)).test(make(100)).p_value <= 0.01


@pytest.mark.parametrize(
    ("net", "x_shape"),
    [
        (lambda: FCEmbedding(6, output_dim=4), (6,)),
        (lambda: CNNEmbedding((16, 16), output_dim=5), (1, 16, 16)),
        (
            lambda: PermutationInvariantEmbedding(FCEmbedding(3), 20, output_dim=4),
            (7, 3),
        ),
    ],
    ids=["vectors", "images", "sets"],
)
def test_sbis_embedding_nets_fit(generator, net, x_shape):
    with torch.random.fork_rng():
        torch.manual_seed(0)  # their initial weights
        net = net()

    def make(n):
        xs = torch.randn(n, *x_shape, generator=generator)
        mean = xs.flatten(1)[:, :2]
        noise = torch.randn(31, n, 2, generator=generator)
        return Draws(mean + noise[0], xs, mean + 2 * noise[1:])

    config = make_config(max_epochs=2, num_redraws=199, embedding_net=net)
    result = fitted(make(60), config).test(make(60))
    assert result.p_value <= 0.05
    assert result.at(result.evidence.xs[0]).num_effective > 5
    assert result.localize(make(4).xs).centres.shape == (4, 2)


def test_xs_without_a_feature_axis_and_higher_rank_xs_work(make_draws, generator):
    for x_shape in ((), (2, 3, 2)):
        thetas = torch.randn(40, 1, generator=generator)
        xs = torch.randn(40, *x_shape, generator=generator)
        draws = Draws(thetas, xs, torch.randn(9, 40, 1, generator=generator))
        train, test = draws.split(0.5, seed=0)
        result = fitted(train).test(test)
        assert result.p_value > 0.001
        far = Draws(test.thetas + 10, test.xs, test.samples)
        assert fitted(train).test(far).p_value <= 0.005


def test_a_large_offset_of_x_costs_no_power(generator):
    """A posterior that ignores x, where x is 1e9 plus something."""

    def make(n):
        xs = torch.randn(n, 1, generator=generator, dtype=torch.float64)
        thetas = xs + 0.1 * torch.randn(n, 1, generator=generator)
        return Draws(thetas, 1e9 + xs, torch.randn(50, n, 1, generator=generator))

    config = CoLTConfig(num_redraws=199)
    result = fitted(make(100), config).test(make(100))
    assert result.p_value <= 0.01
    assert result.at(result.evidence.xs[0]).reach < 1


def test_check_colt_is_plain_numbers(result):
    plain = check_colt(result)
    assert json.loads(json.dumps(plain)) == plain
    assert set(plain) == {
        "p_value",
        "statistic",
        "distance",
        "distance_lower",
        "probe",
        "verdict",
    }


def test_shares_name_the_probes_that_carried_the_test():
    generator = torch.Generator().manual_seed(0)
    task = GaussianTask("blind", 1.0, 3, 3)  # only a probe that looks at x can see it
    train, test = (task.draws(100, 100, generator) for _ in range(2))
    config = CoLTConfig(probes=("mahalanobis", "density", "drift"))
    result = CoLT(config, seed=0).fit(train, show_progress_bar=False).test(test)
    assert sum(result.shares.values()) == pytest.approx(1)
    assert result.shares["drift"] > 0.99
    one = CoLTConfig(probes=("energy",))
    alone = CoLT(one, seed=0).fit(train, show_progress_bar=False).test(test)
    assert alone.shares == {"energy": 1.0}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_device_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="this machine has no CUDA"):
        CoLT(device="cuda")


def test_a_network_that_changes_its_input_leaves_the_xs_alone(make_draws, generator):
    net = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(2, 2))
    config = CoLTConfig.paper("id", epochs=1, embedding_net=net)
    draws = make_draws(30, 5, 2, generator)
    before = draws.xs.clone()
    fitted(draws, config)
    assert torch.equal(draws.xs, before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training_p_value": 7}, "training_p_value: expected a number in"),
        ({"balls": [[9, 1]] * 10}, "balls: expected a number in"),
        ({"history": 3}, "file.npz: "),
    ],
)
def test_a_test_that_was_tampered_with_is_refused(
    make_draws, generator, tmp_path, change, message
):
    path = tmp_path / "file.npz"
    fitted(make_draws(30, 5, 2, generator)).save(path)
    change_header(path, lambda header: header.update(change))
    with pytest.raises(ValueError, match=message):
        CoLT.load(path)
