"""The tutorials: committed with outputs, small, and running as they stand."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIALS = Path(__file__).parents[2] / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))


def code_cells(path):
    notebook = nbformat.read(path, as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_all_tutorials_are_here():
    numbers = ["01", "02", "03", "04", "05", "06", "07", "08"]
    assert [path.name[:2] for path in NOTEBOOKS] == numbers


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_is_committed_as_it_ran(path):
    assert path.stat().st_size <= 400 * 1024
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    kinds = {output.output_type for output in outputs}
    assert "error" not in kinds
    streams = [o for o in outputs if o.output_type == "stream"]
    assert all(output.name == "stdout" for output in streams)  # no warnings
    texts = "\n".join(output.text for output in streams)
    assert texts
    assert max(map(len, texts.splitlines())) <= 88
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_runs_with_small_budgets(path, monkeypatch, tmp_path):
    monkeypatch.setenv("SBI_COLT_QUICK", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    # sbi leaves logs where it runs.
    (tmp_path / "results").symlink_to(TUTORIALS / "results")
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, resources=resources).execute()
    outputs = [o for c in notebook.cells for o in c.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
