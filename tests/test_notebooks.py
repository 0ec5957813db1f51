"""Every notebook runs from top to bottom; the statements in it that matter are asserted there."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks need the extra `notebooks`")
nbclient = pytest.importorskip("nbclient", reason="notebooks need the extra `notebooks`")
pytest.importorskip("ipykernel", reason="notebooks need the extra `notebooks`")
from conftest import needs_x64  # noqa: E402

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@needs_x64  # each sets its own precision; once is enough
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the notebook machinery, not of what it runs
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_from_top_to_bottom(path):
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    assert all(not cell.outputs or cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
