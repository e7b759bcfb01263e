"""The table of times."""

import pytest

from sbi_colt.benchmark.studies import cost
from sbi_colt.cli import main


def test_times_become_a_ratio_and_exponents(monkeypatch, capsys):
    """With times in proportion to N, the square root of K and no other size."""

    def seconds(call, N, K, d):
        return 2.0 if call is cost._c2st else N / 100 * (K / 500) ** 0.5

    monkeypatch.setattr(cost, "_least_seconds", seconds)
    assert main(["benchmark", "cost", "--quiet"]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first.endswith("1.00 s; of C2ST, 1000 epochs: 2.00 s; ratio 0.50")
    assert [line[0] for line in others] == ["N", "K", "d"]
    exponents = [float(line.split()[-1]) for line in others]
    assert exponents == pytest.approx([1.0, 0.5, 0.0])


def test_the_least_of_the_times_counts():
    sizes = []

    def record(train, test):
        sizes.append((len(train), test.num_posterior_samples, test.dim))

    assert cost._least_seconds(record, N=7, K=5, d=2) >= 0
    assert sizes == 3 * [(7, 5, 2)]
