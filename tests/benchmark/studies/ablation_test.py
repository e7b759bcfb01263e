"""The table of probes."""

from argparse import Namespace

from sbi_colt.benchmark.studies import ablation
from sbi_colt.benchmark.studies.shared import Problem


def test_the_table_shows_which_probe_is_needed(monkeypatch):
    """Only the drift probe sees a posterior that ignores x."""
    monkeypatch.setattr(ablation, "_DEFAULT", ("mahalanobis", "drift"))
    monkeypatch.setattr(ablation, "_EACH", {})
    sets = {
        "the default": {"mahalanobis", "drift"},
        "without drift": {"mahalanobis"},
        "without mahalanobis": {"drift"},
        "with a random centre": {"mahalanobis", "drift", "random"},
    }
    monkeypatch.setattr(ablation, "_SETS", sets)
    monkeypatch.setattr(ablation, "_PROBLEMS", (Problem("blind", 1.0, (3, 3), 60),))
    monkeypatch.setattr(ablation, "_SEEDS", (20,))
    lines = list(ablation.run(Namespace(jobs=1, quiet=True), num_batches=3))
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["the", "default", "1.000"]
    assert "blind 1.00 to 0.00" in lines[2]
    assert "blind 1.00 to 1.00" in lines[3]
    assert lines[2].split()[4] == "s"
    assert lines[4].startswith("with a random centre         1.000    ")


def test_each_parameter_is_a_probe():
    """A test of single parameters alone: the sets with them are larger by d probes."""
    counts = ablation._rejections(Problem("mean", 0.5, (3, 3), 40), 20, num_batches=2)
    assert set(counts) == set(ablation._SETS)
    assert counts["the default"] == counts["with each parameter"] == 2
