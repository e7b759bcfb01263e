import csv
import math
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import pytest

from sbi_colt import TestResult
from sbi_colt.benchmark.grid import runner
from sbi_colt.benchmark.grid.cells import (
    EXACT,
    Cell,
    default_cells,
    make_cells,
    paper_cells,
)
from sbi_colt.benchmark.grid.rows import Row, read_rows
from sbi_colt.benchmark.grid.runner import run_cells, run_group
from sbi_colt.benchmark.methods import METHODS
from sbi_colt.benchmark.tables import PAPER, plot_results, summarise, table_lines
from sbi_colt.benchmark.tasks.settings import SETTINGS
from sbi_colt.cli import main

RESULTS = Path(__file__).parents[2] / "tutorials" / "results"


def cells(**changes):
    options = {"alphas": (0.0, 1.2), "dims": [(3, 3)], "num_batches": 4}
    options |= {"methods": ("sbc", "tarp"), "seeds": (0, 1)} | changes
    return make_cells(["covariance"], **options)


def run(chosen, path):
    return run_cells(chosen, path, show_progress_bar=False)


def test_the_default_grid_has_what_the_paper_shows():
    grid = default_cells()
    assert len(set(grid)) == len(grid)
    for family in ("", "curved-"):
        for name in ("mean", "covariance", "anisotropic", "t", "modes", "collapse"):
            for dim in (3, 10):
                alphas = {
                    c.alpha for c in grid if c.task == family + name and c.dim == dim
                }
                assert len(alphas | {0.0}) >= 4
    blind = {(c.dim_x, c.dim) for c in grid if c.task == "blind"}
    assert blind == {(3, 3), (10, 10), (50, 10), (100, 100)}
    tree = {c.method for c in grid if c.task == "tree" and c.alpha == 1.5}
    assert tree == set(METHODS) - {"paper-id"}
    assert {c.draws_per_step for c in grid if c.method == "default"} == {None}


def test_the_papers_grid_is_whole():
    grid = paper_cells()
    assert {c.seed for c in grid} == {0, 1, 2}
    assert {c.num_batches for c in grid} == {200}
    assert {c.draws_per_step for c in grid} == {None}
    assert "tree" in {c.task for c in grid}
    assert "lobes" not in {c.task for c in grid}
    curved = [c for c in grid if c.task == "curved-t" and c.method == "sbc"]
    assert len(curved) == len(SETTINGS["curved-t"].alphas) * 4 * 3


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


def test_fewer_batches_of_a_seed_do_not_count_twice(tmp_path):
    few, many = (cells(seeds=(0,), num_batches=n)[:1] for n in (2, 4))
    rows = run(few + many, tmp_path / "results.csv")
    (entry,) = summarise(rows).values()
    assert entry.num_batches == 4
    assert cells(seeds=(0, 0)) == cells(seeds=(0,))


def test_results_are_written_and_read_back(tmp_path):
    rows = run(cells(), tmp_path / "new" / "results.csv")
    assert [row.cell for row in rows] == cells()
    wrong = [row.power for row in rows if row.cell.alpha and row.cell.method == "tarp"]
    assert all(0 <= power <= 1 for power in wrong)
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


def test_a_cell_gives_the_same_numbers_again(tmp_path):
    (cell,) = cells(methods=("default",), alphas=(0.6,), seeds=(1,), num_batches=2)
    (first,), (again,) = run_group([cell]), run_group([cell])
    assert first.statistic == again.statistic
    assert first.distance_lower <= first.statistic


def test_processes_give_the_same_as_one(tmp_path):
    chosen = cells(seeds=(0,))
    one = run(chosen, tmp_path / "one.csv")
    two = run_cells(
        chosen, tmp_path / "two.csv", num_workers=2, show_progress_bar=False
    )
    key = {row.cell: (row.power, row.statistic) for row in one}
    assert key == {row.cell: (row.power, row.statistic) for row in two}


