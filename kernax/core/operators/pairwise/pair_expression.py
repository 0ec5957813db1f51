"""A function of two points as arithmetic on numbers, so that a GPU can compute it in registers.

JAX traces a function of parameters, of a row and of a column, and the trace is evaluated again:
values that depend only on a row, or only on a column, are computed beforehand for all rows or
columns by JAX; values that depend on both become a graph of `PairNumber`s, one for each scalar.
"""

import contextlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial, reduce, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex
from jaxtyping import Array

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.numerics import is_concrete
from kernax.core.base.powers import exponent_of, times_power_of_two

# The dependence of a number, as bits, so that `|` combines them.
THETA = 0
ROW = 1
COLUMN = 2
PAIR = ROW | COLUMN

# Operations on numbers that a Triton kernel computes directly.
_ELEMENTWISE = {
    *("max", "min", "pow", "atan2", "sqrt", "rsqrt", "exp2", "log", "log1p", "expm1", "tanh"),
    *("logistic", "sin", "cos", "abs", "sign", "is_finite"),
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not"),
}
# Operations that do not change a number.
_IDENTITIES = {
    *("copy", "copy_p", "stop_gradient", "optimization_barrier", "reduce_precision"),
    "reshard",  # in a program for a mesh of devices
}
# Operations that call the function in their parameters.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
}


class NotArithmetic(Exception):
    """The function of a pair does more than arithmetic on a few numbers."""


@dataclass(frozen=True, eq=False)
class PairNumber:
    """A number for each pair: its operation and arguments.

    Attributes:
        level: THETA, ROW, COLUMN or PAIR; operations have PAIR.
        operation: the name of a primitive of JAX, "fma", "exp2_of_negative", "constant" or "leaf".
        arguments: the numbers from which it is computed.
        array: the values of a leaf, a scalar or one for each row or column; or a constant.
        function: the operation on arrays, if it is a primitive of JAX.
        is_normal: whether this parameter is known to be between 1/2 and 2 in size, or a product of
            such numbers and small constants, so that it may multiply in any order.
        is_condition: whether it is a boolean.
        known_sign: the sign of a leaf, as in `sign`.
        sign: 1 if the number is known to be >= 0, -1 if <= 0, otherwise 0.
        results: the numbers that operations have made of this one, by operation and arguments.
    """

    level: int
    operation: str
    arguments: tuple["PairNumber", ...] = ()
    array: Any = None
    function: Callable[..., Array] = jnp.asarray
    is_normal: bool = False
    is_condition: bool = False
    known_sign: int = 0
    sign: int = field(init=False)
    results: dict[tuple, "PairNumber"] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self):
        object.__setattr__(self, "sign", _sign_of(self))

    def __add__(self, other):
        return _add(self, other)

    def __mul__(self, other):
        return _mul(self, other)

    @cached_property
    def squared(self) -> "PairNumber":
        """The square of a leaf, the same object each time."""
        return PairNumber(
            self.level, "leaf", array=self.array**2, is_normal=self.is_normal, known_sign=1
        )

    @cached_property
    def normalised(self) -> tuple["PairNumber", "PairNumber"]:
        """A power of two and the remaining factor of a parameter."""
        one = jnp.ones_like(self.array)
        power = times_power_of_two(one, exponent_of(jnp.abs(self.array)))
        rest = PairNumber(THETA, "leaf", array=self.array / power, is_normal=True)
        return PairNumber(THETA, "leaf", array=power), rest


def _sign_of(number: PairNumber) -> int:
    """The sign of a number from the signs of its arguments."""
    arguments = number.arguments
    signs = [argument.sign for argument in arguments]
    match number.operation:
        case "leaf":
            return number.known_sign
        case "constant":
            # NaN has no sign.
            return int(number.array >= 0) - int(number.array < 0)
        case "exp" | "exp2_of_negative" | "sqrt" | "abs" | "rsqrt":
            return 1
        case "mul" | "fma":
            product = 1 if arguments[0] is arguments[1] else signs[0] * signs[1]
            return product if all(sign == product for sign in signs[2:]) else 0
        case "add":
            return signs[0] if signs[0] == signs[1] else 0
        case "max":
            return 1 if 1 in signs else 0
        case "select_n":
            return signs[1] if signs[1] == signs[2] else 0
        case "log1p":
            return 1 if signs[0] == 1 else 0
    return 0


