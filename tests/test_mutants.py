"""Seeded defects: each is put into a copy of the package, where the test that it names must fail by
what it asserts.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import needs_x64
from mutants import BATCHES, Mutant

ROOT = Path(__file__).parent.parent
# What says that a test saw the defect, and not that the copy cannot run.
SEEN = re.compile(r"AssertionError|assert |Failed: (DID NOT|.*not raised)|kernax\.errors\.")
IS_THE_COPY = """\
from pathlib import Path

import kernax


def test_the_copy_is_what_is_imported():
    assert Path(kernax.__file__).parent == Path(__file__).parent.parent / "kernax"
"""


def with_defect(root: Path, mutant: Mutant) -> None:
    """Puts a defect into a copy of the package."""
    path = root / "kernax" / mutant.file
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.file} holds {mutant.old!r} not once"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def outcomes(root: Path, batch: tuple[Mutant, ...]) -> dict[str, list[str]]:
    """What the tests of a batch said in a process of its own: the messages of those that failed, by
    file and name, of single cases and of all cases together; none of those that passed.
    """
    report = root / "report.xml"
    tests = [f"tests/{mutant.test}" for mutant in batch]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "tests/test_copy.py", *tests, "-n", "0", "-m", ""),
            *("-q", "-p", "no:cacheprovider", f"--junitxml={report}", "-o", "junit_family=xunit1"),
        ],
        cwd=root,
        env=os.environ | {"JAXTYPING_DISABLE": "1", "JAX_ENABLE_X64": str(int(batch[0].x64))},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1, done.stdout[-2000:]  # tests ran, and some failed
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("file", "").removeprefix("tests/")
        name = f"{file}::{case.get('name', '')}"
        messages = [part.get("message", "") for part in case if part.tag in ("failure", "error")]
        for of_cases in {name, name.partition("[")[0]}:
            found.setdefault(of_cases, []).extend(messages)
    return found


@needs_x64  # once: each batch says its precision
@pytest.mark.nightly
@pytest.mark.parametrize("name", BATCHES)
def test_a_seeded_defect_turns_its_test_red(name, tmp_path):
    for folder in ("kernax", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "test_copy.py").write_text(IS_THE_COPY)
    for mutant in BATCHES[name]:
        with_defect(tmp_path, mutant)
    found = outcomes(tmp_path, BATCHES[name])
    assert found["test_copy.py::test_the_copy_is_what_is_imported"] == []
    for mutant in BATCHES[name]:
        messages = found[mutant.test]
        assert messages, f"{mutant.test} does not see {mutant.new!r} in {mutant.file}"
        assert any(map(SEEN.search, messages)), messages


@needs_x64
def test_defects_are_in_lines_that_the_package_still_has_and_name_tests_that_exist():
    count = 0
    for mutant in (mutant for batch in BATCHES.values() for mutant in batch):
        text = (ROOT / "kernax" / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, f"{mutant.file} holds {mutant.old!r} not once"
        file, test = mutant.test.split("::")
        function = f"def {test.partition('[')[0]}("
        assert function in (ROOT / "tests" / file).read_text(encoding="utf-8"), mutant.test
        count += 1
    assert count >= 30
