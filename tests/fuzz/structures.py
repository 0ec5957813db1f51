"""Kernels composed at random, each also as a formula in NumPy's widest floats, with the size of its
rounding errors.

A structure is static: the numbers in it are taken from one vector, so that a thousand kernels of a
structure are one program.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import kernax

WIDE = np.longdouble  # 64 bits of mantissa where the machine has them
UNROLLED = 8  # dimensions up to which a squared distance is a sum of differences

Bounded = tuple[np.ndarray, np.ndarray]  # values, and the size of their errors in units of eps


class Number(NamedTuple):
    """What a number of a kernel is a multiple of, a power of the size of the points, and whether it
    may be zero.
    """

    power: int = 0
    positive: bool = False


@dataclass(frozen=True)
class Structure:
    """A kernel but for its numbers: `build(numbers)` is one of kernax, `formula(numbers, X)` its
    Gram matrix.
    """

    text: str
    numbers: tuple[Number, ...]
    build: Callable[[Any], kernax.AbstractKernel]
    formula: Callable[[Any, np.ndarray], Bounded]


def _underflow(numbers: np.ndarray) -> float:
    """The error of what is too small for a float, in units of eps."""
    return 8 * float(np.finfo(numbers.dtype).tiny) / float(np.finfo(numbers.dtype).eps)


def _squared(X: np.ndarray, lengthscale: Any, rough: bool, eps: float) -> Bounded:
    difference = (X[:, None] - X[None]) / lengthscale
    s = np.sum(difference**2, -1)
    reach = (
        np.max(np.abs(X - X.mean(0))) / lengthscale if X.shape[1] > UNROLLED and not rough else 0
    )
    return s, 4 * s + 16 * X.shape[1] * reach**2


def _stationary(name: str, of_s: Callable, rough: bool = False) -> Structure:
    def formula(numbers, X):
        eps, tiny = np.finfo(numbers.dtype).eps, np.finfo(numbers.dtype).tiny
        lengthscale = max(WIDE(numbers[0]), WIDE(tiny) ** (WIDE(1) / 3))
        s, error = _squared(X, lengthscale, rough, eps)
        value = of_s(s)
        moved = np.abs(of_s(s + eps * error) - value) + np.abs(
            of_s(np.maximum(s - eps * error, 0)) - value
        )
        return value, value * (1 + np.log1p(s)) + (
            moved + 8 * tiny
        ) / eps  # as the exponential of a logarithm, at worst

    return Structure(
        name, (Number(1, True),), lambda numbers: getattr(kernax, name)(numbers[0]), formula
    )


def _periodic() -> Structure:
    def formula(numbers, X):
        eps, tiny = np.finfo(numbers.dtype).eps, np.finfo(numbers.dtype).tiny
        lengthscale, period = np.maximum(WIDE(1) * numbers[:2], WIDE(tiny) ** (WIDE(1) / 3))
        turns = np.abs(X[:, None] - X[None]) / period
        squares = (np.sin(np.arccos(WIDE(-1)) * turns) / lengthscale) ** 2
        exponent = -2 * np.sum(squares, -1)
        lost = eps * np.sum((1 + 8 * turns) / lengthscale**2 * 4 + 4 * squares, -1)
        moved = np.exp(np.minimum(exponent + lost, 0)) - np.exp(exponent - lost)
        return np.exp(exponent), np.exp(exponent) + (moved + 8 * tiny) / eps

    slots = (Number(0, True), Number(1, True))
    return Structure(
        "Periodic", slots, lambda numbers: kernax.Periodic(numbers[0], numbers[1]), formula
    )


def _constant() -> Structure:
    def formula(numbers, X):
        value = np.full((len(X), len(X)), WIDE(numbers[0]))
        return value, value

    return Structure("Constant", (Number(),), lambda numbers: kernax.Constant(numbers[0]), formula)


def scaled(inner: Structure, power: int = 0) -> Structure:
    """`number * inner`; the first number is the scale."""

    def formula(numbers, X):
        value, error = inner.formula(numbers[1:], X)
        return WIDE(numbers[0]) * value, WIDE(numbers[0]) * (error + np.abs(value))

    build = lambda numbers: kernax.kernels.Scaled(inner.build(numbers[1:]), numbers[0])
    return Structure(f"Scaled({inner.text})", (Number(power), *inner.numbers), build, formula)


def _linear() -> Structure:
    def formula(numbers, X):
        return X @ X.T, len(X[0]) * np.abs(X) @ np.abs(X).T + np.finfo(
            numbers.dtype
        ).tiny / np.finfo(numbers.dtype).eps

    return scaled(Structure("Linear", (), lambda _: kernax.Linear(), formula), power=-2)


LEAVES = (
    _stationary("RBF", lambda s: np.exp(-s / 2)),
    _stationary("Matern12", lambda s: np.exp(-np.sqrt(s)), rough=True),
    _stationary("Matern32", lambda s: (1 + np.sqrt(3 * s)) * np.exp(-np.sqrt(3 * s))),
    _stationary("RationalQuadratic", lambda s: 1 / (1 + s / 2)),
    _linear(),
    _periodic(),
    _constant(),
)


def squared(inner: Structure) -> Structure:
    """The square of a kernel."""

    def formula(numbers, X):
        value, error = inner.formula(numbers, X)
        return value**2, 2 * np.abs(value) * error + value**2 + _underflow(numbers)

    return Structure(
        f"({inner.text})**2", inner.numbers, lambda numbers: inner.build(numbers) ** 2, formula
    )


def exponential(inner: Structure) -> Structure:
    """The exponential of a kernel."""

    def formula(numbers, X):
        value, error = inner.formula(numbers, X)
        return np.exp(value), np.exp(value) * (error + 1)

    return Structure(
        f"ExpOf({inner.text})",
        inner.numbers,
        lambda numbers: kernax.kernels.ExpOf(inner.build(numbers)),
        formula,
    )


def normalised(inner: Structure) -> Structure:
    """The cosine between the features of a kernel."""

    def formula(numbers, X):
        value, error = inner.formula(numbers, X)
        diagonal, lost = np.diagonal(value), np.diagonal(error)
        seen = diagonal > np.finfo(numbers.dtype).tiny / np.finfo(numbers.dtype).eps
        size = np.sqrt(np.where(seen, diagonal, 1))
        relative = np.where(seen, lost / size**2, np.inf)
        cosine = value / size[:, None] / size[None]
        return cosine, error / size[:, None] / size[None] + relative[:, None] + relative[None] + 4

    return Structure(
        f"Normalised({inner.text})",
        inner.numbers,
        lambda numbers: kernax.Normalised(inner.build(numbers)),
        formula,
    )


def both(left: Structure, right: Structure, times: bool) -> Structure:
    """The sum or the product of two kernels."""
    count = len(left.numbers)

    def build(numbers):
        first, second = left.build(numbers[:count]), right.build(numbers[count:])
        return first * second if times else first + second

    def formula(numbers, X):
        (a, of_a), (b, of_b) = left.formula(numbers[:count], X), right.formula(numbers[count:], X)
        if times:
            return a * b, np.abs(a) * of_b + np.abs(b) * of_a + np.abs(a * b) + _underflow(numbers)
        return a + b, of_a + of_b + np.abs(a + b)

    return Structure(
        f"({left.text} {'*' if times else '+'} {right.text})",
        left.numbers + right.numbers,
        build,
        formula,
    )


def composed(rng: np.random.Generator, depth: int) -> Structure:
    """A structure drawn at random; whatever is added or multiplied has a scale, which may be
    zero.
    """
    if depth == 0:
        return scaled(LEAVES[rng.integers(len(LEAVES))])
    kind = rng.choice(
        ["square", "exponential", "cosine", "sum", "product"], p=[0.1, 0.1, 0.1, 0.4, 0.3]
    )
    if kind == "square":
        return squared(composed(rng, depth - 1))
    if kind == "exponential":
        return scaled(exponential(LEAVES[rng.integers(4)]))
    if kind == "cosine":
        return scaled(normalised(composed(rng, depth - 1)))
    return both(composed(rng, depth - 1), composed(rng, depth - 1), times=kind == "product")