@dataclass
class _Value:
    """The value of a variable of a trace: an array that is computed beforehand, with a leading axis
    of rows or columns, or an array of numbers for each pair.
    """

    level: int
    array: Any = None
    known_numbers: Any = None

    @property
    def numbers(self) -> np.ndarray:
        """The scalars of one row, one column or one pair, as an array of `PairNumber`s."""
        if self.known_numbers is None and self.level == THETA and is_concrete(self.array):
            self.known_numbers = _each(_constant, np.asarray(self.array))
        elif self.known_numbers is None:
            # Behind the axis of rows or columns there is a leaf for each entry.
            axes = (slice(None),) if self.level else ()
            leaves = np.empty(np.shape(self.array)[len(axes) :], object)
            for place in np.ndindex(*leaves.shape):
                leaves[place] = _leaf(self.level, self.array[*axes, *place])
            self.known_numbers = leaves
        return self.known_numbers


def _leaf(level: int, array: Array) -> PairNumber:
    """A number that is computed beforehand; booleans become 1 or 0."""
    if array.dtype == bool:
        leaf = PairNumber(level, "leaf", array=jnp.where(array, 1.0, 0.0))
        return PairNumber(PAIR, "ne", (leaf, _constant(0.0)), function=lax.ne, is_condition=True)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise NotArithmetic(f"numbers of {array.dtype}")
    return PairNumber(level, "leaf", array=array)


def _constant(value: Any) -> PairNumber:
    array = np.asarray(value)
    return _constant_of(array.dtype.str, array.tobytes())


@lru_cache(1024)
def _constant_of(dtype: str, value: bytes) -> PairNumber:
    return PairNumber(THETA, "constant", array=np.frombuffer(value, dtype)[0])


# The difference of a number and itself. Its products are left out, where those of another zero
# would be NaN for an infinite factor.
_NOTHING = PairNumber(THETA, "constant", array=np.float64(0))


def _once(function: Callable) -> Callable:
    """An operation with one result for each list of positional arguments: a graph has no step
    twice.
    """

    @wraps(function)
    def operation(*arguments, **how):
        places = [a for a in arguments if isinstance(a, PairNumber) and a.operation != "constant"]
        if not places:
            return function(*arguments, **how)
        key = (function, *arguments)
        results = places[0].results
        if key not in results:
            results[key] = function(*arguments, **how)
        return results[key]

    return operation


def _each(function: Callable, *arrays: Any) -> np.ndarray:
    """A function of each entry, as an array of objects of any shape."""
    with np.errstate(invalid="ignore"):  # NumPy warns of NaN, even in an array of objects
        result = np.frompyfunc(function, len(arrays), 1)(*arrays)
    if isinstance(result, np.ndarray):
        return result
    scalar = np.empty((), object)
    scalar[()] = result
    return scalar


@_once
def _computed(
    operation: str, *arguments: PairNumber, function: Callable, is_condition: bool = False
) -> PairNumber:
    """An operation: a step of the graph for pairs, otherwise computed beforehand."""
    level = reduce(operator.or_, (argument.level for argument in arguments), THETA)
    if level == PAIR:
        if operation in ("max", "min") and any(a.is_condition for a in arguments):
            raise NotArithmetic("the larger of two conditions")
        return PairNumber(PAIR, operation, arguments, function=function, is_condition=is_condition)
    arrays = [argument.array for argument in arguments]
    shape = jnp.broadcast_shapes(*(np.shape(array) for array in arrays))
    dtype = jnp.result_type(*arrays)
    same = [jnp.broadcast_to(jnp.asarray(array, dtype), shape) for array in arrays]
    return _leaf(level, function(*same))


def _is_scaled(a: PairNumber) -> bool:
    """Whether a number is a parameter times a number of the pair."""
    return a.operation == "mul" and a.arguments[0].level == THETA and a.level == PAIR


def _is_one(a: PairNumber) -> bool:
    return a.operation == "constant" and bool(a.array == 1)


