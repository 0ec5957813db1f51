"""Kernels written as text: `2.0*rbf + linear`, `matern52(lengthscale=3) * periodic`, `(rbf + 1)**2`, `normalised(spectrum(3))`.

The text is parsed by Python's own grammar, walked node by node against a closed vocabulary, and never evaluated. What the
algebra of kernels refuses (a negative scale, a difference), kernels refuse themselves, in their own words.
"""

import ast
import dataclasses
import math
import operator
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np

from kernax.cli.vocabulary import NO_OPERAND, NORMALISED, kernel_class, short
from kernax.core.kernel import NO_POWER, AbstractKernel, Constant, parts_of
from kernax.core.parameters import check_count
from kernax.kernels import Normalised

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_LONGEST, _DEEPEST, _HIGHEST = 1000, 50, 1000  # characters, operations inside operations, powers
_LONGEST_SUBSTRING, _MOST_NORMALISED = 50, 3  # tokens; normalised inside normalised, each of which triples the work

Meaning = AbstractKernel | int | float


def parse_kernel(text: str, dimensions: int | None = None, *, per_column: bool = True) -> AbstractKernel:
    """The kernel that a text describes.

    Names: rbf, matern12, matern32, matern52, matern, rational_quadratic, gamma_exponential, periodic, cosine, linear,
    polynomial, constant, and of text spectrum, blended_spectrum, all_substrings, mismatch, subsequence, all_subsequences, each
    alone or called with numbers or lists of numbers, in the order of the kernel's fields or by keyword; and `normalised` of
    one of these expressions. Operators: `+`, `*`, `**` with an integer, `/` by a number, parentheses. A bare number in a sum
    is a constant.

    Arguments:
        text: the expression, at most 1000 characters.
        dimensions: the length d of the points. If given, every lengthscale that the text does not mention becomes one per
            dimension (`per_column=True`) or one for all, starting at `sqrt(d)`. Squared distances of standardised points
            are about 2 d, so that an RBF starts near exp(-1) between two typical points, in any dimension.
        per_column: whether lengthscales that the text does not mention are one per dimension.

    Raises:
        ValueError: one sentence that says what is wrong.
    """
    if not text.strip():
        raise ValueError("the kernel expression is empty: write one such as 'rbf + linear'")
    if len(text) > _LONGEST:
        raise ValueError(f"the kernel expression has {len(text)} characters, but at most {_LONGEST} are read")
    try:
        meaning = _Reader(dimensions, per_column).read(_syntax(text), 0)
    except RecursionError:  # while a refused part was being quoted
        raise ValueError(_TOO_DEEP) from None
    return meaning if isinstance(meaning, AbstractKernel) else Constant(jnp.asarray(meaning, float))


def _syntax(text: str) -> ast.expr:
    start = len(text) - len(text.lstrip())
    line = " ".join(text.strip().splitlines())
    try:
        with warnings.catch_warnings(action="ignore"):  # the grammar's remarks on style, such as on "1if"
            return ast.parse(line, mode="eval").body
    except SyntaxError as problem:
        place = f"at column {problem.offset + start}" if problem.offset else "at its end"
        raise ValueError(f"the kernel expression cannot be read {place}: {problem.msg}") from None
    except (RecursionError, MemoryError):
        raise ValueError(_TOO_DEEP) from None
    except ValueError as problem:  # a null byte
        raise ValueError(f"the kernel expression cannot be read: {problem}") from None


_TOO_DEEP = f"the kernel expression is nested too deeply: at most {_DEEPEST} operations may lie inside each other"


