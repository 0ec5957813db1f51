"""Linear prediction of a stationary sequence, by the recursion of Levinson and Durbin (Golub & Van
Loan 2013, section 4.7), in O(p^2) for p terms, and convolutions by Fourier transforms.

The recursion ends early if the predictors of all higher orders are the same up to rounding.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from kernax.core.base.numerics import dot, eps_of


def fast_length(least: int) -> int:
    """The smallest `2^i 3^j 5^k`, j <= 3 and k <= 2, that is at least `least`; transforms of this
    length are fast.
    """
    found = 1
    while found < least:
        found *= 2
    odd = (3**j * 5**k for j in range(4) for k in range(3))
    for factor in odd:
        power = factor
        while power < least:
            power *= 2
        found = min(found, power)
    return found


def convolved(a: Float[Array, " p"], V: Float[Array, "m k"]) -> Float[Array, "m k"]:
    """`sum_j a_j V_i-j`, the product of L(a) and V."""
    return _by_transforms(a, V, adjoint=False)


def correlated(a: Float[Array, " p"], V: Float[Array, "m k"]) -> Float[Array, "m k"]:
    """`sum_j a_j V_i+j`, the product of L(a)^T and V."""
    return _by_transforms(a, V, adjoint=True)


def correlated_with(a: Float[Array, " p"], V: Float[Array, "p k"]) -> Float[Array, "p k"]:
    """`sum_j a_i+j V_j`."""
    # This is entry p - 1 - i of a convolution with reversed a.
    return convolved(a[::-1], V)[::-1]


def _by_transforms(a: Float[Array, " p"], V: Float[Array, "m k"], adjoint: bool) -> Array:
    # Long enough that nothing wraps around; the conjugate transform is that of reversed a.
    length = fast_length(len(a) + len(V) - 1)
    of_a = jnp.fft.rfft(a, length)
    of_a = jnp.conj(of_a) if adjoint else of_a
    product = of_a[None, :] * jnp.fft.rfft(V.T, length)
    return jnp.fft.irfft(product, length)[:, : len(V)].T


class Recursion(eqx.Module):
    """The recursion up to some order.

    Attributes:
        predictor: a, zero beyond its order, (p + 1,).
        reflections: the reflection coefficients of each order from one on, (p,).
        variances: the error variances of the predictors, from order zero on, (p + 1,); NaN beyond.
        order: the order of the predictor.
        variance: the variance of its error.
        remainder: see `remainder_of`.
    """

    predictor: Float[Array, " p1"]
    reflections: Float[Array, " p"]
    variances: Float[Array, " p1"]
    order: Int[Array, ""]
    variance: Float[Array, ""]
    remainder: Float[Array, ""]

    @staticmethod
    def of_order_zero(column: Float[Array, " m"], most: int) -> "Recursion":
        dtype = column.dtype
        return Recursion(
            predictor=jnp.zeros(most + 1, dtype).at[0].set(1),
            reflections=jnp.zeros(most, dtype),
            variances=jnp.full(most + 1, jnp.nan, dtype).at[0].set(column[0]),
            order=jnp.zeros((), int),
            variance=column[0],
            remainder=jnp.asarray(jnp.inf, dtype),
        )


_FIRST = 32  # orders before the first check of the remainder


def predictor(column: Float[Array, " m"], most: int) -> Recursion:
    """The recursion up to the first of the orders 32, 64, ... with a predictor as good as that of
    order m - 1, and at most to order `most`. It stops earlier at the first order with a variance
    within rounding of zero.
    """
    eps = eps_of(column)
    backwards = jnp.concatenate([column[: most + 1][::-1], jnp.zeros(most, column.dtype)])

    def step(now: Recursion) -> Recursion:
        # The next order k.
        a = now.predictor
        size = len(a)
        k = now.order + 1
        lags = lax.dynamic_slice(backwards, (size - 1 - k,), (size,))
        # reflection = -sum_j a_j t_k-j / v, then a_j + reflection a_k-j and v (1 - reflection^2).
        reflection = -dot(a, lags) / now.variance
        turned = lax.dynamic_slice(
            jnp.concatenate([a[::-1], jnp.zeros_like(a)]), (size - 1 - k,), (size,)
        )
        variance = now.variance * (1 - reflection**2)
        return Recursion(
            predictor=a + reflection * turned,
            reflections=now.reflections.at[k - 1].set(reflection),
            variances=now.variances.at[k].set(variance),
            order=k,
            variance=variance,
            remainder=now.remainder,
        )

    def is_regular(now: Recursion) -> Array:
        # A variance within rounding of zero must not be a divisor: later reflections and variances
        # could have any size.
        return now.variance > eps * column[0]

    def goes_on(now: Recursion) -> Array:
        return (now.order < most) & is_regular(now) & (now.remainder > eps)

    def twice(now: Recursion) -> Recursion:
        last = jnp.minimum(jnp.maximum(_FIRST, 2 * now.order), most)
        now = lax.while_loop(lambda now: (now.order < last) & is_regular(now), step, now)
        return eqx.tree_at(lambda now: now.remainder, now, remainder_of(column, now))

    return lax.while_loop(goes_on, twice, Recursion.of_order_zero(column, most))


def remainder_of(column: Float[Array, " m"], now: Recursion) -> Float[Array, ""]:
    """The relative distance of the matrix T from the matrix A for which the predictor holds at all
    higher orders: a bound of the eigenvalues of `A^-1/2 (T - A) A^-1/2`.

    A has the lags of T up to order p, and beyond p the lags that the predictor extrapolates, for
    which `r_k = sum_j a_j t_k-j` vanishes. The symbol of T - A is `2 Re(r / a)`, that of A is `v /
    |a|^2`, and therefore the bound is `2 |a| |r| / v` at the worst frequency. r_k within rounding
    of zero count as zero.
    """
    a = now.predictor
    m = len(column)
    length = fast_length(2 * m)
    of_a = jnp.fft.rfft(a, length)
    # r_k = sum_j a_j t_k-j holds beyond the order, where all lags k - j are positive.
    r = jnp.fft.irfft(of_a * jnp.fft.rfft(column, length), length)[:m]
    slight = 8 * eps_of(column) * jnp.linalg.norm(a) * jnp.linalg.norm(column)
    beyond = jnp.arange(m) > now.order
    r = jnp.where(beyond & (jnp.abs(r) > slight), r, 0)
    return 2 * jnp.max(jnp.abs(of_a) * jnp.abs(jnp.fft.rfft(r, length))) / now.variance
