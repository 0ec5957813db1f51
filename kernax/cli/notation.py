"""The notation of kernels as expressions: its names, kernels as text, and names of parameters.

`parse_kernel` parses what `expression_of` writes.
"""

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from kernax.cli.words import NORMALISED, OF_COLUMN, ON, check_word
from kernax.core.base.parameters import interior
from kernax.core.kernel.description import FIXED, describe
from kernax.core.kernel.kernel import (
    AbstractKernel,
    Constant,
    Power,
    Product,
    Scaled,
    Sum,
    parts_of,
)
from kernax.kernels import KERNELS as REGISTERED
from kernax.kernels import Normalised, On
from kernax.kernels.entry import Points
from kernax.preparation.cells import short
from kernax.preparation.inputs import Inputs

_IN_EXPRESSIONS = [entry for entry in REGISTERED if entry.in_expressions]
KERNELS: dict[str, type[AbstractKernel]] = {
    entry.word: entry.kind for entry in _IN_EXPRESSIONS if entry.points != Points.STRINGS
}
STRING_KERNELS: dict[str, type[AbstractKernel]] = {
    entry.word: entry.kind for entry in _IN_EXPRESSIONS if entry.points == Points.STRINGS
}
NUMBERS = "numbers"
TEXT = "text"


def kernel_class(name: str, called: bool = False) -> type[AbstractKernel]:
    """The class of that name. Raises ValueError, with a hint, for any other word."""
    check_word(name, called)
    return (KERNELS | STRING_KERNELS)[name]


def compared(kernel: AbstractKernel) -> frozenset[str]:
    """The kinds of data that a kernel compares: `NUMBERS`, `TEXT`, both, or neither if it consists
    of constants.
    """
    inner = parts_of(kernel)
    if inner:
        return frozenset().union(*map(compared, inner))
    if isinstance(kernel, Constant):
        return frozenset()
    of_strings = isinstance(kernel, tuple(STRING_KERNELS.values()))
    return frozenset([TEXT if of_strings else NUMBERS])


def is_named(kernel: object) -> bool:
    """Whether a kernel compares a column of text that the expression names."""
    return isinstance(kernel, On) and isinstance(kernel.where, str)


def text_names(kernel: AbstractKernel) -> list[str]:
    """The names of all columns that a kernel's expression names."""
    own = [kernel.where] if isinstance(kernel, On) and is_named(kernel) else []
    return own + [name for part in parts_of(kernel) for name in text_names(part)]


def bare_text(kernel: AbstractKernel) -> bool:
    """Whether a string kernel in it names no column."""
    if is_named(kernel):
        return False
    inner = parts_of(kernel)
    return any(map(bare_text, inner)) if inner else TEXT in compared(kernel)


_WORDS = {kind: word for word, kind in (KERNELS | STRING_KERNELS).items()}
_WORDS[Normalised] = NORMALISED
_MOST_SHOWN = 8  # numbers of a list


def expression_of(kernel: AbstractKernel) -> str:
    """A kernel as an expression that `parse_kernel` parses, its numbers in six digits.

    A list of more than eight numbers, such as a lengthscale for each of many columns, is only
    counted, and such an expression cannot be parsed again. Raises ValueError for a kernel that no
    expression describes.
    """
    return _expression(kernel, ())


def expression_on(kernel: AbstractKernel, inputs: Inputs) -> str:
    """The same of a kernel on the points that `inputs` makes: `text('name', ...)` around what
    compares a column of text, where there are several parts.
    """
    texts = [text.name for text in inputs.texts]
    parts = [None, *texts] if inputs.columns else texts
    return _expression(kernel, parts if len(parts) > 1 else ())


