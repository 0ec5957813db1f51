"""Kernels made of kernels, and kernels made of your own functions.

Sums, products, scales and integer powers are operators on every kernel (`2.0 * RBF() + Linear() ** 2`). What closure theory
further allows is here (Shawe-Taylor & Cristianini 2004, proposition 3.22). Where a function is asked for, a module keeps
its parameters learnable, a plain function is static, and `Custom(function, parameters)` is the way between.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.kernel import AbstractCombinator, AbstractKernel, Invariance, as_module
from kernax.core.numerics import safe_sqrt
from kernax.core.parameters import as_floats, nonnegative


def _strong(parameters: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: as_floats(leaf) if eqx.is_inexact_array_like(leaf) else leaf, parameters)


class Custom(AbstractKernel):
    """`function(parameters, x, z)` as a kernel, or `function(parameters, x)` wherever a function of one point is wanted.

    `function` is static: it must take everything that is learned through `parameters`, any pytree, whose inexact arrays
    count as real parameters. Whether it is positive semidefinite is up to you: `kernax.testing.check_kernel` looks.
    """

    function: Callable = eqx.field(static=True)
    parameters: PyTree = eqx.field(converter=_strong, default=())

    def __call__(self, *points):
        return self.function(self.parameters, *points)


class Warped(AbstractKernel):
    """`k(phi(x), phi(z))` for any function phi of a point: a deep kernel, if phi is a network (Wilson et al. 2016)."""

    kernel: AbstractKernel
    phi: Callable = eqx.field(converter=as_module)

    def __call__(self, x, z):
        return self.kernel(self.phi(x), self.phi(z))


class Modulated(AbstractKernel):
    """`f(x) k(x, z) f(z)` for any real function f of a point."""

    kernel: AbstractKernel
    f: Callable = eqx.field(converter=as_module)

    def __call__(self, x, z):
        return self.f(x) * self.f(z) * self.kernel(x, z)


class ExpOf(AbstractCombinator):
    """`exp(k(x, z))`: the limit of `(1 + k/p)^p`."""

    kernel: AbstractKernel

    def __call__(self, x, z):
        return jnp.exp(self.kernel(x, z))


class PolynomialOf(AbstractCombinator):
    """`sum_j coefficients_j k(x, z)^j`, j = 0, 1, ..., coefficients >= 0."""

    kernel: AbstractKernel
    coefficients: Float[Array, " p"] = nonnegative()

    def __check_init__(self):
        if self.coefficients.ndim != 1 or not len(self.coefficients):
            raise ValueError(f"coefficients must have shape (p,), p >= 1, but have shape {self.coefficients.shape}")

    def __call__(self, x, z):
        return jnp.polyval(self.coefficients[::-1], self.kernel(x, z))


class Normalised(AbstractCombinator):
    """`k(x, z) / sqrt(k(x, x) k(z, z))`, the cosine of the angle between features; 0 where one of them is zero."""

    kernel: AbstractKernel

    def __call__(self, x, z):
        size = safe_sqrt(self.kernel(x, x)) * safe_sqrt(self.kernel(z, z))
        return jnp.where(size > 0, self.kernel(x, z) / jnp.where(size > 0, size, 1), 0)


def _hashable(where: Any) -> Any:
    if not isinstance(where, (list, tuple, range, np.ndarray)):
        return where
    places = np.asarray(where)
    if places.ndim != 1 or places.dtype.kind not in "iu":
        raise ValueError(
            f"On(kernel, where) takes dimensions as integers, but where is {where!r}: use np.flatnonzero for a mask"
        )
    return tuple(places.tolist())


class On(AbstractKernel):
    """`k(x[where], z[where])`: some dimensions of a vector, or one part of a tuple or dict of points.

    `where` is a dimension, a slice or a sequence of dimensions (the kernel still sees a vector), or the index or key of a part.
    Sums over parts are direct sums, products tensor products.
    """

    kernel: AbstractKernel
    where: Any = eqx.field(static=True, converter=_hashable)

    keeps: ClassVar[Invariance] = Invariance.STATIONARY

    def __call__(self, x, z):
        return self.kernel(self._part(x), self._part(z))

    def _part(self, x: PyTree) -> PyTree:
        if not hasattr(x, "shape"):
            return x[self.where]
        if isinstance(self.where, slice):
            return x[self.where]
        places = np.atleast_1d(np.asarray(self.where))
        if x.ndim != 1 or places.dtype.kind != "i" or places.min() < -len(x) or places.max() >= len(x):
            raise ValueError(f"On(kernel, {self.where!r}) picks dimensions of a vector, but a point has shape {x.shape}")
        return x[places]
