"""The Python of the README and of every page of the documentation is one program a page, and all of
them run; the names that pages mention exist.
"""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import needs_x64

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# One process runs the pages of a part: what they have in common is compiled once.
PARTS = 5
RUN = """
import contextlib, sys, time
for page in sys.argv[1:]:
    before = time.process_time()
    with open(page, encoding="utf-8") as file:
        program = compile(file.read(), page, "exec")
    with open(page + ".printed", "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        exec(program, {"__name__": page})
    print(f"{page}: {time.process_time() - before:.1f} s", flush=True)
"""
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.(\d+))?")


def blocks_of(text: str, language: str) -> str:
    """The blocks of one language of a page, each on the lines where it stands, so that a traceback
    names the line of the page.
    """
    lines = text.split("\n")
    kept = [""] * len(lines)
    inside = False
    for place, line in enumerate(lines):
        if line.startswith("```"):
            inside = line == f"```{language}"
        elif inside:
            kept[place] = line
    return "\n".join(kept)


def python_of(text: str) -> str:
    """The program of a page."""
    return blocks_of(text, "python")


def without_empty_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def is_printed_as_shown(printed: str, shown: str) -> bool:
    """Whether two texts are equal, but for one unit in the last digit of numbers with a point."""
    lines, wanted = without_empty_lines(printed), without_empty_lines(shown)
    if [NUMBER.sub("#", line) for line in lines] != [NUMBER.sub("#", line) for line in wanted]:
        return False
    pairs = zip(NUMBER.finditer("\n".join(lines)), NUMBER.finditer("\n".join(wanted)))
    for found, expected in pairs:
        digits = len(expected.group(1) or "")
        tolerance = 1.01 * 10.0**-digits if digits else 0.0
        if abs(float(found.group()) - float(expected.group())) > tolerance:
            return False
    return True


@needs_x64
def test_blocks_of_python_keep_their_lines():
    page = "Words\n```python\nx = 1\n```\n```\nmake demo\n```\n```python\nassert x\n```"
    assert python_of(page) == "\n\nx = 1\n\n\n\n\n\nassert x\n"


@needs_x64
def test_the_last_digit_of_what_a_page_shows_may_differ_by_one_and_nothing_else():
    assert is_printed_as_shown("noise 0.18\n3 points\n", "\nnoise 0.19\n\n3 points")
    assert not is_printed_as_shown("noise 0.18", "noise 0.20")
    assert not is_printed_as_shown("noise 0.18", "error 0.18")
    assert not is_printed_as_shown("3 points", "4 points")
    assert not is_printed_as_shown("noise 0.18\nmore", "noise 0.18")


def programs_of_pages() -> dict[str, str]:
    """The program of each page that has one, by the name of the page."""
    programs = {page.name: python_of(page.read_text(encoding="utf-8")) for page in PAGES}
    return {name: program for name, program in programs.items() if program.strip()}


def parts_of_pages() -> list[dict[str, str]]:
    """The programs in parts that take similar times: with similar numbers of names of kernax."""
    parts: list[dict[str, str]] = [{} for _ in range(PARTS)]
    sizes = [0] * PARTS
    programs = programs_of_pages()
    for name in sorted(programs, key=lambda name: -programs[name].count("kernax.")):
        smallest = sizes.index(min(sizes))
        parts[smallest][name] = programs[name]
        sizes[smallest] += programs[name].count("kernax.")
    return parts


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("part", range(PARTS))
def test_the_python_of_every_page_runs_from_top_to_bottom(part, tmp_path):
    """In the precision of a user's process, in an empty folder; a warning is an error.

    Nothing in it is measured, and most of its time is compilation: with the flags of this process
    it takes half. Those of `make nightly` are the flags of users.
    """
    programs = parts_of_pages()[part]
    for name, program in programs.items():
        (tmp_path / name).write_text(program, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    del environment["JAX_ENABLE_X64"]
    command = [sys.executable, "-W", "error", "-c", RUN, *programs]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)  # the processor time of each page
    for page in PAGES:
        shown = blocks_of(page.read_text(encoding="utf-8"), "text")
        if page.name in programs and shown.strip():
            printed = (tmp_path / f"{page.name}.printed").read_text(encoding="utf-8")
            assert is_printed_as_shown(printed, shown), f"{page.name} prints\n{printed}"
    if "learning.md" in programs:
        assert re.search(r"learning .* 60/60", done.stderr)  # the bar that progress=True draws
        assert (tmp_path / "model.kernax").exists()


@needs_x64
def test_every_page_is_in_one_part():
    names = [name for part in parts_of_pages() for name in part]
    assert sorted(names) == sorted(programs_of_pages())


@needs_x64
def test_most_pages_have_a_program():
    programs = programs_of_pages()
    assert len(programs) > 12
    assert "learning.md" in programs


def thing_called(name: str):
    """What a name such as `kernax.losses.Huber` means. Raises AttributeError for none."""
    thing: object = importlib.import_module("kernax")
    for part in name.split(".")[1:]:
        if part == "sklearn":  # which `import kernax` leaves out
            importlib.import_module("kernax.sklearn")
        thing = getattr(thing, part)
    return thing


@needs_x64
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_that_a_page_mentions_is_there(page):
    if page.name == "design.md":  # of what was tried
        return
    names = re.findall(r"`(kernax(?:\.[A-Za-z]\w*)+)[`(]", page.read_text(encoding="utf-8"))
    for name in sorted(set(names) - {"kernax.npz"}):
        thing = thing_called(name)
        assert isinstance(thing, ModuleType) or thing is not None


@needs_x64
def test_a_name_that_is_not_there_is_found_out():
    with pytest.raises(AttributeError):
        thing_called("kernax.losses.Hubber")


@needs_x64
def test_the_menu_of_the_site_has_every_page_once():
    menu = (ROOT / "docs" / "site.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    listed = re.findall(r": (\w+)\.md$", menu, re.MULTILINE)
    elsewhere = {"index", "contributing", "code_of_conduct", "benchmarks", "scaling"}
    assert sorted(set(listed) - elsewhere) == sorted(page.stem for page in PAGES[1:])
    assert len(listed) == len(set(listed))


@needs_x64
def test_the_readme_names_both_commands_and_links_every_page():
    text = PAGES[0].read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text
    for page in PAGES[1:]:
        assert f"(docs/{page.name})" in text, page.name