def _expression(kernel: AbstractKernel, parts: Sequence[str | None], bare: bool = False) -> str:
    """The expression; a bare one is without numbers, scales and choices of columns.

    Points are tuples of parts where there are any: each is the name of a column of text, or None
    for the numbers.
    """
    if bare:
        kernel = _unscaled(kernel)
    if isinstance(kernel, Sum):
        return " + ".join(_expression(term, parts, bare) for term in kernel.terms)
    if isinstance(kernel, Product):
        return "*".join(_operand(term, parts, bare, Sum) for term in kernel.terms)
    if isinstance(kernel, Scaled):
        return f"{_number(kernel.scale)}*{_operand(kernel.kernel, parts, bare, Sum)}"
    if isinstance(kernel, Power):
        base = _operand(kernel.kernel, parts, bare, (Sum, Product, Scaled, Power))
        return f"{base}**{kernel.degree}"
    if isinstance(kernel, Normalised):
        return f"{NORMALISED}({_expression(kernel.kernel, parts, bare)})"
    if bare:
        return _WORDS.get(type(kernel), type(kernel).__name__)
    if isinstance(kernel, On):
        # A kernel on the numbers, on one column of them, or on a column of text.
        inner = _expression(kernel.kernel, ())
        if not parts:
            if not isinstance(kernel.where, int):
                raise ValueError(f"no expression describes On of {kernel.where!r}")
            return f"{ON}({inner}, {kernel.where + 1})"
        name = parts[kernel.where]
        return inner if name is None else f"{OF_COLUMN}({name!r}, {inner})"
    if isinstance(kernel, Constant):
        return _number(kernel.value)
    if type(kernel) not in _WORDS:
        raise ValueError(f"no expression describes {type(kernel).__name__}")
    word = _WORDS[type(kernel)]
    values = [
        f"{field.name}={_value(getattr(kernel, field.name))}"
        for field in dataclasses.fields(kernel)
        if field.init
    ]
    return f"{word}({', '.join(values)})" if values else word


def _operand(kernel: AbstractKernel, parts: Sequence[str | None], bare: bool, looser: Any) -> str:
    """The expression of an operand: kernels of the classes `looser` are in parentheses."""
    written = _expression(kernel, parts, bare)
    if bare:
        kernel = _unscaled(kernel)
    elif isinstance(kernel, On) and parts and parts[kernel.where] is None:
        kernel = kernel.kernel  # On is not written around what compares the numbers of a tuple
    return f"({written})" if isinstance(kernel, looser) else written


def _without_numbers(kernel: AbstractKernel) -> str:
    return _expression(kernel, (), bare=True)


def _value(value: Any) -> str:
    if np.ndim(value) == 0:
        return _number(value)
    numbers = [_number(number) for number in np.ravel(value)]
    return f"[{', '.join(numbers)}]" if len(numbers) <= _MOST_SHOWN else f"[{len(numbers)} numbers]"


def _number(value: Any) -> str:
    """An integer, or six significant digits. Raises ValueError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not eqx.is_inexact_array_like(value):
        raise ValueError(f"no expression holds {value!r}")
    return f"{float(value):.6g}"


def parameter_names(kernel: AbstractKernel, prefix: str = "") -> dict[str, str]:
    """The name of each array of a kernel, and of the kernels inside it, by its path.

    The lengthscale in `2.0*rbf + linear` is `rbf.lengthscale`. Parts of the same expression are
    numbered: the lengthscale of the second part in `rbf + rbf` is `rbf (2).lengthscale`; so are
    scales of scales, the outer one first: `rbf.scale (1)`. Paths begin with the prefix, such as
    `kernel.`.
    """
    parts = list(_parts(kernel, ""))
    paths = collections.defaultdict(list)  # of the parts of each expression
    for path, part in parts:
        if not isinstance(part, (Scaled, On)):
            paths[_without_numbers(part)].append(path)
    names = {}
    for path, part in parts:
        # The name of a part is its expression, in parentheses if it consists of operators.
        text = _without_numbers(part)
        is_one_word = text.isidentifier() or isinstance(_unscaled(part), Normalised)
        name = short(text if is_one_word else f"({text})")
        alike = paths[text]
        if len(alike) > 1:  # a scale has the number of the kernel that it multiplies
            name = f"{name} ({alike.index(path + _way_inside(part)) + 1})"
        for field in dataclasses.fields(part):
            if eqx.is_inexact_array(getattr(part, field.name)):
                joined = f"{prefix}{path}.{field.name}"
                parameter = joined.replace("..", ".").lstrip(".")
                names[parameter] = f"{name}.{field.name}"
    # Names that are still the same, as for one scale around another, are numbered.
    repeated = {name for name, times in collections.Counter(names.values()).items() if times > 1}
    numbers = collections.Counter()
    for path, name in names.items():
        numbers[name] += 1
        if name in repeated:
            names[path] = f"{name} ({numbers[name]})"
    return names


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
        if rest[-1] == FIXED:
            continue
        # A path may end with the name of a column, as in `lengthscale[age]`.
        known = next((start for start in names if f"{path}[".startswith(f"{start}[")), None)
        name = path if known is None else names[known] + path.removeprefix(known)
        rows.append((name, *rest))
    return tuple(rows)


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
    return f".kernel{_way_inside(part.kernel)}" if isinstance(part, (Scaled, On)) else ""


def _unscaled(kernel: AbstractKernel) -> AbstractKernel:
    while isinstance(kernel, (Scaled, On)):
        kernel = kernel.kernel
    return kernel
