"""Features of data: symmetric in the bag, finite for any data, few."""

import pytest
import torch
from torch import nn

from sbi_colt.probes.features import DataFeatures
from sbi_colt.probes.networks import linear_map


def bags(generator, num_bags=20, size=10, dim=30):
    levels = torch.randn(num_bags, 1, 1, generator=generator)
    return levels + torch.randn(num_bags, size, dim, generator=generator)


def cauchy(shape, generator):
    return torch.empty(shape).cauchy_(generator=generator)


def test_the_order_of_members_and_of_bags_does_not_matter(generator):
    members = bags(generator)
    shuffled = members[torch.randperm(20, generator=generator)]
    places = torch.rand(20, 10, generator=generator).argsort(dim=1)
    shuffled = shuffled.gather(1, places.unsqueeze(2).expand_as(shuffled))
    first, second = (DataFeatures.fit(m, (30,)) for m in (members, shuffled))
    fresh = bags(generator)
    torch.testing.assert_close(
        first.of_bags(fresh), second.of_bags(fresh), rtol=1e-6, atol=1e-6
    )
    backwards = first.of_bags(fresh.flip(1)).flip(1)
    torch.testing.assert_close(backwards, first.of_bags(fresh))
    assert first.names == second.names


def test_features_of_a_bag_do_not_depend_on_other_bags(generator):
    features = DataFeatures.fit(bags(generator), (30,))
    fresh = bags(generator)
    together = features.of_bags(fresh)
    wild = fresh.clone()
    wild[1:] = 1e6
    torch.testing.assert_close(features.of_bags(wild)[0], together[0])
    torch.testing.assert_close(features(fresh[3, 4]), together[3, 4, :-1])


@pytest.mark.parametrize("shape", [(1,), (3,), (20,), (21,), (400,), (2, 40), (40, 2)])
def test_there_are_few_components_with_names(shape, generator):
    size = int(torch.tensor(shape).prod())
    members = bags(generator, dim=size)
    features = DataFeatures.fit(members, shape)
    components = features(members.reshape(20, 10, *shape))
    torch.testing.assert_close(components, features(members))
    assert components.shape[-1] <= 10
    assert features.of_bags(members).shape[-1] == len(features.names) <= 11
    assert len(features.feature_names) == features.describe(members).shape[-1] <= 48


def test_one_telling_number_among_many_is_found(generator):
    members = torch.randn(45, 7, 300, generator=generator)
    members[:, :, 17] *= 0.05
    members[:, :, 17] += torch.randn(45, 1, generator=generator)
    features = DataFeatures.fit(members, (3, 100))
    assert features.names[0] == "component 1 (x[0, 17])"


@pytest.mark.parametrize("dim", [1, 5, 12, 60])
@pytest.mark.parametrize(
    "make",
    [
        lambda shape, g: torch.zeros(shape),
        lambda shape, g: torch.full(shape, 1e30),
        lambda shape, g: cauchy(shape, g).square() * cauchy(shape, g),
        lambda shape, g: 3e37 * torch.randn(shape, generator=g),
        lambda shape, g: 1e-40 * torch.randn(shape, generator=g),
        lambda shape, g: torch.poisson(
            (14 * torch.rand(shape, generator=g)).exp(), generator=g
        ),
        lambda shape, g: (torch.rand(shape, generator=g) < 0.02).float(),
        lambda shape, g: 1e300 * torch.randn(shape, generator=g).double(),
        lambda shape, g: torch.randn(shape[0], 1, 1, generator=g).expand(shape),
    ],
    ids=[
        *("zero", "constant", "cauchy", "huge", "tiny"),
        *("counts", "rare", "double", "determined"),
    ],
)
def test_any_data_have_finite_components(make, dim, generator):
    features = DataFeatures.fit(make((12, 10, dim), generator), (dim,))
    assert features.of_bags(make((12, 10, dim), generator)).isfinite().all()
    assert features.loadings.isfinite().all()


@pytest.mark.parametrize("size", [2, 3, 10])
@pytest.mark.parametrize("num_bags", [1, 2, 5])
def test_a_few_bags_are_enough(num_bags, size, generator):
    members = bags(generator, num_bags, size)
    assert DataFeatures.fit(members, (30,)).of_bags(members).isfinite().all()


