"""The runner: the same numbers again, interrupted runs, and processes."""

import math

import pytest

from sbi_colt import TestResult
from sbi_colt.benchmark.grid import runner
from sbi_colt.benchmark.grid.cells import default_cells, make_cells
from sbi_colt.benchmark.grid.rows import EXACT, Cell, Row, read_rows
from sbi_colt.benchmark.grid.runner import run_cells, run_group
from sbi_colt.benchmark.methods import METHODS


def cells(**changes):
    options = {"alphas": (0.0, 1.2), "dims": [(3, 3)], "num_batches": 4}
    options |= {"methods": ("sbc", "tarp"), "seeds": (0, 1)} | changes
    return make_cells(["covariance"], **options)


def run(chosen, path):
    return run_cells(chosen, path, show_progress_bar=False)


def test_methods_of_a_cell_see_the_same_batches(monkeypatch):
    seen = {}

    def spy(name):
        def method(train, setting, seed, draws_per_step):
            def test(draws):
                seen.setdefault(name, []).append(float(draws.samples.sum()))
                return TestResult(name, 0.5, 0.0)

            return test

        return method

    for name in ("a", "b"):
        monkeypatch.setitem(METHODS, name, spy(name))
    for cell in cells(methods=("a", "b"), seeds=(0,)):
        run_group([cell])
    assert seen["a"] == seen["b"]
    assert len(set(seen["a"])) == 8  # two alphas of four fresh batches


def test_methods_that_run_together_give_what_each_gives_alone():
    chosen = cells(methods=("default", "sbc"), alphas=(0.6,), seeds=(0,))
    together = run_group(chosen)
    alone = [row for cell in chosen for row in run_group([cell])]
    assert [row.cell for row in together] == chosen
    assert [(r.power, r.statistic) for r in together] == [
        (r.power, r.statistic) for r in alone
    ]


def test_a_file_says_which_commands_made_it(tmp_path):
    path = tmp_path / "results.csv"
    path.touch()  # as of a run that was killed at once
    for command, chosen in (("first", cells()[:1]), ("second", cells()[:2])):
        for _ in range(2):
            run_cells(chosen, path, command=command, show_progress_bar=False)
    lines = path.read_text().splitlines()
    assert [line for line in lines if line in ("# first", "# second")] == [
        "# first",
        "# second",
    ]
    assert [row.cell for row in read_rows(path)] == cells()[:2]


def test_results_are_written_and_read_back(tmp_path):
    rows = run(cells(), tmp_path / "new" / "results.csv")
    assert [row.cell for row in rows] == cells()
    again = run_group([cells()[0]])[0]
    assert rows[0].power == again.power
    assert rows[0].statistic == pytest.approx(again.statistic, rel=1e-5)
    assert all(math.isnan(row.distance_lower) for row in rows)
    head = (tmp_path / "new" / "results.csv").read_text().splitlines()
    assert head[1].startswith("# Python")
    assert "torch" in head[1]


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    path = tmp_path / "results.csv"
    run(cells()[:3], path)
    with path.open("a") as file:
        file.write("covariance,3,3,1.2,ta")  # killed while writing
    done = []
    whole = runner.run_group
    monkeypatch.setattr(
        runner, "run_group", lambda group: done.extend(group) or whole(group)
    )
    rows = run(cells(), path)
    assert done == cells()[3:]
    assert {row.cell for row in rows} == set(cells())
    assert len(rows) == len(cells())


def test_processes_give_the_same_as_one(tmp_path):
    chosen = cells(seeds=(0,))
    one = run(chosen, tmp_path / "one.csv")
    two = run_cells(
        chosen, tmp_path / "two.csv", num_workers=2, show_progress_bar=False
    )
    key = {row.cell: (row.power, row.statistic) for row in one}
    assert key == {row.cell: (row.power, row.statistic) for row in two}


@pytest.mark.slow
def test_exact_accuracy_is_for_trained_posteriors(monkeypatch):
    monkeypatch.setattr(runner, "_NUM_EXACT_XS", 2)
    both = make_cells(["outliers-npe"], (0,), methods=(EXACT, "sbc"), num_batches=2)
    row, tested = run_group(both)
    assert [row.cell, tested.cell] == both
    assert row.statistic == pytest.approx(0.5, abs=0.05)  # the exact posterior itself
    assert math.isnan(row.power)
    assert tested.power == 0
    with pytest.raises(ValueError, match="for trained posteriors alone"):
        run_group([Cell("tree", 1, 2, 0.0, EXACT, 0, 1, None)])


def test_the_longest_cells_run_first(tmp_path, monkeypatch):
    order = []

    def record(group):
        order.append(group[0])
        return [Row(cell, 0.0, 0.0, 0.0, 0.0, 0.0) for cell in group]

    monkeypatch.setattr("sbi_colt.benchmark.grid.runner.run_group", record)
    run(default_cells(), tmp_path / "results.csv")
    assert [(c.task, c.method) for c in order[:2]] == 2 * [("tree", "paper-full")]
    assert order[2].task == "mean"


@pytest.mark.parametrize(
    "content", [b'{"mine": 1}', b"a\nlast words", bytes(range(256))]
)
def test_other_files_stay_as_they_are(content, tmp_path):
    path = tmp_path / "mine"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="expected a file of sbi-colt benchmark"):
        run_cells(cells()[:1], path, show_progress_bar=False)
    assert path.read_bytes() == content