def is_zero(a: PairNumber) -> bool:
    """Whether a number is zero for all pairs."""
    return a.operation == "constant" and bool(a.array == 0)


def _is_moderate(t: PairNumber) -> bool:
    """Whether a parameter may multiply in any order, without over- or underflow."""
    return t.is_normal or (t.operation == "constant" and bool(0.1 < abs(t.array) < 10))


@_once
def _theta_product(a: PairNumber, b: PairNumber) -> PairNumber:
    """The product of two parameters, with its sign if it is known."""
    if a.operation == b.operation == "constant":
        return _constant(a.array * b.array)
    is_normal = _is_moderate(a) and _is_moderate(b)
    dtype = jnp.result_type(a.array, b.array)
    product = jnp.asarray(a.array, dtype) * jnp.asarray(b.array, dtype)
    return PairNumber(THETA, "leaf", array=product, is_normal=is_normal, known_sign=a.sign * b.sign)


@_once
def _scaled(t: PairNumber, a: PairNumber) -> PairNumber:
    """A parameter times a number of the pair."""
    if _is_one(t):
        return a
    if t is _NOTHING:
        return t
    if _is_scaled(a):
        (other, rest) = a.arguments
        return _scaled(_theta_product(t, other), rest)
    is_difference = a.operation == "sub" and {b.level for b in a.arguments} == {ROW, COLUMN}
    if is_difference and t.operation == "leaf" and not t.is_normal:
        # (x - z) t = (x p - z p) (t / p) with a power of two p: exact, and t / p near one.
        (power, rest) = t.normalised
        (x, z) = (_mul(power, b) for b in a.arguments)
        return PairNumber(PAIR, "mul", (rest, _sub(x, z)), function=lax.mul)
    return PairNumber(PAIR, "mul", (t, a), function=lax.mul)


@_once
def _mul(a: PairNumber, b: PairNumber) -> PairNumber:
    if a is _NOTHING or b is _NOTHING:
        return _NOTHING
    if (a.level | b.level) != PAIR:
        return _computed("mul", a, b, function=lax.mul)
    if b.level == THETA:
        (a, b) = (b, a)
    if a.level == THETA:
        return _scaled(a, b)
    if a is b and _is_scaled(a) and a.arguments[0].is_normal:
        # (t d)^2 = t^2 d^2, where t is near one.
        (t, d) = a.arguments
        return PairNumber(PAIR, "mul", (t.squared, _mul(d, d)), function=lax.mul)
    for scaled, other in ((a, b), (b, a)):
        if _is_scaled(scaled) and _is_moderate(scaled.arguments[0]):
            # (t d) b = t (d b), so that sums share the factor.
            (t, d) = scaled.arguments
            return _scaled(t, _mul(d, other))
    return PairNumber(PAIR, "mul", (a, b), function=lax.mul)


@_once
def _add(a: PairNumber, b: PairNumber) -> PairNumber:
    if is_zero(a):
        return b
    if is_zero(b):
        return a
    if (a.level | b.level) != PAIR:
        return _computed("add", a, b, function=lax.add)
    joined = _joined(a, b)
    if joined is not None:
        return joined
    if _is_scaled(a) and _is_scaled(b) and a.arguments[0] is b.arguments[0]:
        # t a + t b = t (a + b), so that a common factor is multiplied once.
        (t, rest) = a.arguments
        if _is_moderate(t):  # otherwise a + b might overflow where t a + t b does not
            return _scaled(t, _add(rest, b.arguments[1]))
    if a.operation == "mul" and b.operation != "mul":
        (a, b) = (b, a)
    if b.operation == "mul":
        # x y + a is one instruction.
        return PairNumber(PAIR, "fma", (*b.arguments, a))
    return PairNumber(PAIR, "add", (a, b), function=lax.add)


@_once
def _sub(a: PairNumber, b: PairNumber) -> PairNumber:
    if a is b:
        return _NOTHING
    if is_zero(b):
        return a
    if b.operation == "mul" and (a.level | b.level) == PAIR:
        # a - x y = a + (-x) y, which is one fused multiplication and addition.
        (x, y) = b.arguments
        return _add(a, PairNumber(PAIR, "mul", (_neg(x), y), function=lax.mul))
    return _computed("sub", a, b, function=lax.sub)


