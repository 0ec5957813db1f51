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
    """Every name that users import, and what it names: of kernax and of its modules."""
    for name in (*kernax.__all__, "sklearn"):
        thing = getattr(kernax, name, None) or importlib.import_module(f"kernax.{name}")
        if isinstance(thing, ModuleType):
            yield from ((f"{name}.{inner}", getattr(thing, inner)) for inner in thing.__all__)
        else:
            yield name, thing


def test_every_kernel_of_the_table_has_one_address():
    """The names in `kernax` and in `kernax.kernels` are written out for type checkers."""
    names = {entry.name for entry in kernels.KERNELS}
    often, rare = names & set(kernax.__all__), set(kernels.__all__) - {"AbstractSpectral"}
    assert often | rare == names
    assert not often & rare


def test_nothing_has_two_addresses_but_losses_that_are_likelihoods():
    addresses: dict[int, list[str]] = {}
    for name, thing in public_names():
        addresses.setdefault(id(thing), []).append(name)
    assert [names for names in addresses.values() if len(names) > 1] == [
        ["likelihoods.Bernoulli", "losses.Logistic"],
        ["likelihoods.Poisson", "losses.Poisson"],
    ]


def test_completion_shows_the_public_names_alone():
    shown = {name for name in dir(kernax) if not name.startswith("__")}
    assert shown == set(kernax.__all__)
    for name in (*kernax.__all__, "sklearn"):
        module = getattr(kernax, name)
        if isinstance(module, ModuleType) and Path(str(module.__file__)).name == "__init__.py":
            assert sorted(module.__all__) == dir(module), name


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


def test_every_module_beside_the_packages_is_public():
    """A module of public names that `import kernax` does not bring would be found by nobody."""
    modules = {path.stem for path in (ROOT / "kernax").glob("[a-z]*.py")}
    assert modules <= set(kernax.__all__)


def test_the_readme_links_the_page():
    assert "(docs/api.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