def test_the_first_component_is_what_differs_between_bags(generator):
    """The level moves the mean of 100 noisy numbers: no single number shows it."""
    members = bags(generator, dim=100)
    features = DataFeatures.fit(members, (100,))
    assert features.names[0] == "component 1 (mean)"
    fresh = bags(generator, num_bags=200, dim=100)
    first = features(fresh)[..., 0]
    explained = torch.corrcoef(torch.stack([first, fresh.mean(dim=2)]).flatten(1))
    assert explained[0, 1].abs() > 0.97


def test_components_have_the_spread_that_their_ratio_gives(generator):
    """Within bags the spread of a component is sqrt(λ / (1 + λ)): λ = 4 and 0 here."""
    noise = torch.randn(2000, 10, 2, generator=generator)
    levels = torch.randn(2000, 1, 2, generator=generator)
    members = torch.tensor([2.0, 0.0]) * levels + noise
    members = members @ torch.tensor([[3.0, 1.0], [0.0, 2.0]])  # any linear map
    components = DataFeatures.fit(members, (2,))(members)
    spread = components.var(dim=1).mean(dim=0).sqrt()
    torch.testing.assert_close(
        spread, torch.tensor([0.8, 0.02]).sqrt().double(), rtol=0.08, atol=0.0
    )


def test_counts_of_all_sizes_are_seen_on_a_logarithmic_scale(generator):
    rates = (12 * torch.rand(300, 1, 1, generator=generator)).exp()
    noise = (0.3 * torch.randn(300, 10, 4, generator=generator)).exp()
    counts = torch.poisson(rates * noise, generator=generator)
    spreads = DataFeatures.fit(counts, (4,)).describe(counts).std(dim=1)  # (300, 4)
    large = spreads[rates.flatten() > 1e4].mean()
    small = spreads[(rates.flatten() > 20) & (rates.flatten() < 200)].mean()
    assert 0.6 < large / small < 1.6


def test_the_distance_sees_a_number_that_is_precise_in_its_own_bag_only(generator):
    """In each bag another number of 40 has little noise, and the first member errs."""
    precise = torch.rand(60, 1, 40, generator=generator).argsort(dim=2) == 0
    noise = torch.randn(60, 10, 40, generator=generator)
    members = torch.where(precise, 0.01 * noise, noise)
    members[:, 0] += 0.5 * precise[:, 0]
    features = DataFeatures.fit(members[:30], (40,))
    distances = features.of_bags(members[30:])[..., -1]
    places = distances.argsort(dim=1).argsort(dim=1)[:, 0].double()
    assert places.mean() > 6.5  # 4.5 by chance


def test_an_embedding_net_stands_beside_the_numbers(generator, unchanged_random_state):
    """Images through a network, which is copied, frozen and given standardised xs."""
    seen = []

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = linear_map(64, 5, generator)
            self.dropout = nn.Dropout(0.5)

        def forward(self, xs):
            seen.append(xs)
            return self.dropout(self.map(xs.flatten(1))).tanh()

    net = Net()
    members = 50 + 7 * bags(generator, dim=64)
    features = DataFeatures.fit(members, (8, 8), net)
    assert seen[0].shape == (200, 8, 8)
    assert abs(float(seen[0].mean())) < 1e-4
    assert float(seen[0].std()) == pytest.approx(1, abs=0.02)
    names = features.feature_names
    assert [n for n in names if n.startswith("embedding")] == [
        f"embedding {i}" for i in range(1, 6)
    ]
    assert "mean" in names
    assert "principal component 1" in names
    before = features(members)
    assert not before.requires_grad
    nn.init.zeros_(net.map.weight)
    torch.testing.assert_close(features(members), before)


def test_a_network_with_infinite_outputs_is_an_error(generator):
    class Net(nn.Module):
        def forward(self, xs):
            return xs.flatten(1) / 0

    with pytest.raises(ValueError, match="embedding_net: expected finite"):
        DataFeatures.fit(bags(generator, dim=4), (4,), Net())


def test_the_state_is_a_few_tensors(generator):
    members = bags(generator)
    features = DataFeatures.fit(members, (30,))
    again = DataFeatures((30,))
    again.load_state_dict(features.state_dict())
    torch.testing.assert_close(again.of_bags(members), features.of_bags(members))
    assert again.names == features.names
