"""Matrices whose entries depend on `i - j` alone, as those of a stationary kernel at equally spaced
points do.

A predictor a of order p, `a_0 = 1`, found by the recursion of Levinson and Durbin (Golub & Van Loan
2013, section 4.7), gives the inverse by the formula of Gohberg and Semencul, `T^-1 = (L(a) L(a)^T -
L(b) L(b)^T) / v` with lower triangular Toeplitz matrices L and `b = (0, a_m-1, ..., a_1)`, and
products with it by Fourier transforms. The recursion ends where a predictor of lower order than m -
1 is the one of all higher orders.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.numerics import dot, eps_of
from kernax.core.sharding import while_loop
from kernax.core.solution import RESULTS
from kernax.core.whole import AbstractWhole, AbstractWholeFactor


def fast_length(least: int) -> int:
    """The smallest `2^i 3^j 5^k` that is at least so much: transforms of that length are fast."""
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
    """`sum_j a_j V_i-j`, the product with L(a)."""
    return _by_transforms(a, V, adjoint=False)


def correlated(a: Float[Array, " p"], V: Float[Array, "m k"]) -> Float[Array, "m k"]:
    """`sum_j a_j V_i+j`, the product with L(a)^T."""
    return _by_transforms(a, V, adjoint=True)


def correlated_with(a: Float[Array, " p"], V: Float[Array, "p k"]) -> Float[Array, "p k"]:
    """`sum_j a_i+j V_j`."""
    return convolved(a[::-1], V)[::-1]


def _by_transforms(a: Float[Array, " p"], V: Float[Array, "m k"], adjoint: bool) -> Array:
    length = fast_length(len(a) + len(V) - 1)
    of_a = jnp.fft.rfft(a, length)
    of_a = jnp.conj(of_a) if adjoint else of_a
    product = of_a[None, :] * jnp.fft.rfft(V.T, length)
    return jnp.fft.irfft(product, length)[:, : len(V)].T


class ToeplitzMatrix(AbstractWhole):
    """`K_ij = t_|i-j|`.

    Attributes:
        column: t, the first one.
        order: the most terms of a predictor.
    """

    column: Float[Array, " m"]
    order: int = eqx.field(static=True)

    def mv(self, V):
        # As a part of a circulant matrix, whose eigenvalues are the transform of its column.
        m = len(self.column)
        length = fast_length(2 * m - 1)
        between = jnp.zeros(length - 2 * m + 1, self.column.dtype)
        around = jnp.concatenate([self.column, between, self.column[:0:-1]])
        product = jnp.fft.rfft(around)[None, :] * jnp.fft.rfft(V.T, length)
        return jnp.fft.irfft(product, length)[:, :m].T

    def squared(self):
        return ToeplitzMatrix(self.column**2, self.order)

    def factorised(self, noise):
        column = self.column.at[0].add(noise)
        end = _predictor(column, min(self.order, len(column) - 1))
        finite = jnp.all(jnp.isfinite(column)) & jnp.isfinite(end.variance)
        return ToeplitzFactor(
            column=column,
            predictor=end.predictor,
            reflections=end.reflections,
            variances=jnp.where(jnp.isnan(end.variances), end.variance, end.variances),
            order=end.order,
            remainder=end.remainder,
            positive=finite & (end.variance > eps_of(column) * column[0]),
        )


class _Recursion(eqx.Module):
    """The recursion after some orders.

    Attributes:
        predictor: a, zero beyond its order, (p + 1,).
        reflections: of each order from one on, (p,).
        variances: of the error of each predictor, from order zero on, (p + 1,); NaN beyond.
        order: of the predictor.
        variance: of its error.
        remainder: see `_remainder`.
    """

    predictor: Float[Array, " p1"]
    reflections: Float[Array, " p"]
    variances: Float[Array, " p1"]
    order: Int[Array, ""]
    variance: Float[Array, ""]
    remainder: Float[Array, ""]


_FIRST = 32  # orders before the first look at what is left


def _predictor(column: Float[Array, " m"], most: int) -> _Recursion:
    """That of the lowest order 32, 64, ... that is as good as one of order m - 1, or of `most`."""
    dtype = column.dtype
    start = _Recursion(
        predictor=jnp.zeros(most + 1, dtype).at[0].set(1),
        reflections=jnp.zeros(most, dtype),
        variances=jnp.full(most + 1, jnp.nan, dtype).at[0].set(column[0]),
        order=jnp.asarray(0),
        variance=column[0],
        remainder=jnp.asarray(jnp.inf, dtype),
    )

    def goes_on(now: _Recursion) -> Array:
        possible = (now.order < most) & (now.variance > eps_of(dtype) * column[0])
        return possible & (now.remainder > eps_of(dtype))

    def twice(now: _Recursion) -> _Recursion:
        last = jnp.minimum(jnp.maximum(_FIRST, 2 * now.order), most)
        now = while_loop(lambda now: now.order < last, step, now)
        return eqx.tree_at(lambda now: now.remainder, now, _remainder(column, now))

    backwards = jnp.concatenate([column[: most + 1][::-1], jnp.zeros(most, dtype)])

    def step(now: _Recursion) -> _Recursion:
        return _next_order(now, backwards)

    if most == 0:
        return eqx.tree_at(lambda now: now.remainder, start, jnp.zeros((), dtype))
    return while_loop(goes_on, twice, start)


def _next_order(now: _Recursion, backwards: Float[Array, " b"]) -> _Recursion:
    """`backwards` is the column from lag p to lag zero, before p zeros."""
    a = now.predictor
    size = len(a)
    k = now.order + 1
    lags = lax.dynamic_slice(backwards, (size - 1 - k,), (size,))
    reflection = -dot(a, lags) / now.variance
    turned = lax.dynamic_slice(
        jnp.concatenate([a[::-1], jnp.zeros_like(a)]), (size - 1 - k,), (size,)
    )
    variance = now.variance * (1 - reflection**2)
    return _Recursion(
        predictor=a + reflection * turned,
        reflections=now.reflections.at[k - 1].set(reflection),
        variances=now.variances.at[k].set(variance),
        order=k,
        variance=variance,
        remainder=now.remainder,
    )


def _remainder(column: Float[Array, " m"], now: _Recursion) -> Float[Array, ""]:
    """How far the matrix is from the one of which the predictor is that of all higher orders,
    relatively: a bound of the eigenvalues of `A^-1/2 (T - A) A^-1/2`.

    A has the lags of T up to order p, and beyond it those that the predictor continues, by which
    `r_k = sum_j a_j t_k-j` would vanish. The symbol of T - A is `2 Re(r / a)`, that of A is `v /
    |a|^2`, and so the bound is `2 |a| |r| / v` at the worst frequency. Of the r_k those within
    rounding of their sums count as zero.
    """
    a = now.predictor
    m = len(column)
    length = fast_length(2 * m)
    of_a = jnp.fft.rfft(a, length)
    r = jnp.fft.irfft(of_a * jnp.fft.rfft(column, length), length)[:m]
    slight = 8 * eps_of(column) * jnp.linalg.norm(a) * jnp.linalg.norm(column)
    beyond = jnp.arange(m) > now.order
    r = jnp.where(beyond & (jnp.abs(r) > slight), r, 0)
    return 2 * jnp.max(jnp.abs(of_a) * jnp.abs(jnp.fft.rfft(r, length))) / now.variance


_MOST_NATS = 0.01


class ToeplitzFactor(AbstractWholeFactor):
    """The inverse of T by a predictor.

    Attributes:
        column: the first one of T.
        predictor: a, (p + 1,).
        reflections: of each order from one on, (p,).
        variances: v of each order from zero on, (p + 1,).
        order: of the predictor.
        remainder: how far T may be from the matrix that is inverted, relatively.
    """

    column: Float[Array, " m"]
    predictor: Float[Array, " p1"]
    reflections: Float[Array, " p"]
    variances: Float[Array, " p1"]
    order: Int[Array, ""]
    remainder: Float[Array, ""]
    positive: Bool[Array, ""]

    @property
    def exists(self):
        return self.positive & (self._left_out() <= _MOST_NATS)

    def _left_out(self) -> Array:
        """What the remainder may do to the log density of likely data, in nats."""
        return len(self.column) * self.remainder / 2

    @property
    def is_direct(self):
        return False

    @property
    def word_for_none(self):
        return RESULTS.where(self.positive, RESULTS.max_steps_reached, RESULTS.not_psd)

    def figures(self) -> dict[str, Any]:
        return {"order": self.order}

    @property
    def _variance(self) -> Float[Array, ""]:
        """v, NaN where there is no factor."""
        return jnp.where(self.exists, self.variances[-1], jnp.nan)

    @property
    def _matrix(self) -> ToeplitzMatrix:
        return ToeplitzMatrix(self.column, len(self.reflections))

    def solve(self, B):
        first = self._solved(B)
        # Transforms leave an error of eps of the largest number everywhere.
        return first + self._solved(B - self._matrix.mv(first))

    def _solved(self, B: Float[Array, "m k"]) -> Float[Array, "m k"]:
        """By the formula of Gohberg and Semencul, of which b sees only the last p rows."""
        a = self.predictor
        p = len(a) - 1
        found = convolved(a, correlated(a, B))
        if p:
            inner = correlated_with(a[1:], B[::-1][:p])
            found = found.at[-p:].add(-convolved(a[:0:-1], inner))
        return found / self._variance

    def whitened(self, B):
        return self._errors(B) / jnp.sqrt(self._of_rows(self.variances))[:, None]

    def _of_rows(self, variances: Float[Array, " p1"]) -> Float[Array, " m"]:
        """The variance of the prediction error of each row."""
        known = jnp.where(self.exists, variances, jnp.nan)
        rest = len(self.column) - len(known)
        return jnp.concatenate([known, jnp.broadcast_to(known[-1], (rest,))])

    def _errors(self, B: Float[Array, "m k"]) -> Float[Array, "m k"]:
        """What is left of each row when those before it have predicted it: of the first p rows by
        the lattice of reflections, one order after the other.
        """
        p = len(self.reflections)
        first = B[: p + 1]
        rows = jnp.arange(p + 1)

        def step(now):
            k, forward, backward = now
            reflection = self.reflections[k]
            before = jnp.roll(backward, 1, 0)
            later = (rows > k)[:, None]
            return (
                k + 1,
                jnp.where(later, forward + reflection * before, forward),
                before + reflection * forward,
            )

        start = jnp.zeros_like(self.order), first, first
        _, found, _ = while_loop(lambda now: now[0] < self.order, step, start)
        filtered = convolved(self.predictor, B)
        return filtered.at[: p + 1].set(found)

    def log_determinant(self):
        return jnp.sum(jnp.log(self._of_rows(self.variances)))

    def inverse_diagonal(self):
        m = len(self.column)
        squares = self.predictor**2
        nothing = jnp.zeros(m, squares.dtype)
        steps = nothing.at[: len(squares)].set(squares)
        steps = steps.at[m - len(squares) + 1 :].add(-squares[:0:-1])
        return jnp.cumsum(steps) / self._variance

    def _sums_over_diagonals(self) -> Float[Array, " p1"]:
        """Those of T^-1, from the main one on, of which each other stands on both sides: all beyond
        order p are zero.
        """
        a = self.predictor
        size = len(a)
        lags = jnp.arange(size, dtype=a.dtype)
        length = fast_length(2 * size)
        of_a = jnp.fft.rfft(a, length)
        plain = jnp.fft.irfft(jnp.conj(of_a) * of_a, length)[:size]
        # sum_r r a_r a_r+k
        moments = jnp.fft.irfft(jnp.conj(jnp.fft.rfft(lags * a, length)) * of_a, length)[:size]
        sums = ((len(self.column) - lags) * plain - 2 * moments) / self._variance
        return sums * jnp.where(lags > 0, 2, 1).astype(a.dtype)

    def trace_with(self, matrix: ToeplitzMatrix):
        sums = self._sums_over_diagonals()
        return dot(sums, matrix.column[: len(sums)])

    def half(self, rows):
        (row,) = rows
        return self.whitened(row[:, None])[:, 0], row

    def between(self, left, right):
        return dot(left[0], right[0])

    def solved(self, half):
        return self.solve(half[1][:, None])[:, 0]

    def rounding(self):
        # An error of eps in a lag is the same along its diagonal.
        sums = self._sums_over_diagonals()
        slopes = sums * self.column[: len(sums)]
        return 2 * eps_of(sums) * jnp.linalg.norm(slopes) + self._left_out()
