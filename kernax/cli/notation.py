"""Kernels as expressions: what `parse_kernel` reads, written."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np

from kernax.cli.vocabulary import KERNELS, NORMALISED, OF_COLUMN, ON, STRING_KERNELS
from kernax.core.kernel.kernel import AbstractKernel, Constant, Power, Product, Scaled, Sum
from kernax.kernels import Normalised, On
from kernax.preparation import Inputs

_WORDS = {kind: word for word, kind in (KERNELS | STRING_KERNELS).items()}
_MOST_SHOWN = 8  # numbers of a list


def expression_of(kernel: AbstractKernel) -> str:
    """A kernel as an expression that `parse_kernel` reads, its numbers in six digits.

    A list of more than eight numbers, such as a lengthscale for each of many columns, is only
    counted, and such an expression cannot be read again. Raises ValueError for a kernel that no
    expression describes.
    """
    return _written(kernel, ())


def expression_on(kernel: AbstractKernel, inputs: Inputs) -> str:
    """The same of a kernel on the points that `inputs` makes: `text('name', ...)` around what
    compares a column of text, where there are several parts.
    """
    texts = [text.name for text in inputs.texts]
    parts = [None, *texts] if inputs.columns else texts
    return _written(kernel, parts if len(parts) > 1 else ())


def _written(kernel: AbstractKernel, parts: Sequence[str | None]) -> str:
    """The expression. Points are tuples of parts where there are any: each is the name of a column
    of text, or None for the numbers.
    """
    if isinstance(kernel, Sum):
        return " + ".join(_written(term, parts) for term in kernel.terms)
    if isinstance(kernel, Product):
        return "*".join(_factor(term, parts) for term in kernel.terms)
    if isinstance(kernel, Scaled):
        return f"{_number(kernel.scale)}*{_factor(kernel.kernel, parts)}"
    if isinstance(kernel, Power):
        return f"{_base(kernel.kernel, parts)}**{kernel.degree}"
    if isinstance(kernel, Normalised):
        return f"{NORMALISED}({_written(kernel.kernel, parts)})"
    if isinstance(kernel, On):
        return _on(kernel, parts)
    if isinstance(kernel, Constant):
        return _number(kernel.value)
    return _called(kernel)


def _factor(kernel: AbstractKernel, parts: Sequence[str | None]) -> str:
    """The expression of a factor: a sum is in parentheses."""
    written = _written(kernel, parts)
    return f"({written})" if isinstance(_inside(kernel, parts), Sum) else written


def _base(kernel: AbstractKernel, parts: Sequence[str | None]) -> str:
    """The expression of what is raised to a power: operators are in parentheses."""
    inside = _inside(kernel, parts)
    written = _written(kernel, parts)
    return f"({written})" if isinstance(inside, (Sum, Product, Scaled, Power)) else written


def _inside(kernel: AbstractKernel, parts: Sequence[str | None]) -> AbstractKernel:
    """The kernel that is written where another one compares the numbers of a tuple."""
    if isinstance(kernel, On) and parts and parts[kernel.where] is None:
        return kernel.kernel
    return kernel


def _on(kernel: On, parts: Sequence[str | None]) -> str:
    """A kernel on the numbers, on one column of them, or on a column of text."""
    inner = _written(kernel.kernel, ())
    if not parts:
        if not isinstance(kernel.where, int):
            raise ValueError(f"no expression describes On of {kernel.where!r}")
        return f"{ON}({inner}, {kernel.where + 1})"
    name = parts[kernel.where]
    return inner if name is None else f"{OF_COLUMN}({name!r}, {inner})"


def _called(kernel: AbstractKernel) -> str:
    """A name with the values of all fields."""
    if type(kernel) not in _WORDS:
        raise ValueError(f"no expression describes {type(kernel).__name__}")
    word = _WORDS[type(kernel)]
    values = [
        f"{field.name}={_value(getattr(kernel, field.name))}"
        for field in dataclasses.fields(kernel)
        if field.init
    ]
    return f"{word}({', '.join(values)})" if values else word


def _value(value: Any) -> str:
    """A number, or a list of them."""
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