@_once
def _neg(a: PairNumber) -> PairNumber:
    if a is _NOTHING:
        return a
    if a.operation == "constant":
        return _constant(-a.array)
    return _scaled(_constant(-1.0), a) if a.level == PAIR else _computed("neg", a, function=lax.neg)


@_once
def _div(a: PairNumber, b: PairNumber) -> PairNumber:
    if a is _NOTHING:
        return a
    if b.level == THETA and a.level == PAIR:
        # a / b = (1 / b) a, with 1 / b computed once for all pairs.
        one = _constant(1.0)
        inverse = (
            _constant(1.0 / b.array)
            if b.operation == "constant"
            else _computed("div", one, b, function=lax.div)
        )
        return _scaled(inverse, a)
    return _computed("div", a, b, function=lax.div)


@_once
def _integer_pow(a: PairNumber, y: int) -> PairNumber:
    if y == 0:
        return _constant(1.0)
    if y < 0:
        return _div(_constant(1.0), _integer_pow(a, -y))
    if y < 4:
        return reduce(_mul, [a] * y)
    # a^y = (a^(y // 2))^2 a^(y mod 2).
    half = _integer_pow(a, y // 2)
    return _mul(_mul(half, half), a) if y % 2 else _mul(half, half)


@_once
def _exp(a: PairNumber) -> PairNumber:
    if a.level == PAIR and a.sign == -1:
        # exp(a) = 2^(a log2(e)); for negative a the rounding of the exponent is harmless.
        return PairNumber(PAIR, "exp2_of_negative", (_scaled(_constant(1 / np.log(2.0)), a),))
    return _computed("exp", a, function=lax.exp)


@_once
def _select(condition: PairNumber, no: PairNumber, yes: PairNumber) -> PairNumber:
    if condition.operation == "constant":
        return yes if condition.array else no
    if no is yes:
        return no
    # where(a < 0, 0, a) = max(a, 0).
    is_clamp = condition.operation == "lt" and condition.arguments[0] is no
    if is_clamp and is_zero(condition.arguments[1]) and is_zero(yes):
        return _computed("max", no, yes, function=lax.max)
    is_condition = no.is_condition and yes.is_condition
    arguments = (condition, no, yes)
    return PairNumber(PAIR, "select_n", arguments, function=lax.select_n, is_condition=is_condition)


def _joined(a: PairNumber, b: PairNumber) -> PairNumber | None:
    """The sum of two choices by one condition, where always one of the two is zero."""
    if a.operation != "select_n" or b.operation != "select_n":
        return None
    (condition, *of_a) = a.arguments
    (other, *of_b) = b.arguments
    if condition is not other or any(not is_zero(p) and not is_zero(q) for p, q in zip(of_a, of_b)):
        return None
    return _select(condition, *(_add(p, q) for p, q in zip(of_a, of_b)))


_ARITHMETIC: dict[str, Callable[..., PairNumber]] = {
    "add": _add,
    "add_any": _add,
    "sub": _sub,
    "mul": _mul,
    "neg": _neg,
    "div": _div,
    "square": lambda a: _mul(a, a),
    "exp": _exp,
    "select_n": _select,
}


def _broadcast_in_dim(a, *, shape, broadcast_dimensions, **_):
    expanded = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, a.shape):
        expanded[axis] = size
    return np.broadcast_to(a.reshape(expanded), shape)


def _dot_general(a, b, *, dimension_numbers, **_):
    ((of_a, of_b), (batch_a, batch_b)) = dimension_numbers
    if batch_a or batch_b:
        raise NotArithmetic("a product in batches")
    if a.size == 0:
        raise NotArithmetic("a sum of nothing")
    return _as_array(np.tensordot(a, b, (of_a, of_b)))


def _reduced(function: Callable) -> Callable:
    def reduction(a, *, axes, **_):
        if a.size == 0:
            raise NotArithmetic("a sum of nothing")
        moved = np.moveaxis(a, axes, range(len(axes)))
        flat = moved.reshape(-1, *moved.shape[len(axes) :])
        return _as_array(reduce(lambda p, q: _each(function, p, q), list(flat)))

    return reduction


