"""Every notebook runs from top to bottom, and carries the outputs of such a run; what matters in it
is asserted there.
"""

import itertools
import json
import os
from pathlib import Path

import pytest
from conftest import needs_x64

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
# what a notebook takes where no one else, as these tests, has chosen
INLINE = "module://matplotlib_inline.backend_inline"
LARGEST = 300_000  # bytes, pictures included
# What these compute takes longer than its compilation: they are compiled as users compile them.
OPTIMISED = ("batches", "many_points", "strings", "svm")


def outputs(notebook):
    """What each cell of code shows."""
    return [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]


def kinds(notebook):
    """Text, pictures or values, cell by cell; text in how many pieces depends on when it was
    printed.
    """
    of_each = [
        [(shown["output_type"], sorted(shown.get("data", ()))) for shown in cell]
        for cell in outputs(notebook)
    ]
    return [[kind for kind, _ in itertools.groupby(cell)] for cell in of_each]


@needs_x64  # each sets its own precision; once is enough
@pytest.mark.nightly
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # of the notebook machinery, not of what it runs
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_from_top_to_bottom_and_carries_such_outputs(path):
    nbformat = pytest.importorskip("nbformat", reason="notebooks need the extra `notebooks`")
    nbclient = pytest.importorskip("nbclient", reason="notebooks need the extra `notebooks`")
    pytest.importorskip("ipykernel", reason="notebooks need the extra `notebooks`")
    notebook = nbformat.read(path, as_version=4)
    carried = kinds(notebook)
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    flags = {"XLA_FLAGS": ""} if path.stem in OPTIMISED else {}
    client.execute(env=os.environ | {"MPLBACKEND": INLINE} | flags)
    assert carried == kinds(notebook), "run `make notebooks`"


@needs_x64
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_carries_outputs_is_small_and_shows_no_error(path):
    assert path.stat().st_size < LARGEST
    shown = [
        output for cell in outputs(json.loads(path.read_text(encoding="utf-8"))) for output in cell
    ]
    assert shown
    assert all(
        output["output_type"] != "error" and output.get("name") != "stderr" for output in shown
    )
