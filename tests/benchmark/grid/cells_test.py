"""The grids of cells."""

from sbi_colt.benchmark.grid.cells import default_cells, make_cells, paper_cells
from sbi_colt.benchmark.methods import METHODS
from sbi_colt.benchmark.tasks.settings import SETTINGS


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


def test_a_seed_that_is_given_twice_counts_once():
    once, twice = (make_cells(["t"], seeds=seeds) for seeds in ((0,), (0, 0)))
    assert once == twice