def _as_array(a: Any) -> np.ndarray:
    if isinstance(a, np.ndarray):
        return a
    scalar = np.empty((), object)
    scalar[()] = a
    return scalar


def _pad(a, filling, *, padding_config):
    steps = [inner for _, _, inner in padding_config]
    spread = [size + inner * max(0, size - 1) for size, inner in zip(a.shape, steps)]
    result = np.full(spread, filling)
    result[tuple(slice(None, None, inner + 1) for inner in steps)] = a
    for axis, (low, high, _) in enumerate(padding_config):
        # Negative padding removes numbers at an end.
        kept = range(max(0, -low), result.shape[axis] - max(0, -high))
        ends = [(0, 0)] * a.ndim
        ends[axis] = (max(0, low), max(0, high))
        result = np.pad(result.take(kept, axis), ends, constant_values=filling)
    return result


def _slice(a, *, start_indices, limit_indices, strides, **_):
    steps = strides or [1] * a.ndim
    return a[tuple(slice(*part) for part in zip(start_indices, limit_indices, steps))]


_STRUCTURAL: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": lambda a, *, new_sizes, **_: a.reshape(new_sizes),
    "squeeze": lambda a, *, dimensions: a.squeeze(tuple(dimensions)),
    "transpose": lambda a, *, permutation: a.transpose(permutation),
    "rev": lambda a, *, dimensions: np.flip(a, dimensions),
    "slice": _slice,
    "concatenate": lambda *a, dimension: np.concatenate(a, dimension),
    "unstack": lambda a, *, axis, **_: [_as_array(part) for part in np.moveaxis(a, axis, 0)],
    "stack": lambda *a, axis, **_: np.stack(a, axis),
    "dot_general": _dot_general,
    "pad": _pad,
    "reduce_sum": _reduced(_add),
    "reduce_prod": _reduced(_mul),
}

# Those of them that only move numbers.
_MOVES = {
    *("broadcast_in_dim", "reshape", "squeeze", "transpose", "rev", "slice", "unstack"),
}


def expressions(
    jaxpr: Any, theta: Sequence, rows: Sequence, columns: Sequence, most_steps: int = 800
) -> list[np.ndarray]:
    """The outputs of a function of parameters, one row and one column, as arrays of numbers.

    `jaxpr` is its closed trace; `rows` and `columns` hold all of them, along a first axis.

    Raises NotArithmetic for a function with more than `most_steps` operations on numbers.
    """
    values = [_Value(THETA, array) for array in theta]
    values += [_Value(ROW, array) for array in rows]
    values += [_Value(COLUMN, array) for array in columns]
    numbers = [output.numbers for output in _evaluated(jaxpr.jaxpr, jaxpr.consts, values, True)]
    # With one origin for all pairs squared distances in many coordinates take fewer steps, and with
    # an origin for each pair their derivatives do.
    with contextlib.suppress(NotArithmetic):
        by_pair = _evaluated(jaxpr.jaxpr, jaxpr.consts, values, False)
        numbers = min(numbers, [output.numbers for output in by_pair], key=_count_steps)
    if len(in_order(numbers)) > most_steps:
        raise NotArithmetic(f"more than {most_steps} steps")
    if any(number.is_condition for output in numbers for number in output.ravel()):
        raise NotArithmetic("an output that is true or false")
    return numbers


def _count_steps(outputs: Sequence[np.ndarray]) -> int:
    """The number of operations for each pair."""
    return sum(number.operation not in ("leaf", "constant") for number in in_order(outputs))


def in_order(outputs: Sequence[np.ndarray]) -> list[PairNumber]:
    """Every number that the outputs need, each after its arguments."""
    order: dict[PairNumber, None] = {}
    waiting = [number for output in outputs for number in output.ravel()][::-1]
    while waiting:
        number = waiting[-1]
        missing = [argument for argument in number.arguments if argument not in order]
        if missing and number not in order:
            waiting.extend(missing)
        else:
            order.setdefault(waiting.pop())
    return list(order)


