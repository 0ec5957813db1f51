"""Writes api.md beside itself, the page of every public name: `python docs/write_api.py`.

Read off the package: the rooms and the headings from `kernax/__init__.pyi`, the families of kernels
from their table, and signatures and first paragraphs of docstrings from what they describe.
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
from kernax.kernels import FAMILIES

PAGE = Path(__file__).parent / "api.md"
OPENING = """\
# The public names of kernax

`import kernax` is enough: everything here is an attribute of it, and what is under a heading such
as `kernax.losses` is one of that module; `kernax.sklearn` needs an import of its own. Examples in
docstrings assume `import kernax`, `import jax` and `import jax.numpy as jnp`, and show what JAX's
64-bit mode prints. Written by `make api`; a test compares.
"""
OWN_IMPORT = ["sklearn"]  # rooms that `import kernax` leaves out


def page() -> str:
    """The whole page."""
    headings = flat_names()
    rooms = headings.pop("rooms")
    parts = [OPENING]
    for number, (heading, names) in enumerate(headings.items()):
        parts.append(section(sentence(heading), "kernax", {n: getattr(kernax, n) for n in names}))
        if number == 0:
            parts += map(family, FAMILIES)
    rooms = sorted([*rooms, *OWN_IMPORT])
    parts += [room(name, importlib.import_module(f"kernax.{name}")) for name in rooms]
    return "\n".join(parts)


def flat_names() -> dict[str, list[str]]:
    """The names in `kernax/__init__.pyi`, under the comments that stand above them."""
    source = Path(kernax.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    headings: dict[str, list[str]] = {}
    for line in source[source.index("__all__ = [") :].splitlines()[1:]:
        if line.strip().startswith("# "):
            headings[line.strip("# ")] = []
        elif line.startswith("]"):
            break
        else:
            headings[next(reversed(headings))] += re.findall(r'"(\w+)"', line)
    return headings


def family(heading: str) -> str:
    """The kernels under one heading of their table."""
    return section(heading, "kernax", {entry.name: entry.kind for entry in FAMILIES[heading]})


def room(name: str, module: ModuleType) -> str:
    """A module that users import from."""
    text = inspect.getdoc(module) or ""
    return section(
        f"kernax.{name}",
        f"kernax.{name}",
        {inner: getattr(module, inner) for inner in module.__all__},
        text,
    )


def section(heading: str, place: str, things: dict[str, Any], text: str = "") -> str:
    """A heading and what is under it."""
    lines = [f"## {heading}", ""]
    if text:
        lines += [text, ""]
    for name, thing in things.items():
        lines.append(item(f"{place}.{name}", thing))
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
