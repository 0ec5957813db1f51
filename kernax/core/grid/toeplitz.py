"""Toeplitz matrices, with entries that depend only on `i - j`, as of a stationary kernel at equally
spaced points.

A predictor a of order p with `a_0 = 1` (see `levinson`) gives the inverse by the formula of Gohberg
and Semencul, `T^-1 = (L(a) L(a)^T - L(b) L(b)^T) / v` with lower triangular Toeplitz matrices L and
`b = (0, a_m-1, ..., a_1)`, and products with it by Fourier transforms.

Floats are hardly ever at equal distances: the rounding error of `0.1 i` in units of a step grows
with i. To first order in the offsets of the points from equal steps the matrix is `T + O D - D O`,
with the diagonal matrix O of offsets and the antisymmetric Toeplitz matrix D of derivatives of the
kernel. Products and residuals are those of this matrix, and the inverse is that of T.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import dot, eps_of
from kernax.core.base.solution import RESULTS
from kernax.core.grid.cell_values import Rows, blocks_of_columns, placed
from kernax.core.grid.levinson import convolved, correlated, correlated_with, fast_length, predictor


def _product(
    column: Float[Array, " m"], V: Float[Array, "m k"], sign: float = 1.0
) -> Float[Array, "m k"]:
    """`T V` for the Toeplitz matrix T with this first column. Its first row is `sign` times the
    column, except for the entry that both share.
    """
    # T is a part of a circulant matrix, whose eigenvalues are the transform of its column.
    m = len(column)
    length = fast_length(2 * m - 1)
    between = jnp.zeros(length - 2 * m + 1, column.dtype)
    congruence = jnp.concatenate([column, between, sign * column[:0:-1]])
    product = jnp.fft.rfft(congruence)[None, :] * jnp.fft.rfft(V.T, length)
    return jnp.fft.irfft(product, length)[:, :m].T


class PlaceOffsets(eqx.Module):
    """The correction of a Toeplitz matrix for points not quite at equal distances: `E = O D - D O`.

    Attributes:
        values: the diagonal of O, the offset of each point.
        slopes: the first column of D, the derivative of the kernel in the lag; zero at lag zero.
    """

    values: Float[Array, " m"]
    slopes: Float[Array, " m"]

    def mv(self, V: Float[Array, "m k"]) -> Float[Array, "m k"]:
        """`E V`."""
        values = self.values[:, None]
        return values * self._times_slopes(V) - self._times_slopes(values * V)

    def _times_slopes(self, V: Float[Array, "m k"]) -> Float[Array, "m k"]:
        return _product(self.slopes, V, -1.0)

    def one_sided(self, V: Float[Array, "m k"]) -> Float[Array, "m k"]:
        """`D O V`."""
        return self._times_slopes(self.values[:, None] * V)


class ToeplitzMatrix(eqx.Module):
    """`K_ij = t_|i-j|`, plus a correction for offsets of the points. It has the methods of
    `KroneckerMatrix` and `KroneckerEigenpairs`: factors for any noise share the matrix itself.

    Attributes:
        column: t, the first column.
        order: the largest number of terms of a predictor.
        offsets: None for points at equal distances.
    """

    column: Float[Array, " m"]
    order: int = eqx.field(static=True)
    offsets: PlaceOffsets | None = None

    def mv(self, V: Float[Array, "m k"]) -> Float[Array, "m k"]:
        product = _product(self.column, V)
        return product if self.offsets is None else product + self.offsets.mv(V)

    def squared(self) -> "ToeplitzMatrix":
        return ToeplitzMatrix(self.column**2, self.order)

    def prepared(self) -> "ToeplitzMatrix":
        return self

    @property
    def is_sound(self) -> Bool[Array, ""]:
        return jnp.all(jnp.isfinite(self.column))

    def factorised(self, noise: Float[Array, ""]) -> "ToeplitzFactor":
        matrix = ToeplitzMatrix(self.column.at[0].add(noise), self.order, self.offsets)
        column = matrix.column
        end = predictor(column, min(self.order, len(column) - 1))
        is_finite = matrix.is_sound & jnp.isfinite(end.variance)
        return ToeplitzFactor(
            matrix=matrix,
            predictor=end.predictor,
            reflections=end.reflections,
            variances=jnp.where(jnp.isnan(end.variances), end.variance, end.variances),
            order=end.order,
            remainder=end.remainder,
            is_positive=is_finite & (end.variance > eps_of(column) * column[0]),
        )


_MOST_NATS = 0.01


class ToeplitzFactor(eqx.Module):
    """The inverse of T by a predictor, with the methods of `KroneckerFactor`.

    Attributes:
        matrix: T, and the correction for offsets.
        predictor: a, (p + 1,).
        reflections: the reflection coefficients of each order from one on, (p,).
        variances: v for each order from zero on, (p + 1,).
        order: the order of the predictor.
        remainder: the largest relative distance of T from the inverted matrix.
        is_positive: whether T is positive definite to working precision.
    """

    matrix: ToeplitzMatrix
    predictor: Float[Array, " p1"]
    reflections: Float[Array, " p"]
    variances: Float[Array, " p1"]
    order: Int[Array, ""]
    remainder: Float[Array, ""]
    is_positive: Bool[Array, ""]

    @property
    def exists(self) -> Bool[Array, ""]:
        """Whether T is positive definite and this is its factor. An incomplete predictor belongs to
        another matrix.
        """
        return self.is_positive & (self._left_out() <= _MOST_NATS)

    def _left_out(self) -> Array:
        """The possible error of the log density of likely data from the remainder, in nats."""
        return self._size * self.remainder / 2

    @property
    def _size(self) -> int:
        return len(self.matrix.column)

    @property
    def is_direct(self) -> bool:
        return False

    @property
    def status_without_factor(self) -> Any:
        return RESULTS.where(self.is_positive, RESULTS.max_steps_reached, RESULTS.not_psd)

    def figures(self) -> dict[str, Array]:
        return {"order": self.order}

    @property
    def _variance(self) -> Float[Array, ""]:
        """v, NaN if there is no factor."""
        return jnp.where(self.exists, self.variances[-1], jnp.nan)

    def solve(self, B: Float[Array, "m k"]) -> Float[Array, "m k"]:
        first = self._solved(B)
        # Transforms have an error of eps of the largest number everywhere, and there may be
        # offsets.
        return first + self._solved(B - self.matrix.mv(first))

    def _solved(self, B: Float[Array, "m k"]) -> Float[Array, "m k"]:
        """The solution by the formula of Gohberg and Semencul; b only involves the last p rows."""
        a = self.predictor
        p = len(a) - 1
        found = convolved(a, correlated(a, B))
        if p:
            # (L(b)^T B)_r = sum_j a_r+j+1 B_m-1-j for r < p, else zero.
            inner = correlated_with(a[1:], B[::-1][:p])
            found = found.at[-p:].add(-convolved(a[:0:-1], inner))
        return found / self._variance

    def whitened(self, B: Float[Array, "m k"]) -> Float[Array, "m k"]:
        # b.T^-1 b = sum_i e_i^2 / v_i for a column b, where e_i is the prediction error of row i.
        return self._errors(B) / jnp.sqrt(self._of_rows(self.variances))[:, None]

    def _of_rows(self, variances: Float[Array, " p1"]) -> Float[Array, " m"]:
        """The variance of the prediction error of each row."""
        known = jnp.where(self.exists, variances, jnp.nan)
        rest = self._size - len(known)
        return jnp.concatenate([known, jnp.broadcast_to(known[-1], (rest,))])

    def _errors(self, B: Float[Array, "m k"]) -> Float[Array, "m k"]:
        """The prediction error of each row from the previous rows; for the first p rows by the
        lattice of reflections, one order after the other.
        """
        p = len(self.reflections)
        first = B[: p + 1]
        rows = jnp.arange(p + 1)

        def step(now):
            k, forward, backward = now
            # f_i = f_i + reflection g_i-1 and g_i = g_i-1 + reflection f_i, with the previous f and
            # g on the right. Row i has i rows before it, so its f is final at k = i.
            reflection = self.reflections[k]
            before = jnp.roll(backward, 1, 0)
            later = (rows > k)[:, None]
            return (
                k + 1,
                jnp.where(later, forward + reflection * before, forward),
                before + reflection * forward,
            )

        start = jnp.zeros_like(self.order), first, first
        _, found, _ = lax.while_loop(lambda now: now[0] < self.order, step, start)
        filtered = convolved(self.predictor, B)
        return filtered.at[: p + 1].set(found)

    def log_determinant(self) -> Float[Array, ""]:
        # |T| is the product of the variances of the prediction errors.
        return jnp.sum(jnp.log(self._of_rows(self.variances)))

    def inverse_diagonal(self) -> Float[Array, " m"]:
        # (T^-1)_ii = sum_k (a_k^2 - b_k^2) / v over k <= i.
        squares = self.predictor**2
        rest = self._size - len(squares)
        # No updates in place, because jaxlib 0.10.2 compiles their cumulative sum wrongly on a CPU.
        steps = jnp.pad(squares, (0, rest)) - jnp.pad(squares[:0:-1], (rest + 1, 0))
        return jnp.cumsum(steps) / self._variance

    def _sums_over_diagonals(self) -> Float[Array, " p1"]:
        """The sums over the diagonals of T^-1, from the main one to the p-th. All except the main
        one count twice, for both sides; further ones are zero.
        """
        a = self.predictor
        size = len(a)
        lags = jnp.arange(size, dtype=a.dtype)
        length = fast_length(2 * size)
        # sum_i (T^-1)_i,i+k = sum_r (m - k - 2 r) a_r a_r+k / v, both sums as correlations.
        of_a = jnp.fft.rfft(a, length)
        plain = jnp.fft.irfft(jnp.conj(of_a) * of_a, length)[:size]
        # sum_r r a_r a_r+k
        moments = jnp.fft.irfft(jnp.conj(jnp.fft.rfft(lags * a, length)) * of_a, length)[:size]
        sums = ((self._size - lags) * plain - 2 * moments) / self._variance
        return sums * jnp.where(lags > 0, 2, 1).astype(a.dtype)

    def trace_with(self, matrix: ToeplitzMatrix) -> Float[Array, ""]:
        sums = self._sums_over_diagonals()
        return dot(sums, matrix.column[: len(sums)])

    def inverse_at(self, cells: Int[Array, " k"]) -> Float[Array, "k k"]:
        p = len(self.reflections)

        def row(cell):
            # Columns of the inverse vanish more than p rows away.
            near = cells - cell + p
            inside = (near >= 0) & (near <= 2 * p)
            return jnp.where(inside, self._column_near(cell)[jnp.clip(near, 0, 2 * p)], 0)

        return lax.map(row, cells)

    def _column_near(self, j: Int[Array, ""]) -> Float[Array, " w"]:
        """The rows j - p to j + p of column j of T^-1; arbitrary numbers outside of the matrix."""
        a = self.predictor
        p = len(a) - 1
        # L(a)^T e_j has a_p, ..., a_0 in the rows j - p to j.
        rows = jnp.arange(p + 1) + j - p
        own = jnp.concatenate([jnp.where(rows >= 0, a[::-1], 0), jnp.zeros_like(a[1:])])
        found = convolved(a, own[:, None])[:, 0]
        # L(b) L(b)^T is zero except in the last p rows and columns: (L(b)^T e_j)_r is a_m-j+r.
        start = jnp.minimum(self._size - j, p + 1)
        inner = lax.dynamic_slice(jnp.concatenate([a, jnp.zeros_like(a[1:])]), (start,), (p,))
        last = convolved(a[:0:-1], inner[:, None])[:, 0]
        before = lax.dynamic_slice(found, (start,), (p,))
        return lax.dynamic_update_slice(found, before - last, (start,)) / self._variance

    def between_columns(
        self, cells: Int[Array, " k"], G: Float[Array, "k k"], matrix: ToeplitzMatrix | None = None
    ) -> tuple[Float[Array, " m"], Float[Array, ""]]:
        m = self._size

        @jax.checkpoint
        def step(sums, blocks):
            left, right = (self._solved(placed(cells, of, m)) for of in blocks)
            diagonal = sums[0] + jnp.sum(left * right, 1)
            trace = sums[1] if matrix is None else sums[1] + dot(right, matrix.mv(left))
            return (diagonal, trace), None

        identity = jnp.eye(len(cells), dtype=G.dtype)
        start = jnp.zeros(m, G.dtype), jnp.zeros((), G.dtype)
        return lax.scan(step, start, tuple(blocks_of_columns(of, m) for of in (identity, G)))[0]

    def prepared_row(self, rows: Rows) -> Rows:
        (row,) = rows
        return self.whitened(row[:, None])[:, 0], row

    def inner_product(self, left: Rows, right: Rows) -> Float[Array, ""]:
        return dot(left[0], right[0])

    def solve_row(self, row: Rows) -> Float[Array, " m"]:
        return self.solve(row[1][:, None])[:, 0]

    def rounding(self) -> Float[Array, ""]:
        """The error of the log density of data drawn from N(0, T), in nats, from rounding, the
        remainder and the offsets.
        """
        # An error of eps in a lag is the same along its diagonal.
        sums = self._sums_over_diagonals()
        slopes = sums * self.matrix.column[: len(sums)]
        found = 2 * eps_of(sums) * jnp.linalg.norm(slopes) + self._left_out()
        return found if self.matrix.offsets is None else found + self._of_offsets()

    def _of_offsets(self) -> Float[Array, ""]:
        """The error of the log density of likely data from the offsets: its standard deviation."""
        # The variance is half of |T^-1/2 E T^-1/2|_F^2 = tr(T^-1 E T^-1 E), which for independent
        # offsets is twice the sum of o_i^2 (T^-1)_ii (D^T T^-1 D)_ii. The sum over all i of the
        # last factor is the mean of |T^-1/2 D O z|^2 over vectors z of random signs (Hutchinson
        # 1990); one is used here.
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (self._size, 1))
        offsets = self.matrix.offsets
        assert offsets is not None
        image = self.whitened(offsets.one_sided(jnp.asarray(signs, offsets.values.dtype)))
        return jnp.sqrt(jnp.mean(self.inverse_diagonal())) * jnp.linalg.norm(image)
