"""Kernels written as text, such as `2.0*rbf + linear` or `normalised(spectrum(3))`.

The text is parsed by Python's own grammar, walked node by node with a closed vocabulary, and never
evaluated. Errors in the algebra of kernels (a negative scale, a difference) are raised by kernels.
"""

import ast
import dataclasses
import math
import operator
from typing import Any, TypeGuard

import jax.numpy as jnp
import numpy as np

from kernax.cli.notation import TEXT, bare_text, compared, kernel_class, text_names
from kernax.cli.words import (
    DEEPEST,
    NO_COLUMN,
    NO_OPERAND,
    NO_PLACE,
    NORMALISED,
    OF_COLUMN,
    ON,
    TOO_DEEP,
    syntax_of,
)
from kernax.core.base.parameters import check_count
from kernax.core.kernel.kernel import NO_POWER, AbstractKernel, Constant, parts_of
from kernax.kernels import Normalised, On
from kernax.preparation.cells import short

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
# Limits of expressions.
_HIGHEST = 1000  # powers
_LONGEST_SUBSTRING = 50  # tokens
_MOST_NORMALISED = 3  # normalised inside normalised, each of which triples the work

Meaning = AbstractKernel | int | float


def parse_kernel(
    text: str, dimensions: int | None = None, *, per_column: bool = True
) -> AbstractKernel:
    """The kernel that a text describes.

    Names: rbf, matern12, matern32, matern52, matern, rational_quadratic, gamma_exponential,
    periodic, zero_mean_periodic, cosine, linear, shifted_linear, polynomial, constant, and for text
    spectrum, blended_spectrum, all_substrings, mismatch, subsequence, all_subsequences. A name
    stands alone or is called with numbers or lists of numbers, in the order of the kernel's fields
    or by keyword; `normalised` is called with an expression, `on` with an expression and the number
    of a column, from 1 on, `text` with the name of a column in quotes and the expression of a
    string kernel, which becomes `On(kernel, name)`. Operators: `+`, `*`, `**` with an integer, `/`
    by a number, parentheses. A bare number in a sum is a constant.

    Arguments:
        text: the expression, at most 1000 characters.
        dimensions: the length d of the points. If given, every lengthscale that the text does not
            mention becomes one per dimension (`per_column=True`) or one for all, starting at
            `sqrt(d)`. Squared distances of standardised points are about 2 d, so that an RBF starts
            near exp(-1) between two typical points, in any dimension.
        per_column: whether lengthscales that the text does not mention are one per dimension.

    Raises:
        ValueError: one sentence that says what is wrong.
    """
    syntax = syntax_of(text)
    try:
        meaning = _Reader(dimensions, per_column).read(syntax, 0)
    except RecursionError:  # from quoting a deeply nested part in a message
        raise ValueError(TOO_DEEP) from None
    if not isinstance(meaning, AbstractKernel):
        return Constant(jnp.asarray(meaning, float))
    if text_names(meaning) and bare_text(meaning):
        raise ValueError(
            "some string kernels of the expression name a column, and others do not: write "
            "text('name', ...) around all of them, or around none"
        )
    return meaning


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Turns nodes of the syntax tree into kernels and numbers."""

    dimensions: int | None
    per_column: bool

    def read(self, node: ast.expr, depth: int) -> Meaning:
        """The kernel or number that an expression describes."""
        if depth > DEEPEST:
            raise ValueError(TOO_DEEP)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
                raise ValueError(
                    f"{_shown(node)} has no meaning in a kernel expression: it takes kernels and "
                    "numbers"
                )
            return _finite(node.value)
        if isinstance(node, ast.Name):
            return self.kernel(node.id, {})
        if isinstance(node, ast.Call):
            return self.call(node, depth)
        if _has_sign(node):
            operand = self.read(node.operand, depth + 1)
            return -operand if isinstance(node.op, ast.USub) else operand
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left = self.read(node.left, depth + 1)
            right = self.read(node.right, depth + 1)
            if isinstance(node.op, ast.Pow):
                if not isinstance(left, AbstractKernel) or isinstance(right, AbstractKernel):
                    raise ValueError("** takes a kernel and a positive integer, as in linear**2")
                _check_degree(right)
            if isinstance(node.op, ast.Div) and isinstance(right, AbstractKernel):
                raise ValueError(
                    "a number divided by a kernel is not a kernel in general, nor is a quotient of "
                    "two kernels: / takes a kernel and a number, as in rbf/2"
                )
            if isinstance(node.op, ast.Div) and right == 0:
                raise ValueError("the kernel expression divides by zero")
            meaning = _OPERATORS[type(node.op)](left, right)
            return meaning if isinstance(meaning, AbstractKernel) else _finite(meaning)
        raise ValueError(
            f"{_shown(node)} has no meaning in a kernel expression: it takes kernels, numbers, +, "
            "*, / and **"
        )

    def call(self, node: ast.Call, depth: int) -> AbstractKernel:
        if not isinstance(node.func, ast.Name):
            raise ValueError(
                f"{_shown(node.func)} cannot be called in a kernel expression: only kernels can, "
                "by their names"
            )
        name = node.func.id
        if name == NORMALISED:
            return self.normalised(node, depth)
        if name == OF_COLUMN:
            return self.of_column(node, depth)
        if name == ON:
            return self.on_column(node, depth)
        return self.kernel(name, self.arguments(name, node))

    def arguments(self, name: str, node: ast.Call) -> dict[str, Any]:
        """The values that a call gives to the fields of a kernel, by their names."""
        values: dict[str, Any] = {}
        kind = kernel_class(name, called=True)
        fields = [field.name for field in dataclasses.fields(kind) if field.init]
        parameters = " and ".join(fields) or "no parameters"
        if len(node.args) > len(fields):
            raise ValueError(f"{name} takes {parameters}, but {len(node.args)} values are given")
        given = list(zip(fields, node.args))
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg not in fields:
                raise ValueError(
                    f"{name} has no parameter {keyword.arg or '**'}: it takes {parameters}"
                )
            given.append((keyword.arg, keyword.value))
        for field, value in given:
            if field in values:
                raise ValueError(f"{name} is given its {field} twice")
            what = f"{name}'s {field}"
            values[field] = self.argument(value, what, field in _PER_COLUMN)
        return values

    def normalised(self, node: ast.Call, depth: int) -> AbstractKernel:
        """The normalised kernel of the only argument of a call."""
        if len(node.args) != 1 or node.keywords:
            raise ValueError(NO_OPERAND)
        operand = self.read(node.args[0], depth + 1)
        if not isinstance(operand, AbstractKernel):
            raise ValueError(f"{NO_OPERAND}, but is given {_shown(node.args[0])}")
        kernel = Normalised(operand)
        if _normalisations(kernel) > _MOST_NORMALISED:
            raise ValueError(
                f"normalised may be nested at most {_MOST_NORMALISED} times in a kernel expression"
            )
        return kernel

    def of_column(self, node: ast.Call, depth: int) -> AbstractKernel:
        """The string kernel of a column; the first argument of a call is the name of the column."""
        if len(node.args) != 2 or node.keywords:
            raise ValueError(NO_COLUMN)
        name = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
        operand = self.read(node.args[1], depth + 1)
        if not isinstance(name, str) or not isinstance(operand, AbstractKernel):
            raise ValueError(NO_COLUMN)
        if compared(operand) != {TEXT} or text_names(operand):
            raise ValueError(f"{NO_COLUMN}, but is given {_shown(node.args[1])}")
        return On(operand, name)

    def on_column(self, node: ast.Call, depth: int) -> AbstractKernel:
        """The first argument of a call, a kernel, on the column that the second gives, counted from
        1.
        """
        if len(node.args) != 2 or node.keywords:
            raise ValueError(NO_PLACE)
        operand = _Reader(1, per_column=False).read(node.args[0], depth + 1)
        place = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
        if not isinstance(operand, AbstractKernel):
            raise ValueError(f"{NO_PLACE}, but is given {_shown(node.args[0])}")
        if TEXT in compared(operand):
            raise ValueError(f"{NO_PLACE}, and {_shown(node.args[0])} compares text")
        column = check_count(place, "the column of on")
        if self.dimensions is not None and column > self.dimensions:
            raise ValueError(f"on names column {column}, but there are {self.dimensions} columns")
        return On(operand, column - 1)

    def argument(self, node: ast.expr, what: str, per_column: bool) -> Any:
        """A number, or a list of numbers, one per dimension."""
        if not isinstance(node, (ast.List, ast.Tuple)):
            return _literal(node, what)
        if not per_column:
            raise ValueError(f"{what} must be a number, but is a list")
        values = [_literal(element, what) for element in node.elts]
        if self.dimensions is not None and len(values) != self.dimensions:
            raise ValueError(
                f"{what} is a list of {len(values)} numbers, but must have {self.dimensions}, one "
                "per column"
            )
        if not values:
            raise ValueError(f"{what} is a list of 0 numbers, but must have at least one")
        return np.asarray(values, float)

    def kernel(self, name: str, values: dict[str, Any]) -> AbstractKernel:
        kind = kernel_class(name)
        if "degree" in values:
            _check_degree(values["degree"])
        for field in values.keys() & {"k", "m", "length"}:
            length = values[field]
            what = f"{name}'s {field}"
            check_count(length, what, int(field != "m"))
            if length > _LONGEST_SUBSTRING:
                raise ValueError(
                    f"{what} must be at most {_LONGEST_SUBSTRING} in a kernel expression, but is "
                    f"{length:.6g}"
                )
        fields = {field.name: field for field in dataclasses.fields(kind)}
        for word, field in fields.items():
            defaults = (field.default, field.default_factory)
            has_default = any(value is not dataclasses.MISSING for value in defaults)
            if field.init and not has_default and word not in values:
                raise ValueError(f"{name} lacks its {word}: write {name}({_EXAMPLES[word]})")
        if self.dimensions and "lengthscale" in fields and "lengthscale" not in values:
            start = math.sqrt(self.dimensions)
            lengthscale = np.full(self.dimensions, start) if self.per_column else start
            values = values | {"lengthscale": lengthscale}
        return kind(**values)


_PER_COLUMN = ("lengthscale", "period")  # parameters that may be lists
_EXAMPLES = {"k": "3", "length": "2"}  # of parameters that have no default


def _normalisations(kernel: AbstractKernel) -> int:
    """How deeply `normalised` is nested in a kernel."""
    return isinstance(kernel, Normalised) + max(map(_normalisations, parts_of(kernel)), default=0)


def _check_degree(degree: Any) -> None:
    check_count(degree, "degree", hint=NO_POWER)
    if degree > _HIGHEST:
        raise ValueError(
            f"degree must be at most {_HIGHEST} in a kernel expression, but is {degree:.6g}"
        )


def _has_sign(node: ast.expr) -> TypeGuard[ast.UnaryOp]:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub))


def _literal(node: ast.expr, what: str) -> int | float:
    """A number, perhaps with a sign; if it must be positive, the kernel checks that."""
    bare = node.operand if _has_sign(node) else node
    value = bare.value if isinstance(bare, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{what} must be a number or a list of numbers, but is {_shown(node)}")
    negative = _has_sign(node) and isinstance(node.op, ast.USub)
    return -_finite(value) if negative else _finite(value)


def _finite(number: int | float) -> int | float:
    if not abs(number) <= 1e300:
        raise ValueError("a number in the kernel expression is too large: at most 1e300 is allowed")
    return number


def _shown(node: ast.expr) -> str:
    return short(ast.unparse(node))
