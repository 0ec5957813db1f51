"""Parameters by the names that a kernel's expression gives to its parts: `rbf.scale` instead of `terms[0].scale`."""

import collections
import dataclasses
from collections.abc import Iterator

import equinox as eqx
import jax

from kernax.cli.vocabulary import KERNELS, NORMALISED, STRING_KERNELS, short
from kernax.core.kernel import AbstractKernel, Power, Product, Scaled, Sum
from kernax.kernels import Normalised, On

_WORDS = {kind: name for name, kind in (KERNELS | STRING_KERNELS).items()} | {Normalised: NORMALISED}


def parameter_names(kernel: AbstractKernel, prefix: str = "") -> dict[str, str]:
    """From the path of each array of a kernel, and of the kernels inside it, to its name; parts that read alike are numbered.

    The lengthscale in `2.0*rbf + linear` is `rbf.lengthscale`, and that of the second part in `rbf + rbf` is
    `rbf (2).lengthscale`. Paths begin with the prefix, such as `kernel.`.
    """
    parts = list(_parts(kernel, ""))
    alike = collections.defaultdict(list)
    for path, part in parts:
        if not isinstance(part, (Scaled, On)):
            alike[_text(part)].append(path)
    names = {}
    for path, part in parts:
        text, place = _text(part), path + _way_inside(part)
        number = f" ({alike[text].index(place) + 1})" if len(alike[text]) > 1 else ""
        for field in filter(lambda field: eqx.is_inexact_array(getattr(part, field.name)), dataclasses.fields(part)):
            names[f"{prefix}{path}.{field.name}".replace("..", ".").lstrip(".")] = f"{_label(text)}{number}.{field.name}"
    return names


def _parts(kernel: AbstractKernel, path: str) -> Iterator[tuple[str, AbstractKernel]]:
    """A kernel and all inside it, each with its path."""
    yield path, kernel
    is_kernel = lambda node: isinstance(node, AbstractKernel)
    for field in dataclasses.fields(kernel):
        nodes, _ = jax.tree_util.tree_flatten_with_path(getattr(kernel, field.name), is_leaf=is_kernel)
        for keys, node in filter(lambda found: is_kernel(found[1]), nodes):
            yield from _parts(node, f"{path}.{field.name}{jax.tree_util.keystr(keys)}")


def _way_inside(part: AbstractKernel) -> str:
    """From a scale, or a choice of columns, to the kernel that it is of: an expression calls both by one name."""
    return f".kernel{_way_inside(part.kernel)}" if isinstance(part, (Scaled, On)) else ""


def _text(kernel: AbstractKernel) -> str:
    """The expression without its numbers."""
    if isinstance(kernel, (Scaled, On)):
        return _text(kernel.kernel)
    if isinstance(kernel, Sum):
        return " + ".join(map(_text, kernel.terms))
    if isinstance(kernel, Product):
        return "*".join(map(_factor, kernel.terms))
    if isinstance(kernel, Power):
        return f"{_factor(kernel.kernel)}**{kernel.degree}"
    word = _WORDS.get(type(kernel), type(kernel).__name__)
    return f"{word}({_text(kernel.kernel)})" if isinstance(kernel, Normalised) else word


def _label(text: str) -> str:
    return short(f"({text})" if not text.isidentifier() and not text.startswith(NORMALISED) else text)


def _factor(kernel: AbstractKernel) -> str:
    """A sum in parentheses."""
    while isinstance(kernel, (Scaled, On)):
        kernel = kernel.kernel
    return f"({_text(kernel)})" if isinstance(kernel, Sum) else _text(kernel)
