"""The table of probes."""

from argparse import Namespace

from sbi_colt.benchmark.studies import ablation
from sbi_colt.benchmark.studies.shared import Problem


def test_the_table_shows_which_probe_is_needed(monkeypatch):
    """Only the drift probe sees a posterior that ignores x."""
    monkeypatch.setattr(ablation, "_DEFAULT", ("mahalanobis", "drift"))
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


def test_a_set_without_marginal_has_none_of_the_parameters(monkeypatch):
    """A bias of one among many parameters is seen by single parameters alone."""
    sets = {"both": {"density", "marginal"}, "without marginal": {"density"}}
    monkeypatch.setattr(ablation, "_DEFAULT", ("density", "marginal"))
    monkeypatch.setattr(ablation, "_SETS", sets)
    counts = ablation._rejections(
        Problem("bias", 0.6, (10, 10), 100), 20, num_batches=4
    )
    assert counts == {"both": 4, "without marginal": 0}