@dataclasses.dataclass(frozen=True)
class _Reader:
    """What each node of the syntax tree means."""

    dimensions: int | None
    per_column: bool

    def read(self, node: ast.expr, depth: int) -> Meaning:
        if depth > _DEEPEST:
            raise ValueError(_TOO_DEEP)
        if isinstance(node, ast.Constant):
            return _number(node)
        if isinstance(node, ast.Name):
            return self.kernel(node.id, {})
        if isinstance(node, ast.Call):
            return self.call(node, depth)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            operand = self.read(node.operand, depth + 1)
            return -operand if isinstance(node.op, ast.USub) else operand
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _combine(node.op, self.read(node.left, depth + 1), self.read(node.right, depth + 1))
        raise ValueError(f"{_shown(node)} has no meaning in a kernel expression: it takes kernels, numbers, +, *, / and **")

    def call(self, node: ast.Call, depth: int) -> AbstractKernel:
        if not isinstance(node.func, ast.Name):
            raise ValueError(f"{_shown(node.func)} cannot be called in a kernel expression: only kernels can, by their names")
        name = node.func.id
        if name == NORMALISED:
            return self.normalised(node, depth)
        fields = [field.name for field in dataclasses.fields(kernel_class(name, called=True)) if field.init]
        if len(node.args) > len(fields):
            raise ValueError(f"{name} takes {_parameters(fields)}, but {len(node.args)} values are given")
        given = [*zip(fields, node.args), *((keyword.arg, keyword.value) for keyword in node.keywords)]
        values: dict[str, Any] = {}
        for field, value in given:
            if field not in fields:
                raise ValueError(f"{name} has no parameter {field or '**'}: it takes {_parameters(fields)}")
            if field in values:
                raise ValueError(f"{name} is given its {field} twice")
            values[field] = self.argument(value, f"{name}'s {field}", field in _PER_COLUMN)
        return self.kernel(name, values)

    def normalised(self, node: ast.Call, depth: int) -> AbstractKernel:
        if len(node.args) != 1 or node.keywords:
            raise ValueError(NO_OPERAND)
        operand = self.read(node.args[0], depth + 1)
        if not isinstance(operand, AbstractKernel):
            raise ValueError(f"{NO_OPERAND}, but is given {_shown(node.args[0])}")
        kernel = Normalised(operand)
        if _normalisations(kernel) > _MOST_NORMALISED:
            raise ValueError(f"at most {_MOST_NORMALISED} times may normalised stand inside itself in a kernel expression")
        return kernel

    def argument(self, node: ast.expr, what: str, per_column: bool) -> Any:
        """A number, or a list of numbers, one per dimension."""
        if not isinstance(node, (ast.List, ast.Tuple)):
            return _literal(node, what)
        if not per_column:
            raise ValueError(f"{what} must be a number, but is a list")
        values = [_literal(element, what) for element in node.elts]
        if not values or self.dimensions not in (None, len(values)):
            wanted = "at least one" if self.dimensions is None else f"{self.dimensions}, one per column"
            raise ValueError(f"{what} is a list of {len(values)} numbers, but must have {wanted}")
        return np.asarray(values, float)

    def kernel(self, name: str, values: dict[str, Any]) -> AbstractKernel:
        kind = kernel_class(name)
        if self.dimensions and "lengthscale" in kind.__dataclass_fields__ and "lengthscale" not in values:
            start = math.sqrt(self.dimensions)
            values = {**values, "lengthscale": np.full(self.dimensions, start) if self.per_column else start}
        if "degree" in values:
            _check_degree(values["degree"])
        for field in values.keys() & {"k", "m", "length"}:
            _check_length(values[field], f"{name}'s {field}", least=int(field != "m"))
        missing = [field.name for field in dataclasses.fields(kind) if _required(field) and field.name not in values]
        if missing:
            raise ValueError(f"{name} lacks its {missing[0]}: write {name}({_EXAMPLES[missing[0]]})")
        return kind(**values)


_PER_COLUMN = ("lengthscale", "period")  # parameters that may be lists
_EXAMPLES = {"k": "3", "length": "2"}  # of parameters that have no default


def _required(field: dataclasses.Field) -> bool:
    return field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _normalisations(kernel: AbstractKernel) -> int:
    """How often `normalised` stands inside itself."""
    return isinstance(kernel, Normalised) + max(map(_normalisations, parts_of(kernel)), default=0)


def _combine(operation: ast.operator, left: Meaning, right: Meaning) -> Meaning:
    if isinstance(operation, ast.Pow):
        if not isinstance(left, AbstractKernel) or isinstance(right, AbstractKernel):
            raise ValueError("** takes a kernel and a positive integer, as in linear**2")
        _check_degree(right)
    if isinstance(operation, ast.Div) and isinstance(right, AbstractKernel):
        raise ValueError("one over a kernel is not a kernel in general: / takes a kernel and a number, as in rbf/2")
    if isinstance(operation, ast.Div) and right == 0:
        raise ValueError("the kernel expression divides by zero")
    meaning = _OPERATORS[type(operation)](left, right)
    return meaning if isinstance(meaning, AbstractKernel) else _finite(meaning)


def _check_degree(degree: Any) -> None:
    check_count(degree, "degree", hint=NO_POWER)
    if degree > _HIGHEST:
        raise ValueError(f"degree must be at most {_HIGHEST} in a kernel expression, but is {degree:.6g}")


def _check_length(length: Any, what: str, least: int) -> None:
    check_count(length, what, least)
    if length > _LONGEST_SUBSTRING:
        raise ValueError(f"{what} must be at most {_LONGEST_SUBSTRING} in a kernel expression, but is {length:.6g}")


def _number(node: ast.Constant) -> int | float:
    if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
        raise ValueError(f"{_shown(node)} has no meaning in a kernel expression: kernels and numbers have")
    return _finite(node.value)


def _literal(node: ast.expr, what: str) -> int | float:
    """A number as it stands, perhaps with a minus that the kernel will refuse in its own words."""
    signs = {ast.UAdd: 1, ast.USub: -1}
    sign, bare = (signs.get(type(node.op)), node.operand) if isinstance(node, ast.UnaryOp) else (1, node)
    value = bare.value if sign and isinstance(bare, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{what} must be a number or a list of numbers, but is {_shown(node)}")
    return _finite(value) if sign == 1 else -_finite(value)


def _finite(number: int | float) -> int | float:
    if not abs(number) <= 1e300:
        raise ValueError("a number in the kernel expression is too large: at most 1e300 is read")
    return number


def _parameters(fields: list[str]) -> str:
    return " and ".join(fields) or "no parameters"


def _shown(node: ast.expr) -> str:
    return short(ast.unparse(node))
