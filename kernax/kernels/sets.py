"""Kernels on sets: indicator vectors x in {0, 1}^n, soft ones with weights in [0, 1], or counts.

A point is a vector with one entry for each of n items (of a set) or n variables (of a truth
assignment); n is the same for all points. Indicators may be booleans or integers. A point outside
the domain gives NaN.
"""

from typing import ClassVar

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.numerics import dot, vectors
from kernax.core.base.parameters import nonnegative
from kernax.core.kernel.kernel import AbstractKernel, AbstractWideRange


class AllSubsets(AbstractWideRange):
    """`prod_a (1 + weights_a x_a z_a)`, x >= 0: the number of common subsets of two sets.

    The empty subset counts as well. The 2^n features are the products of `sqrt(weights_a) x_a` over
    the items of each subset (Shawe-Taylor & Cristianini 2004, chapter 9). `weights` >= 0, a scalar
    or one per item, say how much an item counts; zero leaves it out.

    k(x, x) is 2^n for n common items of weight one: beyond 127 of them (float32) or 1023 (float64)
    use `Normalised`, which does not overflow. Powers of two come out exact; in general the relative
    error is about eps times log2 k.

    Examples:
        >>> k = kernax.kernels.AllSubsets()
        >>> a, b = jnp.array([1.0, 1.0, 0.0]), jnp.array([1.0, 1.0, 1.0])
        >>> float(k(a, b))  # {}, {0}, {1} and {0, 1}
        4.0
    """

    weights: Float[ParameterArray, "*n"] = nonnegative(default=1.0)

    def scaled(self, x, z):
        x, z = vectors(x, z, self.weights)
        return _product(self.weights * (_within(x) * _within(z)))


class Monomials(AbstractWideRange):
    """`prod_a (1 + weights_a (x_a z_a + (1 - x_a) (1 - z_a)))`, 0 <= x <= 1.

    With weights of one it is `2^same(x, z)` for Boolean points, where same is the number of
    variables on which they agree. It is the inner product of the 3^n monomials (conjunctions of
    literals), in which every variable occurs as it is, negated, or not at all (Khardon, Roth &
    Servedio 2005). `weights` >= 0, a scalar or one per variable, say how much a variable counts;
    zero leaves it out.

    k(x, x) is 2^n: beyond 127 variables (float32) or 1023 (float64) use `Normalised`, which does
    not overflow. Powers of two come out exact; in general the relative error is about eps times
    log2 k.

    Examples:
        >>> k = kernax.kernels.Monomials()
        >>> float(k(jnp.array([1.0, 0.0, 1.0]), jnp.array([1.0, 0.0, 0.0])))  # two agree: 2^2
        4.0
    """

    weights: Float[ParameterArray, "*n"] = nonnegative(default=1.0)

    def scaled(self, x, z):
        x, z = vectors(x, z, self.weights)
        x = _within(x, 1.0)
        z = _within(z, 1.0)
        return _product(self.weights * (x * z + (1 - x) * (1 - z)))


class Intersection(AbstractKernel):
    """`sum_a min(x_a, z_a)`, x >= 0: the number of items two sets or bags have in common.

    See Swain & Ballard 1991. It is not differentiable where an entry of x equals that of z; half of
    the slope is returned there.

    Examples:
        >>> k = kernax.kernels.Intersection()
        >>> float(k(jnp.array([3.0, 0.0, 1.0]), jnp.array([2.0, 5.0, 1.0])))  # 2 + 0 + 1
        3.0
    """

    rough: ClassVar[bool] = True

    def __call__(self, x, z):
        x, z = vectors(x, z)
        return jnp.sum(jnp.minimum(_within(x), _within(z)))


class Jaccard(AbstractKernel):
    """`sum_a min(x_a, z_a) / sum_a max(x_a, z_a)`, x >= 0, and 0 for two empty sets.

    On sets it is `|x and z| / |x or z|`. On counts and weights it is the min-max or Ruzicka
    similarity, which is a kernel as well (Ralaivola et al. 2005). k(x, x) is 1, unless x is empty.
    It is not differentiable where an entry of x equals that of z, where the mean of the one-sided
    slopes is returned, nor at two empty sets, where the gradient returned is zero.

    Examples:
        >>> k = kernax.kernels.Jaccard()
        >>> float(k(jnp.array([1.0, 1.0, 0.0]), jnp.array([1.0, 0.0, 0.0])))  # one item of two
        0.5
    """

    rough: ClassVar[bool] = True
    normalises: ClassVar[bool] = True

    def __call__(self, x, z):
        x, z = vectors(x, z)
        x = _within(x)
        z = _within(z)
        return _ratio(jnp.sum(jnp.minimum(x, z)), jnp.sum(jnp.maximum(x, z)))


class Tanimoto(AbstractKernel):
    """`x.z / (x.x + z.z - x.z)`, and 0 for two zero vectors.

    On sets it is `|x and z| / |x or z|` (Ralaivola et al. 2005). It is defined on all of R^n as the
    sum of the powers of the kernel `x.z / (x.x + z.z)`, and is negative for x.z < 0. k(x, x) is 1,
    unless x is zero; at two zero vectors the gradient returned is zero.

    Examples:
        >>> k = kernax.kernels.Tanimoto()
        >>> float(k(jnp.array([1.0, 1.0, 0.0]), jnp.array([1.0, 0.0, 0.0])))
        0.5
    """

    normalises: ClassVar[bool] = True

    def __call__(self, x, z):
        x, z = vectors(x, z)
        common = dot(x, z)
        return _ratio(common, dot(x, x) + dot(z, z) - common)


def _within(x: Array, highest: float = float("inf")) -> Array:
    """The entries of a point, NaN where they are outside [0, highest]."""
    return jnp.where((x >= 0) & (x <= highest), x, jnp.nan)


def _product(matches: Array) -> tuple[Array, Array]:
    """`prod_a (1 + matches_a)` for matches >= 0, as mantissa, from 1 to 2, and exponent."""
    # prod_a (1 + m_a) = 2^(t - floor(t)) 2^floor(t), t = sum_a log2(1 + m_a).
    total = jnp.sum(jnp.log2(1 + matches))
    exponent = jnp.floor(lax.stop_gradient(total))
    return jnp.exp2(total - exponent), exponent


def _ratio(a: Array, b: Array) -> Array:
    """`a / b`, 0 with derivative zero where b is zero."""
    return jnp.where(b == 0, 0, a / jnp.where(b == 0, 1, b))
