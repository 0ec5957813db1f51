"""Kernels made of kernels, and kernels made of your own functions.

Sums, products, scales and integer powers are operators on every kernel (`2.0 * RBF() + Linear() **
2`). The other operations under which kernels are closed are here (Shawe-Taylor & Cristianini 2004,
proposition 3.22). Where a function is needed, the parameters of a module are learned and a plain
function is static; `Custom(function, parameters)` makes a module of a plain function and its
parameters.
"""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Key, PyTree

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.boundary import as_stack
from kernax.core.base.functions import function_field
from kernax.core.base.numerics import safe_sqrt
from kernax.core.base.parameters import data, nonnegative, positive
from kernax.core.functionals.draws import AbstractDraw, DrawRequest, mapped_draw, prior_draw
from kernax.core.kernel.kernel import (
    AbstractCombinator,
    AbstractKernel,
    AbstractWideRange,
    as_kernel,
)


class Warped(AbstractKernel):
    """`k(phi(x), phi(z))` for any function phi of a point.

    It is a deep kernel if phi is a network (Wilson et al. 2016).

    Examples:
        >>> k = kernax.Warped(kernax.RBF(1.0), phi=jnp.log)
        >>> round(float(k(jnp.array([1.0]), jnp.array([jnp.e]))), 3)  # exp(-1/2)
        0.607
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    phi: Callable = function_field()

    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        return self.kernel(self.phi(x), self.phi(z))


@prior_draw.register
def _(kernel: Warped, request: DrawRequest, key: Key[Array, ""]) -> AbstractDraw:
    return mapped_draw(kernel.kernel, kernel.phi, request, key)


class Modulated(AbstractKernel):
    """`f(x) k(x, z) f(z)` for any real function f of a point.

    Examples:
        >>> k = kernax.kernels.Modulated(kernax.RBF(1.0), f=lambda x: x[0])  # variance x^2
        >>> float(k(jnp.array([3.0]), jnp.array([3.0])))
        9.0
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    f: Callable = function_field()

    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        return self.f(x) * self.f(z) * self.kernel(x, z)


class ModulatedDraw(AbstractDraw):
    """`g(x) f(x)`, of `Modulated(k, g)`."""

    kernel: Modulated = data()
    draw: AbstractDraw = data()

    def __call__(self, x):
        return self.kernel.f(x) * self.draw(x)

    def select(self, index):
        return ModulatedDraw(self.kernel, self.draw.select(index))


@prior_draw.register
def _(kernel: Modulated, request: DrawRequest, key: Key[Array, ""]) -> AbstractDraw:
    return ModulatedDraw(kernel, prior_draw(kernel.kernel, request, key))


class ExpOf(AbstractCombinator):
    """`exp(k(x, z))`: the limit of `(1 + k/p)^p`.

    Examples:
        >>> k = kernax.kernels.ExpOf(kernax.Linear())
        >>> round(float(k(jnp.array([1.0]), jnp.array([2.0]))), 3)  # exp(2)
        7.389
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)

    def __call__(self, x, z):
        return jnp.exp(self.kernel(x, z))


class PolynomialOf(AbstractCombinator):
    """`sum_j coefficients_j k(x, z)^j`, j = 0, 1, ..., coefficients >= 0.

    Examples:
        >>> k = kernax.kernels.PolynomialOf(kernax.Linear(), coefficients=[1.0, 0.0, 3.0])
        >>> float(k(jnp.array([1.0]), jnp.array([2.0])))  # 1 + 3 * 2^2
        13.0
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    coefficients: Float[ParameterArray, " p"] = nonnegative()

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
    or set; `gram` and learners warn of them. At such a point a learned f equals its bias, and a
    Gaussian process has prior and posterior variance zero, although no data inform its value.

    Examples:
        >>> k = kernax.Normalised(kernax.Linear())
        >>> round(float(k(jnp.array([1.0, 0.0]), jnp.array([3.0, 3.0]))), 3)  # cos 45 degrees
        0.707
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)

    normalises: ClassVar[bool] = True

    def __call__(self, x, z):
        # k = m 2^e, for each of the three values: m / sqrt(m_x m_z) 2^(e - (e_x + e_z) / 2).
        (k, power) = self._scaled(x, z)
        (kx, power_x) = self._scaled(x, x)
        (kz, power_z) = self._scaled(z, z)
        size = safe_sqrt(kx) * safe_sqrt(kz)
        cosine = jnp.where(size == 0, 0, k / jnp.where(size == 0, 1, size))  # NaN stays NaN
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

    Examples:
        >>> X = kernax.strings.encode(["banana", "ananas", "cherry"])
        >>> k = kernax.kernels.GaussianOf(kernax.Spectrum(2), beta=0.1)
        >>> jnp.round(kernax.gram(k, X), 2)
        Array([[1.  , 0.82, 0.25],
               [0.82, 1.  , 0.25],
               [0.25, 0.25, 1.  ]], dtype=float64)
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    beta: Float[ParameterArray, ""] = positive(default=1.0)

    def __call__(self, x, z):
        # s = |phi(x) - phi(z)|^2 of the features phi of k.
        s = self.kernel(x, x) + self.kernel(z, z) - 2 * self.kernel(x, z)
        # The value is clamped at zero, the derivative is not.
        return jnp.exp(-self.beta * jnp.where(s < 0, s - lax.stop_gradient(s), s))


class Centred(AbstractKernel):
    """`k(x, z) - mean_i k(x, p_i) - mean_i k(p_i, z) + mean_ij k(p_i, p_j)`, p the m `points`.

    It is the kernel of the features minus their mean over the points. `gram(Centred(k, X), X)` is
    `H K H`, `H = I - 1/n` (Schoelkopf, Smola & Mueller 1998). A single value costs m^2 evaluations
    of k, a Gram matrix m^2 altogether and m more for each point.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> K = kernax.gram(kernax.kernels.Centred(kernax.RBF(0.3), X), X)
        >>> bool(jnp.allclose(K.sum(axis=0), 0.0, atol=1e-10))
        True
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    points: PyTree = data(converter=lambda points: as_stack(points, "points"))

    def __call__(self, x, z):
        k = self.kernel
        over = lambda f: jnp.mean(jax.vmap(f)(self.points))
        # (phi(x) - mean_i phi(p_i)).(phi(z) - mean_i phi(p_i))
        centre = over(lambda p: over(lambda q: k(p, q)))
        return k(x, z) - over(lambda p: k(x, p)) - over(lambda p: k(p, z)) + centre
