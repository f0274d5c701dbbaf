"""Every notebook runs from top to bottom, and its kept outputs tell the same story."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

# Two minutes is what a notebook may take.
TIMEOUT_SECONDS = 120


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def story(notebook):
    """Returns what all machines agree on: the codes that each cell prints, in order.

    What is slow on a machine (AMP402) is its own affair.
    """
    printed = [str(cell.outputs) for cell in code_cells(notebook)]
    return [
        [code for code in re.findall(r"\bAMP\d{3}\b", text) if code != "AMP402"] for text in printed
    ]


def test_there_are_notebooks():
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_keeps_its_outputs(path):
    cells = code_cells(nbformat.read(path, as_version=4))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any(cell.outputs for cell in cells)


# The kernel's own libraries warn about their event loop and their ports.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_finds_what_it_shows(path):
    notebook = nbformat.read(path, as_version=4)
    kept = story(notebook)
    where = {"metadata": {"path": str(FOLDER)}}
    client = NotebookClient(
        notebook, timeout=TIMEOUT_SECONDS, kernel_name="python3", resources=where
    )
    client.execute()
    assert story(notebook) == kept
