"""How fast this device computes what fits consist of, measured by short runs."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from kernax.core.base.numerics import matmul
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import prepare
from kernax.core.operators.tiles import product_by_tiles

_SIDE = 1024  # of the matrices that are multiplied and factorised
_POINTS = 2048
_STEPS = 4096


class Rates(NamedTuple):
    """Operations a second.

    Attributes:
        products: multiplications and additions in products of matrices.
        factors: the same in Cholesky's factor.
        pairs: entries of K in a product with one vector, none of which is kept.
        steps: points along a line, of which each updates a covariance of the states; zero for a
            kernel that has none.
    """

    products: float
    factors: float
    pairs: float
    steps: float = 0.0


def measured_rates(kernel: AbstractKernel, d: int, dtype: Any, states: int = 0) -> Rates:
    """The rates of this device for a kernel of points (d,), with so many states along a line.

    Takes a second at most, most of it compilation, and less for a kernel of the same class.
    """
    products, factors = _of_matrices(jnp.dtype(dtype).name)
    steps = _of_steps(jnp.dtype(dtype).name, states) if states else 0.0
    return Rates(products, factors, _of_pairs(kernel, d, dtype), steps)


@functools.cache
def _of_matrices(dtype: str) -> tuple[float, float]:
    """Of products of two matrices, and of Cholesky's factor."""
    square = jnp.eye(_SIDE, dtype=dtype)
    product = jax.jit(lambda a: matmul(a, a))
    factor = jax.jit(jnp.linalg.cholesky)
    return 2 * _SIDE**3 / _seconds(product, square), _SIDE**3 / 3 / _seconds(factor, square)


def _of_pairs(kernel: AbstractKernel, d: int, dtype: Any) -> float:
    """Of products with K, for which points are drawn at random."""
    points = np.random.default_rng(0).normal(size=(_POINTS, d)).astype(dtype)
    kernel, X = prepare(kernel, points)
    vector = jnp.ones((_POINTS, 1), dtype)
    return _POINTS**2 / _seconds(_product, kernel, X, vector)


@jax.jit
def _product(kernel: AbstractKernel, X: Array, vector: Array) -> Array:
    return product_by_tiles(kernel, X, vector, _POINTS**2)


@functools.cache
def _of_steps(dtype: str, states: int) -> float:
    """Of updates `A P A^T - k k^T` of a covariance, one after the other."""
    A = 0.9 * jnp.tile(jnp.eye(states, dtype=dtype), (_STEPS, 1, 1))
    P = jnp.eye(states, dtype=dtype)

    @jax.jit
    def run(A: Array, P: Array) -> tuple[Array, Array]:
        def step(P: Array, A: Array) -> tuple[Array, tuple[Array, Array]]:
            P = matmul(matmul(A, P), A.T)
            gain = P[0] / (1 + P[0, 0])
            return P - gain[:, None] * P[0][None, :], (gain, P)

        return lax.scan(step, P, A)[1]

    return _STEPS / _seconds(run, A, P)


def _seconds(call: Callable, *args: Any) -> float:
    """The shortest of three times; the first run, which compiles, is left out."""
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        jax.block_until_ready(call(*args))
        times.append(time.perf_counter() - begin)
    return min(times[1:])
