"""What a row of the comparison is, and what rows are made of.

A row is a function of a version of kernax (the module) and a size, which returns a `Program`. The
same function serves both versions: what has moved between them, it asks `public` for.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import Program


class Kind(enum.Enum):
    """How a row is measured."""

    COMPILED = "compiled ahead of time, then run"
    EAGER = "called as users call it, without a jit around it, after a first call"
    FIRST = "the first call in a process of its own, without a cache"
    COMPILE = "compiled, not run"


@dataclass(frozen=True)
class Row:
    """One line of the table, at its size, or at the size of a quick run, which does without the row
    if that is None.

    `tolerance` bounds `max |a - b| / max |b|` over the leaves of the two answers. `bar` is in
    seconds of this checkout, beside the two bars on ratios that every row has.
    """

    name: str
    program: Callable[[Any, int], Program]
    size: int
    quick: int | None
    tolerance: float = 1e-9
    precision: str = "float64"
    kind: Kind = Kind.COMPILED
    bar: float | None = None


class Missing(LookupError):
    """A version has no such public name."""


def public(kernax: Any, path: str) -> Any:
    """`kernax.losses.Huber` for the path "losses.Huber", or `kernax.Huber` where names are flat.

    Raises Missing where there is neither.
    """
    *rooms, name = path.split(".")
    for start in (rooms, []):
        place = kernax
        for room in start:
            place = getattr(place, room, None)
        if hasattr(place, name):
            return getattr(place, name)
    raise Missing(f"kernax.{path}")


def is_absent(error: Exception, kernax: Any) -> bool:
    """Whether an error says that a version lacks a name or an argument, and nothing else."""
    if isinstance(error, AttributeError):
        return error.obj is kernax
    return isinstance(error, Missing) or "unexpected keyword argument" in str(error)


def known(kernax: Any, solution: Any, value: Any) -> Any:
    """The value, or NaN, which agrees with nothing, where the solution is none."""
    successful = solution.result == kernax.RESULTS.successful
    return jax.tree.map(lambda leaf: jnp.where(successful, leaf, jnp.nan), value)


def fitted(kernax: Any, solution: Any) -> Any:
    """Coefficients and bias of a solution."""
    f = solution.value
    return known(kernax, solution, (f.coefficients, f.bias))


def of_values(solution: Any, Z: Any) -> Any:
    """A number that depends on everything in a fit: what gradients are taken of."""
    return jnp.mean(solution.value.values(Z) ** 2)


def in_precision(array: np.ndarray) -> np.ndarray:
    """In float64, or float32 where 64-bit mode is off."""
    return np.asarray(array, jax.dtypes.canonicalize_dtype(np.float64))


def points(n: int, d: int, seed: int = 0) -> np.ndarray:
    return in_precision(np.random.default_rng(seed).normal(size=(n, d)))


def regression(n: int, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Noisy values of a smooth function."""
    X = points(n, d)
    noise = np.random.default_rng(1).normal(size=n)
    return X, in_precision(np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * noise)


def classification(n: int, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Two classes on either side of a curved boundary, one label in ten wrong."""
    X = points(n, d)
    above = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0
    wrong = np.random.default_rng(1).uniform(size=n) < 0.1
    return X, in_precision(np.where(above ^ wrong, 1.0, -1.0))


def weights(n: int) -> np.ndarray:
    """From a half to three halves, and a few of zero."""
    w = np.random.default_rng(2).uniform(0.5, 1.5, size=n)
    w[:: max(1, n // 7)] = 0
    return in_precision(w)


def numbers(*values: float) -> np.ndarray:
    return in_precision(np.array(values))
