"""Names of parameters by the kernel's expression: `rbf.scale` instead of `terms[0].scale`."""

import collections
import dataclasses
from collections.abc import Iterator

import equinox as eqx
import jax
from jaxtyping import PyTree

from kernax.cli.vocabulary import KERNELS, NORMALISED, STRING_KERNELS
from kernax.core.base.parameters import interior
from kernax.core.kernel.description import describe
from kernax.core.kernel.kernel import AbstractKernel, Power, Product, Scaled, Sum
from kernax.kernels import Normalised, On
from kernax.preparation.cells import short

_WORDS = {kind: name for name, kind in (KERNELS | STRING_KERNELS).items()}
_WORDS[Normalised] = NORMALISED


def parameter_names(kernel: AbstractKernel, prefix: str = "") -> dict[str, str]:
    """The name of each array of a kernel, and of the kernels inside it, by its path.

    The lengthscale in `2.0*rbf + linear` is `rbf.lengthscale`. Parts of the same expression are
    numbered: the lengthscale of the second part in `rbf + rbf` is `rbf (2).lengthscale`. Paths
    begin with the prefix, such as `kernel.`.
    """
    parts = list(_parts(kernel, ""))
    alike = _paths_by_text(parts)
    names = {}
    for path, part in parts:
        name = _numbered_label(part, path, alike[_text(part)])
        for field in dataclasses.fields(part):
            if eqx.is_inexact_array(getattr(part, field.name)):
                joined = f"{prefix}{path}.{field.name}"
                parameter = joined.replace("..", ".").lstrip(".")
                names[parameter] = f"{name}.{field.name}"
    return names


def _paths_by_text(parts: list[tuple[str, AbstractKernel]]) -> dict[str, list[str]]:
    """The paths of all parts of each expression, without scales and choices of columns."""
    alike = collections.defaultdict(list)
    for path, part in parts:
        if not isinstance(part, (Scaled, On)):
            alike[_text(part)].append(path)
    return alike


def _numbered_label(part: AbstractKernel, path: str, alike: list[str]) -> str:
    """The name of a part, with its number among the paths of parts that have the same name."""
    name = _label(part)
    if len(alike) == 1:
        return name
    # A scale has the number of the kernel that it multiplies.
    return f"{name} ({alike.index(path + _way_inside(part)) + 1})"


def parameter_rows(model: PyTree, columns: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The rows of `kernax.describe`, with names by the kernel's expression.

    A parameter with a value for each column has a row for each.
    """
    if isinstance(model, AbstractKernel):
        names = parameter_names(model)
    else:
        names = parameter_names(model.kernel, "kernel.")
    rows = []
    for path, *rest in describe(model, interior(model), columns).rows:
        rows.append((_renamed(path, names), *rest))
    return tuple(rows)


def _renamed(path: str, names: dict[str, str]) -> str:
    """The name of the parameter at a path, with an index such as in `lengthscale[age]`, if any."""
    for known, name in names.items():
        if f"{path}[".startswith(f"{known}["):
            return name + path.removeprefix(known)
    return path


def _parts(kernel: AbstractKernel, path: str) -> Iterator[tuple[str, AbstractKernel]]:
    """A kernel and all kernels inside it, each with its path."""
    yield path, kernel
    is_kernel = lambda node: isinstance(node, AbstractKernel)
    for field in dataclasses.fields(kernel):
        value = getattr(kernel, field.name)
        nodes, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=is_kernel)
        for keys, node in nodes:
            if is_kernel(node):
                yield from _parts(node, f"{path}.{field.name}{jax.tree_util.keystr(keys)}")


def _way_inside(part: AbstractKernel) -> str:
    """The path from a scale, or a choice of columns, to its kernel, which has the same name."""
    return f".kernel{_way_inside(part.kernel)}" if isinstance(part, (Scaled, On)) else ""


def _text(kernel: AbstractKernel) -> str:
    """The expression of a kernel without its numbers."""
    kernel = _unscaled(kernel)
    if isinstance(kernel, Sum):
        return " + ".join(map(_text, kernel.terms))
    if isinstance(kernel, Product):
        return "*".join(map(_factor, kernel.terms))
    if isinstance(kernel, Power):
        return f"{_factor(kernel.kernel)}**{kernel.degree}"
    word = _WORDS.get(type(kernel), type(kernel).__name__)
    return f"{word}({_text(kernel.kernel)})" if isinstance(kernel, Normalised) else word


def _label(kernel: AbstractKernel) -> str:
    """A name for messages: its expression, in parentheses where it is made of operators."""
    text = _text(kernel)
    if text.isidentifier() or isinstance(_unscaled(kernel), Normalised):
        return short(text)
    return short(f"({text})")


def _factor(kernel: AbstractKernel) -> str:
    """The expression of a factor, which is in parentheses if it is a sum."""
    kernel = _unscaled(kernel)
    return f"({_text(kernel)})" if isinstance(kernel, Sum) else _text(kernel)


def _unscaled(kernel: AbstractKernel) -> AbstractKernel:
    """The kernel without scales and choices of columns around it."""
    while isinstance(kernel, (Scaled, On)):
        kernel = kernel.kernel
    return kernel