def test_exact_accuracy_is_for_trained_posteriors():
    both = make_cells(["outliers-npe"], (0,), methods=(EXACT, "sbc"), num_batches=2)
    row, tested = run_group(both)
    assert [row.cell, tested.cell] == both
    assert row.statistic == pytest.approx(0.5, abs=0.05)  # the exact posterior itself
    assert math.isnan(row.power)
    assert tested.power in (0, 0.5, 1)
    with pytest.raises(ValueError, match="for trained posteriors alone"):
        run_group([Cell("tree", 1, 2, 0.0, EXACT, 0, 1, None)])


def test_the_longest_cells_begin(tmp_path, monkeypatch):
    order = []

    def record(group):
        order.append(group[0])
        return [Row(cell, 0.0, 0.0, 0.0, 0.0, 0.0) for cell in group]

    monkeypatch.setattr("sbi_colt.benchmark.grid.runner.run_group", record)
    run(default_cells(), tmp_path / "results.csv")
    assert [(c.task, c.method) for c in order[:2]] == 2 * [("tree", "paper-full")]
    assert order[2].task == "mean"


def rows_of_all_families():
    rows = []
    chosen = [
        *make_cells(["mean", "curved-t"], dims=[(3, 3)], draws_per_step=5),
        *make_cells(["covariance", "curved-covariance"], (0.0,), [(3, 3)]),
        *make_cells(["blind"], seeds=(0, 1)),
        *make_cells(["tree", "diffusion"]),
        *make_cells(["two-moons-npe"], methods=("default", EXACT)),
    ]
    for cell in chosen:
        power = math.nan if cell.method == EXACT else min(1.0, 0.05 + cell.alpha / 5)
        if cell.task == "blind" and cell.method == "paper-full":
            power = 0.1 + 0.2 * cell.seed
        rows.append(Row(cell, power, 0.5, 0.1, 1.0, 0.1))
    return rows


def test_tables_stand_beside_the_papers():
    text = "\n".join(table_lines(rows_of_all_families()))
    assert "blind, x of dimension 100, theta of dimension 100" in text
    assert "0.97±0.01" in text  # the paper's, in dimension 3
    assert "0.88" in text  # and for the tree
    assert "The paper's variants see 5 draws per training step." in text
    lines = text.splitlines()
    blind = lines.index("blind, x of dimension 3, theta of dimension 3")
    ours = lines[blind + 4].split()
    assert ours[0] == "1"
    assert lines[blind + 5].split()[0] == "paper"
    assert "*" in lines[blind + 4]  # 0.2 against 0.975
    assert max(map(len, lines)) <= 80


def test_a_table_does_not_mix_settings():
    (cell,) = make_cells(["mean"], (0.5,), [(3, 3)], ["paper-id"], draws_per_step=10)
    rows = [
        Row(each, 0.5, 0.5, 0.1, 1.0, 0.1)
        for each in (cell, replace(cell, seed=1, draws_per_step=None))
    ]
    with pytest.raises(ValueError, match="mean, paper-id: expected rows with one numb"):
        summarise(rows)


def test_standard_errors_hold_batches_and_seeds():
    entries = summarise(rows_of_all_families())
    full = entries["blind", 3, 3, 1.0, "paper-full"]
    assert full.power == pytest.approx(0.2)
    assert full.error == pytest.approx(0.1)  # seeds at 0.1 and 0.3
    assert entries["mean", 3, 3, 0.05, "sbc"].error == pytest.approx(0.0238, abs=1e-3)


def test_the_papers_figures_are_those_of_its_tables():
    assert PAPER["blind", 50, 10, 1.0, "c2st"] == (0.847, 0.038)
    assert PAPER["blind", 3, 3, 0.0, "c2st"] == (0.077, 0.004)
    assert len(PAPER) == 2 * 5 * 4 + 4


