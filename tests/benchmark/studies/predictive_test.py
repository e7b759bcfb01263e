"""The study of the data side's features and probes."""

import csv
from argparse import Namespace

from sbi_colt.benchmark.studies import predictive
from sbi_colt.benchmark.studies.predictive import PredictiveKey, PredictiveRow
from sbi_colt.benchmark.tasks.simulators import SIMULATORS


def test_each_error_and_candidate_is_a_row_and_the_table_has_their_means(
    monkeypatch, tmp_path
):
    """The numbers are made up: only the second candidate ever finds an error."""

    def measure(name, error, size, first, repetitions, candidates):
        found = (0.5, 0.4, 0.25) if error != "none" else (0.0, 0.1, 0.0)
        keys = [
            PredictiveKey(name, error, size, own.features, own.label, repetitions)
            for own in candidates
        ]
        numbers = ((0.0, 0.1, 0.0), found)
        return [PredictiveRow(k, *n) for k, n in zip(keys, numbers, strict=True)]

    monkeypatch.setattr(predictive, "_measure", measure)
    monkeypatch.setattr(predictive, "_CANDIDATES", predictive._CANDIDATES[:2])
    out = tmp_path / "new" / "predictive.csv"
    options = {"choice": False, "repetitions": 4, "jobs": 1, "quiet": True}
    options = Namespace(**options, out=out, command_line="this")
    lines = list(predictive.run(options))
    assert max(map(len, lines)) <= 88
    assert lines[1].split()[-4:] == ["0.00", "0.10", "0.00", "0.00"]
    assert lines[2].split()[-4:] == ["0.50", "0.40", "0.25", "0.00"]
    text = out.read_text(encoding="utf-8")
    assert text.startswith("# this\n")
    rows = list(csv.DictReader(text.splitlines()[2:]))
    assert len(rows) == 3 * 8 * 2
    monkeypatch.setattr(predictive, "_measure", None)  # calling it would fail
    assert lines == list(predictive.run(options))


def test_the_default_was_chosen_on_other_simulators():
    assert not set(predictive._REPORTED) - set(SIMULATORS)
    assert len(set(SIMULATORS) - set(predictive._REPORTED)) == 13


def test_a_posterior_blind_to_x_is_found_and_an_exact_one_is_not():
    blind = predictive._measure("linear", "blind", 0.0, 0, 2)
    exact = predictive._measure("linear", "none", 0.0, 0, 2)
    assert len(blind) == len(exact) == len(predictive._CANDIDATES)
    assert all(row.power == 1 for row in blind)
    assert blind[6].distance_lower > 0.2  # the four probes
    assert all(row.power <= 0.5 and row.distance_lower < 0.05 for row in exact)
