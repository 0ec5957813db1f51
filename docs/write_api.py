"""Writes api.md beside itself, the page of every public name: `python docs/write_api.py`.

Read off the package: the modules and the headings from `kernax/__init__.pyi`, the families of
kernels from their table, and signatures and first paragraphs of docstrings from what they describe.
"""

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

import kernax
from kernax.kernels import FAMILIES, KERNELS

PAGE = Path(__file__).parent / "api.md"
OPENING = """\
# The public names of kernax

`import kernax` is enough: everything here is an attribute of it, and what is under a heading such
as `kernax.losses` is one of that module; `kernax.sklearn` needs an import of its own. Examples in
docstrings assume `import kernax`, `import jax` and `import jax.numpy as jnp`, and show what JAX's
64-bit mode prints. Written by `make api`; a test compares.
"""
OWN_IMPORT = ["sklearn"]  # modules that `import kernax` leaves out


def page() -> str:
    """The whole page."""
    headings = flat_names()
    modules = sorted([*headings.pop("modules"), *OWN_IMPORT])
    parts = [OPENING]
    for heading, names in headings.items():
        if heading == "kernels":
            parts += map(family, FAMILIES)
        else:
            things = {f"kernax.{name}": getattr(kernax, name) for name in names}
            parts.append(section(sentence(heading), things))
    parts += map(section_of_module, modules)
    return "\n".join(parts)


def flat_names() -> dict[str, list[str]]:
    """The names in `kernax/__init__.pyi`, under the comments that stand above them."""
    source = Path(kernax.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    headings: dict[str, list[str]] = {}
    for line in source[source.index("__all__ = [") :].splitlines()[1:]:
        if line.strip().startswith("# "):
            headings[line.strip("# ").partition(":")[0]] = []
        elif line.startswith("]"):
            break
        else:
            headings[next(reversed(headings))] += re.findall(r'"(\w+)"', line)
    return headings


def family(heading: str) -> str:
    """The kernels under one heading of their table, each at its address."""
    return section(heading, {address(entry.name): entry.kind for entry in FAMILIES[heading]})


def address(kernel: str) -> str:
    """Where users find a kernel: in `kernax`, or in `kernax.kernels`."""
    return f"kernax.{kernel}" if kernel in kernax.__all__ else f"kernax.kernels.{kernel}"


def section_of_module(name: str) -> str:
    """A module that users import from."""
    path = f"kernax.{name}"
    module = importlib.import_module(path)
    return section(path, members(module), inspect.getdoc(module) or "")


def members(module: ModuleType) -> dict[str, Any]:
    """The public names of a module by their addresses, without kernels, which have pages of their
    own.
    """
    table = {address(entry.name) for entry in KERNELS}
    things = {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
    return {name: thing for name, thing in things.items() if name not in table}


def section(heading: str, things: dict[str, Any], text: str = "") -> str:
    """A heading and what is under it."""
    lines = [f"## {heading}", ""]
    if text:
        lines += [text, ""]
    for name, thing in things.items():
        lines.append(item(name, thing))
        own = inspect.isclass(thing) and thing.__module__.startswith("kernax.")
        if own and not issubclass(thing, Exception):
            lines += [f"  {item(f'.{method}', held)}" for method, held in methods(thing)]
    return "\n".join([*lines, ""])


def item(name: str, thing: Any) -> str:
    """One line: a name, its signature and the first paragraph of its docstring."""
    called = callable(thing) and not (inspect.isclass(thing) and issubclass(thing, Exception))
    shown = f"{name}{signature(thing)}" if called else name
    return f"- `{shown}`: {first_paragraph(thing)}"


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class itself defines and describes."""
    for name, thing in vars(kind).items():
        thing = getattr(thing, "__func__", thing)
        described = isinstance(thing, property) or inspect.isfunction(inspect.unwrap(thing))
        if described and not name.startswith("_") and thing.__doc__:
            yield name, thing


def signature(thing: Any) -> str:
    """The arguments, without types; a default that is no constant is an ellipsis."""
    enumeration = isinstance(thing, (enum.EnumType, type(kernax.RESULTS)))
    if (
        thing is jax.Array
        or enumeration
        or isinstance(thing, property)
        or inspect.isabstract(thing)
    ):
        return ""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    plain = (bool, int, float, str, tuple, type(None))
    arguments = [
        argument.replace(
            annotation=inspect.Parameter.empty,
            default=argument.default
            if argument.default is inspect.Parameter.empty or isinstance(argument.default, plain)
            else ...,
        )
        for name, argument in found.parameters.items()
        if name != "self"
    ]
    text = found.replace(parameters=arguments, return_annotation=inspect.Signature.empty)
    return str(text).replace("Ellipsis", "...")


def first_paragraph(thing: Any) -> str:
    """Of its docstring, on one line; of a tuple of functions, their names."""
    if isinstance(thing, tuple):
        return ", ".join(f"`{function.__name__}`" for function in thing)
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def sentence(text: str) -> str:
    """With a capital."""
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