def test_figures_are_drawn(tmp_path):
    paths = plot_results(rows_of_all_families(), tmp_path / "figures")
    names = ["gaussian", "curved", "tree", "diffusion", "trained"]
    assert [path.stem for path in paths] == names
    for path in paths:
        assert matplotlib.image.imread(path).std() > 0.05


def test_a_part_of_the_results_is_drawn_too(tmp_path):
    """As of a run that is not finished: trained posteriors with one column alone."""
    rows = rows_of_all_families()
    exact = [r for r in rows if r.cell.task == "two-moons-npe" and not r.cell.alpha]
    assert plot_results(exact, tmp_path) == []
    one = [r for r in rows if r.cell.task == "two-moons-npe" and r.cell.method == EXACT]
    assert [path.stem for path in plot_results(one, tmp_path)] == ["trained"]


def test_the_commands_run_tabulate_and_plot(tmp_path, capsys):
    path = tmp_path / "results.csv"
    command = "benchmark run --task t --alpha 0 0.3 --dims 3,3 --methods sbc tarp"
    options = ["--batches", "2", "--jobs", "1", "--quiet", "--out", str(path)]
    assert main([*command.split(), *options]) == 0
    assert path.read_text().startswith(f"# sbi-colt {command}")
    assert main(["benchmark", "table", str(path)]) == 0
    assert "t, x of dimension 3" in capsys.readouterr().out
    assert main(["benchmark", "plot", str(path), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "gaussian.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--task trees", "task: expected one of mean"),
        ("--task t --methods sbb", "method: expected one of default"),
        ("--task t --alpha -1", "alpha: expected a number >= 0"),
        ("--task diffusion --alpha 0.5", "alpha: expected a number of steps"),
        ("--task mean --alpha nan", "alpha: expected a number >= 0, got nan"),
        ("--task tree --alpha inf", "alpha: expected a number >= 0, got inf"),
        ("--task modes --alpha 1.7", "alpha: expected a number >= 0 and <= 1"),
        ("--task mean --methods sbc exact-c2st", "is for trained posteriors alone"),
        ("--methods sbc --alpha 0", "--alpha, --methods: the grid without --task is"),
        ("--task tree --dims 5,5", "dims: the task 'tree' has the dimensions (1, 2)"),
        ("--paper --trained", "--trained: the grid of --paper is fixed"),
        ("--trained --task t", "--task: the grid of --trained is fixed"),
        ("--paper --batches 2", "--batches: the grid of --paper is fixed"),
    ],
)
def test_wrong_grids_get_one_clear_line(arguments, message, capsys, tmp_path):
    out = ["--out", str(tmp_path / "results.csv")]
    assert main(["benchmark", "run", *arguments.split(), *out]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "results.csv").exists()


def test_other_files_are_no_results(tmp_path, capsys):
    path = tmp_path / "other.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b"], [1, 2]])
    with pytest.raises(ValueError, match="expected a file of sbi-colt benchmark"):
        read_rows(path)
    assert main(["benchmark", "table", str(path)]) == 2
    assert "expected a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [b'{"mine": 1}', b"a\nlast words", bytes(range(256))]
)
def test_other_files_stay_as_they_are(content, tmp_path):
    path = tmp_path / "mine"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="expected a file of sbi-colt benchmark"):
        run_cells(cells()[:1], path, show_progress_bar=False)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",3,3,", ",x1,3,", "x1"),
        (",3,3,", ",3,", "shorter"),
        (",3,3,", ",3,3,3,", "longer"),
        (",100,all,all,1,", ",100,all,all,7,", "a power of 7"),
    ],
)
def test_a_damaged_row_is_named(old, new, message, tmp_path):
    path = tmp_path / "damaged.csv"
    lines = (RESULTS / "power.csv").read_text(encoding="utf-8").splitlines()[:5]
    assert old in lines[3]
    lines[3] = lines[3].replace(old, new, 1)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"damaged.csv, line 4: .*{message}"):
        read_rows(path)
