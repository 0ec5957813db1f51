"""`W K + ridge I` for many ridges at once, from one reduction of K to tridiagonal form.

The reduction `S K S = Q T Q^T` (Householder; Golub & Van Loan 2013, section 8.3.1) costs little
more than two Cholesky factors, and is the same for every ridge; the rest takes O(n^2) operations
for each ridge. An eigendecomposition would do the same, at three times the cost.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.derivatives import custom_jvp, split_by_tangent
from kernax.core.base.numerics import eps_of, stop_gradient
from kernax.core.base.powers import in_own_unit
from kernax.core.base.weights import AbstractWeights
from kernax.core.linalg.jitter import range_of_jitter
from kernax.core.operators.operators import AbstractGram


class TridiagonalForm(eqx.Module):
    """`M = Q T Q^T` of a symmetric M (n, n), Q orthogonal, T tridiagonal, for solves with `M + s`.

    Q leaves the first coordinate as it is, and is a product of reflections of the others.
    """

    reflections: Float[Array, "m m"]
    scales: Float[Array, " m"]
    diagonal: Float[Array, " n"]
    subdiagonal: Float[Array, " m"]

    @staticmethod
    def of(M: Float[Array, "n n"]) -> "TridiagonalForm":
        """The tridiagonal form, by LAPACK; NaN where M contains NaN."""
        if len(M) == 1:
            return TridiagonalForm(M[1:, 1:], M[0, 1:], M[0], M[0, 1:])
        packed, diagonal, subdiagonal, scales = lax.linalg.tridiagonal(M, lower=True)
        return TridiagonalForm(packed[1:, :-1], scales, diagonal, subdiagonal)

    def turned(self, B: Float[Array, "n p"], *, back: bool = False) -> Float[Array, "n p"]:
        """`Q B`, or `Q^T B`."""
        if len(B) == 1:
            return B
        # Q = diag(1, H), H the product of the reflections.
        rest = lax.linalg.ormqr(self.reflections, self.scales, B[1:], transpose=back)
        return jnp.concatenate([B[:1], rest])

    def pivots(self, shifts: Float[Array, " r"]) -> Float[Array, "n r"]:
        """The diagonal of D in `T + s = L D L^T`, for each shift s."""

        def step(before, row):
            # d_i = t_ii + s - t_(i,i-1)^2 / d_(i-1).
            entry, off = row
            # The square of an entry may leave the range of floats.
            pivot = entry + shifts - off * (off / before)
            return pivot, pivot

        rows = (self.diagonal, self._before())
        return lax.scan(step, jnp.ones_like(shifts), rows)[1]

    def solve(self, pivots: Float[Array, "n r"], B: Float[Array, "n p r"]) -> Float[Array, "n p r"]:
        """`(M + s_j)^-1 B[..., j]` for the shift s_j of each column of pivots."""
        # (Q (T + s) Q^T)^-1 = Q (L D L^T)^-1 Q^T.
        turned = self._turned_columns(B, back=True)
        # `(L D L^T)^-1 B`, L with ones on the diagonal and `before / pivot` left of it.
        before = self._before()

        def forward(now, row):
            # L z = B: z_i = b_i - t_(i,i-1) / d_(i-1) z_(i-1).
            pivot_before, z = now
            pivot, entry, b = row
            z = b - entry / pivot_before * z
            return (pivot, z), z

        def backward(now, row):
            # D L^T x = z: x_i = (z_i - t_(i+1,i) x_(i+1)) / d_i.
            x_after, entry_after = now
            pivot, entry, z = row
            x = (z - entry_after * x_after) / pivot
            return (x, entry), x

        nothing = jnp.zeros_like(turned[0])
        pivots = pivots[:, None, :]
        one = jnp.ones_like(pivots[0])
        _, z = lax.scan(forward, (one, nothing), (pivots, before, turned))
        rows = (pivots[::-1], before[::-1], z[::-1])
        solved = lax.scan(backward, (nothing, jnp.zeros_like(before[0])), rows)[1][::-1]
        return self._turned_columns(solved)

    def _turned_columns(self, B: Float[Array, "n p r"], *, back: bool = False) -> Array:
        return self.turned(B.reshape(len(B), -1), back=back).reshape(B.shape)

    def inverse_diagonal(self, pivots: Float[Array, "n r"]) -> Float[Array, "n r"]:
        """The diagonal of `(M + s_j)^-1` for each column of pivots.

        Row i is the sum of the squares of `D^-1/2 L^-1 Q^T e_i`, in which nothing cancels.
        """

        def step(now, row):
            # Row i of L z = Q^T, for all points at once:
            # z_i = (Q^T)_i - t_(i,i-1) / d_(i-1) z_(i-1), and the diagonal is sum_i z_i^2 / d_i.
            before, z, total = now
            column, pivot, entry = row
            z = column[:, None] - (entry / before)[None, :] * z
            return (pivot, z, total + z**2 / pivot[None, :]), None

        n = len(self.diagonal)
        rows = (self.turned(jnp.eye(n, dtype=pivots.dtype)).T, pivots, self._before())
        nothing = jnp.zeros_like(pivots)
        return lax.scan(step, (jnp.ones_like(pivots[0]), nothing, nothing), rows)[0][2]

    def _before(self) -> Float[Array, " n"]:
        """The entry of T left of the diagonal in each row; none in the first."""
        return jnp.concatenate([jnp.zeros_like(self.diagonal[:1]), self.subdiagonal])


class Factors(eqx.Module):
    """The tridiagonal form with the pivots of each ridge.

    Attributes:
        jitter: the number added to each ridge.
        exists: whether `S K S + ridge + jitter` is positive definite to working precision.
    """

    form: TridiagonalForm
    pivots: Float[Array, "n r"]
    jitter: Float[Array, " r"]
    exists: Bool[Array, " r"]

    def solve(self, B: Float[Array, "n p r"]) -> Float[Array, "n p r"]:
        """`(S K S + ridge_j + jitter_j)^-1 B[..., j]`."""
        return sequential_vmap(TridiagonalForm.solve, self.form, self.pivots, B)

    def solve_one(self, which: Int[Array, ""], B: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """The same for one of the ridges."""
        pivots = self.pivots[:, which][:, None]
        return sequential_vmap(TridiagonalForm.solve, self.form, pivots, B[:, :, None])[:, :, 0]

    def inverse_diagonal(self) -> Float[Array, "n r"]:
        """The diagonal of `(S K S + ridge_j + jitter_j)^-1` for each ridge."""
        return sequential_vmap(TridiagonalForm.inverse_diagonal, self.form, self.pivots)


class _JitteredPivots(eqx.Module):
    """Pivots with some jitter, which are sound where all exceed rounding."""

    pivots: Float[Array, "n r"]
    jitter: Float[Array, " r"]
    sound: Bool[Array, " r"]

    @staticmethod
    def at(form: TridiagonalForm, ridges: Float[Array, " r"], jitter: Float[Array, " r"]):
        shifts = ridges + jitter
        pivots = form.pivots(shifts)
        # A pivot below the rounding of t_ii + s has no sign that can be trusted.
        least = eps_of(shifts) * (form.diagonal[:, None] + shifts[None, :])
        return _JitteredPivots(pivots, jitter, jnp.all(pivots > least, 0))


class RidgeSystems(eqx.Module):
    """`T_j = W K + ridge_j I` for each of r positive ridges; they act on arrays (n, p, r)."""

    gram: AbstractGram
    weights: AbstractWeights
    ridges: Float[Array, " r"]

    def with_jitter(self, jitter: Float[Array, " r"]) -> "RidgeSystems":
        """The systems that were factorised, which include the jitter."""
        return RidgeSystems(self.gram, self.weights, self.ridges + jitter)

    def factors(self) -> Factors:
        """The factors of `S K S + ridge_j`, without a derivative."""
        return sequential_vmap(_factorised, self)

    def apply(self, A: Float[Array, "n p r"]) -> Float[Array, "n p r"]:
        """`T_j A[..., j]`."""
        products = self.gram.mv(A.reshape(len(A), -1)).reshape(A.shape)
        return self.weights.times(products) + self.ridges[None, None, :] * A

    def solve(self, factors: Factors, B: Float[Array, "n p r"]) -> Float[Array, "n p r"]:
        """`T_j^-1 B[..., j]`."""
        return self._solve(self.weights.solve, factors, B)

    def solve_transposed(self, factors: Factors, B: Float[Array, "n p r"]) -> Float[Array, "n p r"]:
        """`T_j^-T B[..., j]`."""
        return self._solve(self.weights.solve_transposed, factors, B)

    def _solve(self, solve: Callable, factors: Factors, B: Float[Array, "n p r"]) -> Array:
        def inner(columns):
            return factors.solve(columns.reshape(B.shape)).reshape(flat), None

        flat = (len(B), B.shape[1] * B.shape[2])
        # T = S (S K S + ridge I) S^-1, where weights are positive: `inner` solves with the middle
        # factor for all columns and ridges.
        shift = jnp.broadcast_to(self.ridges[None, None, :], B.shape).reshape(flat)
        return solve(inner, self.gram.mv, shift, B.reshape(flat))[0].reshape(B.shape)


def _factorised(systems: RidgeSystems) -> Factors:
    """Factors for each ridge, with the jitter that `factorise` would add where a factor does not
    exist.
    """
    # S K S = Q T Q^T, the same for every ridge.
    form = TridiagonalForm.of(systems.weights.congruence(systems.gram.as_matrix()))
    weights = systems.weights
    # The mean diagonal of `S K S` over the points of positive weight.
    scale = weights.mean(weights.times(systems.gram.diagonal()))
    ridges = systems.ridges
    first, most = range_of_jitter(scale + ridges)
    can_grow = jnp.isfinite(most) & (first > 0)

    def go_on(now: _JitteredPivots) -> Array:
        return jnp.any(~now.sound & (now.jitter < most) & can_grow)

    def again(now: _JitteredPivots) -> _JitteredPivots:
        # Ridges without a factor get ten times the jitter, up to `most`; the others keep theirs.
        more = jnp.where(now.jitter > 0, jnp.minimum(10 * now.jitter, most), first)
        return _JitteredPivots.at(form, ridges, jnp.where(now.sound, now.jitter, more))

    end = lax.while_loop(go_on, again, _JitteredPivots.at(form, ridges, jnp.zeros_like(ridges)))
    return Factors(form, end.pivots, end.jitter, end.sound)


def solutions_of_weighted(
    systems: RidgeSystems, columns: Float[Array, "n p"]
) -> tuple[Float[Array, "n p r"], Factors]:
    """`T_j^-1 W columns` for each ridge, differentiable in the systems and columns to every order;
    and the factors. NaN for a ridge without a factor.
    """
    return _solutions(systems, columns)


@custom_jvp
def _solutions(systems, columns):
    def solved(systems: RidgeSystems, columns: Float[Array, "n p"]) -> tuple[Array, Factors]:
        # T^-1 W C = S (S K S + ridge)^-1 S C: nothing is divided by a weight.
        factors = _factorised(systems)
        weights = systems.weights
        columns, unit = in_own_unit(columns, 0)
        rooted = weights.times_roots(columns)
        alike = jnp.broadcast_to(rooted[:, :, None], (*columns.shape, len(systems.ridges)))
        A = weights.times_roots(factors.solve(alike)) * unit[:, :, None]
        return jnp.where(factors.exists[None, None, :], A, jnp.nan), factors

    return sequential_vmap(solved, systems, columns)


@_solutions.def_jvp
def _solutions_jvp(primals, tangents):
    # T dA = d(W C) - dT A, as in `weighted_solve`. The equation stays unsymmetric, because the root
    # of a weight has no derivative at zero.
    A, factors = _solutions(*primals)
    fixed = stop_gradient(factors)
    moving, known = split_by_tangent(primals, tangents)

    def left_of(moving):
        systems, columns = eqx.combine(moving, known)
        weighted = systems.weights.times(columns)[:, :, None]
        return weighted - systems.with_jitter(fixed.jitter).apply(A)

    _, left = eqx.filter_jvp(left_of, (moving,), (tangents,))
    systems = primals[0].with_jitter(fixed.jitter)
    constant = stop_gradient(systems)
    dA = lax.custom_linear_solve(
        systems.apply,
        left,
        lambda _, B: constant.solve(fixed, B),
        lambda _, B: constant.solve_transposed(fixed, B),
    )
    return (A, factors), (dA, jax.tree.map(lambda _: None, factors))
