"""The README's Python is one program, and it runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import QUICK_FLAGS, needs_x64

README = Path(__file__).parent.parent / "README.md"


def python_of(text: str) -> str:
    """The Python blocks of a page, each on the lines where it stands, so that a traceback names the
    line of the page.
    """
    lines = text.split("\n")
    kept = [""] * len(lines)
    inside = False
    for place, line in enumerate(lines):
        if line.startswith("```"):
            inside = line == "```python"
        elif inside:
            kept[place] = line
    return "\n".join(kept)


@needs_x64
def test_blocks_of_python_keep_their_lines():
    page = "Words\n```python\nx = 1\n```\n```\nmake demo\n```\n```python\nassert x\n```"
    assert python_of(page) == "\n\nx = 1\n\n\n\n\n\nassert x\n"


@pytest.mark.slow
@needs_x64
def test_the_python_of_the_readme_runs_from_top_to_bottom(tmp_path):
    """In the precision of a user's process, in an empty folder; a warning is an error.

    Nothing in it is measured, and most of its time is compilation: without optimisations it takes
    half.
    """
    program = tmp_path / "README.py"
    program.write_text(python_of(README.read_text(encoding="utf-8")))
    environment = os.environ | {"PYTHONPATH": str(README.parent), "XLA_FLAGS": QUICK_FLAGS}
    del environment["JAX_ENABLE_X64"]
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"learning .* 60/60", done.stderr)  # the bar that progress=True draws
    assert (tmp_path / "model.kernax").exists()
