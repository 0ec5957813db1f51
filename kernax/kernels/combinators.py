"""Kernels made of kernels, and kernels made of your own functions.

Sums, products, scales and integer powers are operators on every kernel (`2.0 * RBF() + Linear() **
2`). The other operations under which kernels are closed are here (Shawe-Taylor & Cristianini 2004,
proposition 3.22). Where a function is needed, the parameters of a module are learned and a plain
function is static; `Custom(function, parameters)` makes a module of a plain function and its
parameters.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import as_stack
from kernax.core.base.functions import as_module
from kernax.core.base.numerics import safe_sqrt
from kernax.core.base.parameters import as_floats, data, nonnegative, positive
from kernax.core.kernel.kernel import (
    AbstractCombinator,
    AbstractKernel,
    AbstractWideRange,
    ColumnFactor,
    Invariance,
    as_kernel,
)
from kernax.core.kernel.preparation import check_points
from kernax.core.kernel.state_space import AbstractStateSpace, state_space_of
from kernax.core.operators.features import Features, LowRank, explicit_features, low_rank_gram


def _strong(parameters: PyTree) -> PyTree:
    """The same tree with strongly typed arrays in place of Python floats and weakly typed ones."""
    inexact = lambda leaf: (
        eqx.is_array_like(leaf) and jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
    )
    return jax.tree.map(lambda leaf: as_floats(leaf) if inexact(leaf) else leaf, parameters)


class Custom(AbstractKernel):
    """`function(parameters, x, z)` as a kernel, or `function(parameters, x)` as one of a point.

    `function` is static: it must take everything that is learned through `parameters`, any pytree,
    whose arrays of floats count as real parameters. As a kernel it must be positive semidefinite,
    which `kernax.testing.check_kernel` tests.
    """

    function: Callable = eqx.field(static=True)
    parameters: PyTree = eqx.field(converter=_strong, default=())

    def __call__(self, *points):
        return self.function(self.parameters, *points)


class Warped(AbstractKernel):
    """`k(phi(x), phi(z))` for any function phi of a point.

    A deep kernel, if phi is a network (Wilson et al. 2016).
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    phi: Callable = eqx.field(converter=as_module)

    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        return self.kernel(self.phi(x), self.phi(z))


class Modulated(AbstractKernel):
    """`f(x) k(x, z) f(z)` for any real function f of a point."""

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    f: Callable = eqx.field(converter=as_module)

    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        return self.f(x) * self.f(z) * self.kernel(x, z)


class ExpOf(AbstractCombinator):
    """`exp(k(x, z))`: the limit of `(1 + k/p)^p`."""

    kernel: AbstractKernel = eqx.field(converter=as_kernel)

    def __call__(self, x, z):
        return jnp.exp(self.kernel(x, z))


class PolynomialOf(AbstractCombinator):
    """`sum_j coefficients_j k(x, z)^j`, j = 0, 1, ..., coefficients >= 0."""

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    coefficients: Float[Array, " p"] = nonnegative()

    def __check_init__(self):
        if self.coefficients.ndim != 1 or not len(self.coefficients):
            raise ValueError(
                "coefficients must have shape (p,), p >= 1, but have shape "
                f"{self.coefficients.shape}"
            )

    def __call__(self, x, z):
        return jnp.polyval(self.coefficients[::-1], self.kernel(x, z))


class Normalised(AbstractCombinator):
    """`k(x, z) / sqrt(k(x, x) k(z, z))`, the cosine of the angle between features.

    It is 0 where `k(x, x)` or `k(z, z)` is 0: for points without features, such as an empty string
    or set, of which `gram` and learners warn. At such a point a learned f equals its bias, and a
    Gaussian process has variance zero, prior and posterior, although no data inform its value.
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)

    normalises: ClassVar[bool] = True

    def __call__(self, x, z):
        (k, power) = self._scaled(x, z)
        (kx, power_x) = self._scaled(x, x)
        (kz, power_z) = self._scaled(z, z)
        size = safe_sqrt(kx) * safe_sqrt(kz)
        cosine = jnp.where(size == 0, 0, k / jnp.where(size == 0, 1, size))  # and NaN stays NaN
        return cosine * jnp.exp2(power - (power_x + power_z) / 2)

    def _scaled(self, x: PyTree, z: PyTree) -> tuple[Array, Array]:
        """`k(x, z)` as mantissa and exponent of two."""
        if isinstance(self.kernel, AbstractWideRange):
            return self.kernel.scaled(x, z)
        k = self.kernel(x, z)
        return k, jnp.zeros_like(k)


class GaussianOf(AbstractCombinator):
    """`exp(-beta (k(x, x) + k(z, z) - 2 k(x, z)))`, beta > 0: an RBF of the features of k.

    `GaussianOf(Linear(), beta)` is `RBF(1 / sqrt(2 beta))`, but loses digits where points are close
    to each other and far from zero. beta is in units of 1 / k. Rounding never makes the squared
    distance negative.
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    beta: Float[Array, ""] = positive(default=1.0)

    def __call__(self, x, z):
        s = self.kernel(x, x) + self.kernel(z, z) - 2 * self.kernel(x, z)
        # The value is clamped at zero, the derivative is not.
        return jnp.exp(-self.beta * jnp.where(s < 0, s - lax.stop_gradient(s), s))


