"""The table of probes."""

from sbi_colt.benchmark.studies import ablation
from sbi_colt.benchmark.studies.problem import Problem
from sbi_colt.config import CoLTConfig


def test_the_sets_leave_out_each_probe_of_the_default_once():
    sets = ablation._sets()
    default = sets.pop(ablation._DEFAULT)
    assert default == CoLTConfig().probes
    assert sets.pop("with a random centre") == (*default, "random")
    assert {name: set(default) - set(probes) for name, probes in sets.items()} == {
        f"without {probe}": {probe} for probe in default
    }


def test_the_table_shows_which_probe_is_needed(monkeypatch):
    """Only the drift probe sees a posterior that ignores x."""
    sets = {
        "the default": ("mahalanobis", "drift"),
        "without drift": ("mahalanobis",),
        "without mahalanobis": ("drift",),
    }
    few = (Problem("blind", 1.0, (3, 3), 60),)
    monkeypatch.setattr(ablation, "_sets", lambda: sets)
    monkeypatch.setattr(ablation, "_PROBLEMS", few)
    monkeypatch.setattr(ablation, "_SEEDS", (20,))
    options = {"num_batches": 3, "num_workers": 1, "show_progress_bar": False}
    lines = list(ablation.ablation_lines(**options))
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["the", "default", "1.000"]
    assert "blind 1.00 to 0.00" in lines[2]
    assert "blind 1.00 to 1.00" in lines[3]
    assert lines[2].split()[4] == "s"
