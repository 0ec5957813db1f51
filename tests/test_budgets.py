"""A run with `--budgets` fails the tests that take more processor time than their tier may."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs_x64

pytestmark = needs_x64

PROGRAM = """
import time
import budgets
import pytest

budgets.QUICK, budgets.SLOW = 0.05, 10.0

def busy(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

def test_that_sleeps():
    time.sleep(0.2)

def test_that_computes():
    busy(0.2)

@pytest.mark.slow
def test_that_may_compute():
    busy(0.2)
"""


@pytest.mark.parametrize("given", [[], ["--budgets"]])
def test_what_takes_more_processor_time_than_its_tier_may_fails_the_run_and_is_named(
    given, tmp_path
):
    (tmp_path / "test_program.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-m", "pytest", "-p", "budgets", "-p", "no:jaxtyping", *given]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == len(given), done.stdout
    assert ("1 failed, 2 passed" if given else "3 passed") in done.stdout
    named = r"test_that_computes took 0.2 processor seconds, and may take 0: make it leaner, or"
    assert (named in done.stdout) == bool(given), done.stdout
    of_files = re.search(r"processor seconds: (\d).*\n +(0\.\d)  test_program\.py\n", done.stdout)
    assert bool(of_files) == bool(given), done.stdout
    if of_files:
        assert 0.35 < float(of_files[2]) < 0.9