class Centred(AbstractKernel):
    """`k(x, z) - mean_i k(x, p_i) - mean_i k(p_i, z) + mean_ij k(p_i, p_j)`, p the m `points`.

    The kernel of features minus their mean over the points. `gram(Centred(k, X), X)` is `H K H`,
    `H = I - 1/n` (Schoelkopf, Smola & Mueller 1998). A single value costs m^2 evaluations of k, a
    Gram matrix m^2 altogether and m more for each point.
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    points: PyTree = data(converter=lambda points: as_stack(points, "points"))

    def __call__(self, x, z):
        k = self.kernel
        over = lambda f: jnp.mean(jax.vmap(f)(self.points))
        centre = over(lambda p: over(lambda q: k(p, q)))
        return k(x, z) - over(lambda p: k(x, p)) - over(lambda p: k(p, z)) + centre


def _hashable(where: Any) -> Any:
    """Dimensions as a tuple of integers, anything else as it is, for a static field."""
    if eqx.is_array(where) or isinstance(where, np.generic):
        where = np.asarray(where).tolist()
    if where is None or isinstance(where, (bool, float, dict, eqx.Module)):
        raise ValueError(f"On(kernel, where) picks dimensions or a part, but where is {where!r}")
    if not isinstance(where, (list, tuple, range)):
        return where
    places = np.asarray(where)
    if places.ndim != 1 or places.dtype.kind not in "iu":
        raise ValueError(
            f"On(kernel, where) takes dimensions as integers, but where is {where!r}: use "
            "np.flatnonzero for a mask"
        )
    return tuple(places.tolist())


class On(AbstractKernel):
    """`k(x[where], z[where])`: some dimensions of a vector, or one part of a tuple or dict.

    `where` is a dimension, a slice or a sequence of dimensions (k still takes a vector), or the
    index or key of a part. A sum of kernels of different parts is their direct sum, a product their
    tensor product.
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    where: Any = eqx.field(static=True, converter=_hashable)

    keeps: ClassVar[Invariance] = Invariance.STATIONARY
    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        part = self.part(x)
        return self.kernel(part, part if z is x else self.part(z))

    def part(self, x: PyTree) -> PyTree:
        """`x[where]`."""
        return self._dimensions(x) if hasattr(x, "shape") else self._one_of(x)

    def _dimensions(self, x: Array | np.ndarray) -> Any:
        """Some dimensions of a vector. Raises ValueError unless it has them."""
        if isinstance(self.where, slice):
            places = self.where
            fits = x.ndim > 0 and len(range(len(x))[places]) > 0
        else:
            places = np.atleast_1d(np.asarray(self.where))
            fits = x.ndim == 1 and places.dtype.kind == "i" and _are_places(places, len(x))
        if not fits:
            raise ValueError(
                f"On(kernel, {self.where!r}) picks dimensions of a vector, but a point has shape "
                f"{x.shape}"
            )
        return x[places]

    def _one_of(self, x: PyTree) -> PyTree:
        """One part of a tuple or dict. Raises ValueError unless x is one that has it."""
        if not isinstance(x, (tuple, list, dict)):
            raise ValueError(
                f"On(kernel, {self.where!r}) picks a part of a tuple or dict, but a point is a "
                f"{type(x).__name__}"
            )
        known = list(x) if isinstance(x, dict) else list(range(-len(x), len(x)))
        if self.where not in known:
            raise ValueError(
                f"On(kernel, {self.where!r}) picks one part of a point, but the parts of this one "
                f"are {known}"
            )
        return x[self.where]

    @property
    def summands(self):
        terms = self.kernel.summands
        return None if terms is None else tuple(On(term, self.where) for term in terms)

    def sufficient_columns(self, dim):
        places = self.part(np.arange(dim)).tolist() if dim else []
        inner = self.kernel.sufficient_columns(len(places))
        return frozenset(places[place] for place in inner)

    def factors_over_columns(self, dim):
        places = self.part(np.arange(dim)).tolist()
        if len(set(places)) < len(places):
            # A column that is picked twice moves several of the factors inside at once.
            return (ColumnFactor(frozenset(places), self),)
        return tuple(
            ColumnFactor(
                frozenset(places[place] for place in factor.columns), On(factor.kernel, self.where)
            )
            for factor in self.kernel.factors_over_columns(len(places))
        )


def _are_places(places: np.ndarray, n: int) -> bool:
    """Whether integers are indices into n entries, from either end."""
    return bool(-n <= places.min() and places.max() < n)


@explicit_features.register
def _(kernel: On) -> Features | None:
    inner = explicit_features(kernel.kernel)
    return None if inner is None else lambda x: inner(kernel.part(x))


@low_rank_gram.register
def _(kernel: On) -> LowRank | None:
    inner = low_rank_gram(kernel.kernel)
    return None if inner is None else lambda X: inner(jax.vmap(kernel.part)(X))


@state_space_of.register
def _(kernel: On, harmonics: int) -> AbstractStateSpace | None:
    return state_space_of(kernel.kernel, harmonics)


@check_points.register
def _(kernel: On, X: PyTree) -> None:
    in_parts = isinstance(X, dict) and kernel.where in list(X)  # in Python 3.11 slices have no hash
    if isinstance(X, (tuple, list)) and isinstance(kernel.where, int):
        in_parts = -len(X) <= kernel.where < len(X)
    if in_parts:
        check_points(kernel.kernel, X[kernel.where])