def _evaluated(
    jaxpr: Any, consts: Sequence, arguments: Sequence[_Value], is_shared: bool
) -> list[_Value]:
    """The outputs of a trace; `is_shared` says whether functions with a batching rule are evaluated
    once for all pairs, where they can be.
    """
    values = {variable: _Value(THETA, const) for variable, const in zip(jaxpr.constvars, consts)}
    values |= dict(zip(jaxpr.invars, arguments))

    def value_of(atom):
        return _Value(THETA, atom.val) if isinstance(atom, jex.Literal) else values[atom]

    for equation in jaxpr.eqns:
        outputs = _of_equation(equation, [value_of(atom) for atom in equation.invars], is_shared)
        values |= dict(zip(equation.outvars, outputs))
    return [value_of(atom) for atom in jaxpr.outvars]


def _of_equation(equation: Any, inputs: list[_Value], is_shared: bool) -> list[_Value]:
    name = equation.primitive.name
    level = reduce(operator.or_, (value.level for value in inputs), THETA)
    if name in ("stop_gradient", "copy", "copy_p"):
        return inputs
    if name == "sub" and inputs[0] is inputs[1]:
        # For instance the distance of a point from an origin that is this point.
        aval = equation.outvars[0].aval
        return [_Value(THETA, jnp.zeros(aval.shape, aval.dtype), np.full(aval.shape, _NOTHING))]
    if name == "custom_vmap_call" and _is_constant(equation.params["call"].jaxpr):
        return _evaluated_call(equation, inputs, is_shared)
    if level != PAIR:
        outputs = _beforehand(equation, inputs, level)
        # The same number stays one number wherever it occurs.
        if len(inputs) == 1 and (name in _MOVES or (level == THETA and name in _STRUCTURAL)):
            structured = _listed(_STRUCTURAL[name](inputs[0].numbers, **equation.params))
            for output, numbers in zip(outputs, structured):
                output.known_numbers = numbers
        if level == THETA and name in ("div", "mul", "neg"):
            numbers = _same_shape([value.numbers for value in inputs])
            outputs[0].known_numbers = _each(_ARITHMETIC[name], *numbers)
        return outputs
    if name == "custom_vmap_call" and is_shared:
        shared = _shared_by_pairs(equation, inputs)
        if shared is not None:
            return shared
    if name in _CALLS:
        return _evaluated_call(equation, inputs, is_shared)
    if name == "scan":
        return _unrolled(equation, inputs, is_shared)
    numbers = [value.numbers for value in inputs]
    return [_Value(PAIR, None, a) for a in _listed(_of_numbers(equation, numbers))]


def _evaluated_call(equation: Any, inputs: list[_Value], is_shared: bool) -> list[_Value]:
    """The outputs of the function that an operation calls."""
    inner = equation.params[_CALLS[equation.primitive.name]]
    consts = getattr(inner, "consts", ())
    return _evaluated(getattr(inner, "jaxpr", inner), consts, inputs, is_shared)


def _is_constant(jaxpr: Any) -> bool:
    """Whether the outputs of a function are numbers that its trace contains."""
    return all(isinstance(atom, jex.Literal) for atom in jaxpr.outvars)


def _listed(a: Any) -> list:
    return a if isinstance(a, list) else [a]


def _of_numbers(equation: Any, numbers: list) -> Any:
    """The outputs of an operation on arrays of numbers."""
    name = equation.primitive.name
    params = equation.params
    if name in _IDENTITIES:
        return numbers if equation.primitive.multiple_results else numbers[0]
    if name == "convert_element_type":
        return _each(lambda a: _converted(a, params["new_dtype"]), *numbers)
    if name in _STRUCTURAL:
        return _STRUCTURAL[name](*numbers, **params)
    if name == "integer_pow":
        return _each(lambda a: _integer_pow(a, params["y"]), *numbers)
    if name == "select_n" and len(numbers) != 3:
        raise NotArithmetic("a choice among more than two")
    if name in _ARITHMETIC:
        return _each(_ARITHMETIC[name], *_same_shape(numbers))
    if name in _ELEMENTWISE:
        function = lambda *arrays: _bound(equation, *arrays)[0]
        is_condition = equation.outvars[0].aval.dtype == bool
        operation = partial(_computed, name, function=function, is_condition=is_condition)
        return _each(operation, *_same_shape(numbers))
    raise NotArithmetic(name)


