"""The page of the interface, `docs/api.md`, names everything that is public, as it is today."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from conftest import needs_x64

import kernax
from kernax import kernels

pytestmark = needs_x64  # once: no precision touches it

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def public_names():
    """Every name that users import, and what it names: the flat ones, and those of each room."""
    for name in (*kernax.__all__, "sklearn"):
        thing = getattr(kernax, name, None) or importlib.import_module(f"kernax.{name}")
        if isinstance(thing, ModuleType):
            yield from ((f"{name}.{inner}", getattr(thing, inner)) for inner in thing.__all__)
        else:
            yield name, thing


def test_kernels_lists_the_names_of_its_table():
    """`kernax.kernels.__all__` is written out for type checkers."""
    assert kernels.__all__ == [entry.name for entry in kernels.KERNELS]


def test_the_page_is_what_its_script_writes():
    place = importlib.util.spec_from_file_location("write_api", ROOT / "docs" / "write_api.py")
    assert place is not None
    assert place.loader is not None
    script = importlib.util.module_from_spec(place)
    place.loader.exec_module(script)
    assert script.page() == PAGE, "run `make api`"


def test_the_page_has_every_public_name_once():
    lines = [line for line in PAGE.splitlines() if line.startswith("- `kernax.")]
    names = [line.split("`")[1].split("(")[0].removeprefix("kernax.") for line in lines]
    assert sorted(names) == sorted(name for name, _ in public_names())


@pytest.mark.parametrize("name", sorted(dict(public_names())))
def test_every_public_name_has_a_docstring(name):
    thing = dict(public_names())[name]
    assert isinstance(thing, tuple) or (thing.__doc__ or "").strip()


def test_every_module_of_the_package_that_stands_beside_the_rooms_is_one():
    """A module of public names that `import kernax` does not bring would be found by nobody."""
    modules = {path.stem for path in (ROOT / "kernax").glob("[a-z]*.py")}
    assert modules <= set(kernax.__all__)


def test_the_readme_links_the_page():
    assert "(docs/api.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
