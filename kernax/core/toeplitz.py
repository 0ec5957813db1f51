"""Matrices whose entries depend on `i - j` alone, as those of a stationary kernel at equally spaced
points do.

A predictor a of order p, `a_0 = 1`, see `levinson`, gives the inverse by the formula of Gohberg and
Semencul, `T^-1 = (L(a) L(a)^T - L(b) L(b)^T) / v` with lower triangular Toeplitz matrices L and `b
= (0, a_m-1, ..., a_1)`, and products with it by Fourier transforms.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.levinson import convolved, correlated, correlated_with, fast_length, predictor
from kernax.core.numerics import dot, eps_of
from kernax.core.sharding import scan, while_loop
from kernax.core.solution import RESULTS
from kernax.core.whole import (
    AbstractWhole,
    AbstractWholeFactor,
    blocks_of_columns,
    placed,
)


def _circulant(column: Float[Array, " m"], length: int) -> Float[Array, " length"]:
    """The column of a circulant matrix whose first m rows and columns are the Toeplitz matrix."""
    between = jnp.zeros(length - 2 * len(column) + 1, column.dtype)
    return jnp.concatenate([column, between, column[:0:-1]])


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
        around = _circulant(self.column, fast_length(2 * m - 1))
        length = len(around)
        product = jnp.fft.rfft(around)[None, :] * jnp.fft.rfft(V.T, length)
        return jnp.fft.irfft(product, length)[:, :m].T

    def squared(self):
        return ToeplitzMatrix(self.column**2, self.order)

    def factorised(self, noise):
        column = self.column.at[0].add(noise)
        end = predictor(column, min(self.order, len(column) - 1))
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

    def inverse_at(self, cells):
        p = len(self.reflections)

        def row(cell):
            # Columns of the inverse vanish more than p rows away.
            near = cells - cell + p
            inside = (near >= 0) & (near <= 2 * p)
            return jnp.where(inside, self._column_near(cell)[jnp.clip(near, 0, 2 * p)], 0)

        return lax.map(row, cells)

    def _column_near(self, j: Int[Array, ""]) -> Float[Array, " w"]:
        """The rows j - p to j + p of column j of T^-1; of those that are not there, anything."""
        a = self.predictor
        p = len(a) - 1
        rows = jnp.arange(p + 1) + j - p
        own = jnp.concatenate([jnp.where(rows >= 0, a[::-1], 0), jnp.zeros_like(a[1:])])
        found = convolved(a, own[:, None])[:, 0]
        # Of L(b) L(b)^T only what is in the last p rows, for columns there.
        start = jnp.minimum(len(self.column) - j, p + 1)
        inner = lax.dynamic_slice(jnp.concatenate([a, jnp.zeros_like(a[1:])]), (start,), (p,))
        last = convolved(a[:0:-1], inner[:, None])[:, 0]
        before = lax.dynamic_slice(found, (start,), (p,))
        return lax.dynamic_update_slice(found, before - last, (start,)) / self._variance

    def between_columns(self, cells, G, matrix=None):
        m = len(self.column)

        @jax.checkpoint
        def step(sums, blocks):
            left, right = (self._solved(placed(cells, of, m)) for of in blocks)
            diagonal = sums[0] + jnp.sum(left * right, 1)
            trace = sums[1] if matrix is None else sums[1] + dot(right, matrix.mv(left))
            return (diagonal, trace), None

        identity = jnp.eye(len(cells), dtype=G.dtype)
        start = jnp.zeros(m, G.dtype), jnp.zeros((), G.dtype)
        return scan(step, start, tuple(blocks_of_columns(of, m) for of in (identity, G)))[0]

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