def _same_shape(numbers: list) -> list:
    return list(np.broadcast_arrays(*numbers))


def _converted(a: PairNumber, dtype: Any) -> PairNumber:
    """A number as a float; all floats of a graph have one dtype."""
    if not jnp.issubdtype(dtype, jnp.floating):
        raise NotArithmetic(f"numbers of {dtype}")
    if a.operation == "constant":
        return _constant(np.asarray(a.array, dtype))
    return _select(a, _constant(0.0), _constant(1.0)) if a.is_condition else a


def _beforehand(equation: Any, inputs: list[_Value], level: int) -> list[_Value]:
    """The outputs of an operation on parameters, on each row or on each column."""
    function = partial(_bound, equation)
    arrays = [value.array for value in inputs]
    if level == THETA:
        if is_concrete(arrays):
            with jax.ensure_compile_time_eval():
                return [_Value(THETA, out) for out in function(*arrays)]
        return [_Value(THETA, out) for out in function(*arrays)]
    axes = tuple(0 if value.level else None for value in inputs)
    return [_Value(level, out) for out in jax.vmap(function, axes)(*arrays)]


def _bound(equation: Any, *arrays: ArrayLike) -> list[Array]:
    """The outputs of an operation on arrays."""
    params = equation.primitive.get_bind_params(equation.params)
    outputs = equation.primitive.bind(*arrays, **params)
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def _shared_by_pairs(equation: Any, inputs: list[_Value]) -> list[_Value] | None:
    """The outputs of a function with a batching rule, if they are the same for all pairs; otherwise
    None.
    """
    inner = next(value.level for value in reversed(inputs) if value.level)
    axes = tuple(0 if value.level == inner else None for value in inputs)
    if any(value.level == PAIR for value in inputs):
        return None
    # Any point of the other side serves.
    others = [value.array if value.level in (THETA, inner) else value.array[0] for value in inputs]
    try:
        outputs = jax.vmap(partial(_bound, equation), axes, out_axes=None)(*others)
    except ValueError:
        return None
    return [_Value(THETA, output) for output in outputs]


def _unrolled(equation: Any, inputs: list[_Value], is_shared: bool) -> list[_Value]:
    """The outputs of a `scan` over a few coordinates."""
    params = equation.params
    body = params["jaxpr"]
    # In (constants, carry, xs) and in (carry, ys) the last have one more axis than in the body.
    n_xs = _with_axis_more(equation.invars, body.in_avals)
    n_ys = _with_axis_more(equation.outvars, body.out_avals)
    n_carry = len(equation.outvars) - n_ys
    n_consts = len(inputs) - n_carry - n_xs
    steps = range(params["length"])
    if not 0 < len(steps) <= 64:
        raise NotArithmetic("a long loop, or an empty one")
    consts = inputs[:n_consts]
    carry = inputs[n_consts : n_consts + n_carry]
    xs = inputs[n_consts + n_carry :]
    ys = {}
    for i in reversed(steps) if params["reverse"] else steps:
        parts = [_part(x, i) for x in xs]
        outputs = _evaluated(body.jaxpr, body.consts, [*consts, *carry, *parts], is_shared)
        carry = outputs[:n_carry]
        ys[i] = outputs[n_carry:]
    stacked = [np.stack([out.numbers for out in outs]) for outs in zip(*(ys[i] for i in steps))]
    return [*carry, *(_Value(PAIR, None, numbers) for numbers in stacked)]


def _with_axis_more(outer: Sequence, inner: Sequence) -> int:
    return sum(a.aval.ndim > b.ndim for a, b in zip(outer, inner))


def _part(value: _Value, i: int) -> _Value:
    """One part along the axis that a loop runs over."""
    if value.level == PAIR:
        return _Value(PAIR, None, _as_array(value.numbers[i]))
    array = value.array[:, i] if value.level else value.array[i]
    return _Value(value.level, array, _as_array(value.numbers[i]))
