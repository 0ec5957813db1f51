"""Solving with Gram matrices: two lineax solvers that report the truth, and the one solve behind every quadratic learner."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from kernax.core.boundary import as_targets
from kernax.core.numerics import split_by_tangent, stopped
from kernax.core.solution import RESULTS, Solution, finish


class Factor(eqx.Module):
    """A Cholesky factor and the jitter that it took."""

    lower: Float[Array, "n n"]
    jitter: Float[Array, ""]


class JitteredCholesky(lx.AbstractLinearSolver):
    """Cholesky for lineax; jitter goes on the diagonal only where the plain factorisation fails.

    It starts at sqrt(eps) (float64) or 10 eps (float32) of the mean diagonal and grows tenfold up to 1e-4 of it; a matrix
    that needs more is indefinite and comes back as NaN. A pivot within rounding of zero counts as a failure, because a
    singular matrix often factorises by accident, into noise. `stats["jitter"]` is what was added.
    """

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> Factor:
        A = operator.as_matrix()
        n, diagonal, eps = len(A), jnp.diagonal(A), float(jnp.finfo(A.dtype).eps)
        scale = jnp.mean(diagonal)
        first = (math.sqrt(eps) if A.dtype == jnp.float64 else 10 * eps) * scale
        least_pivot = jnp.sqrt(eps * jnp.max(diagonal))

        def factorise(jitter):
            return Factor(lax.linalg.cholesky(A + jitter * jnp.eye(n, dtype=A.dtype), symmetrize_input=False), jitter)

        def failed(factor):
            return ~(jnp.min(jnp.diagonal(factor.lower)) > least_pivot)  # NaN counts as a failure

        def go_on(factor):
            return failed(factor) & (10 * factor.jitter <= 1e-4 * scale) & jnp.all(jnp.isfinite(diagonal))

        def again(factor):
            return factorise(jnp.where(factor.jitter == 0, first, 10 * factor.jitter))

        factor = lax.while_loop(go_on, again, factorise(jnp.zeros((), A.dtype)))
        return Factor(jnp.where(failed(factor), jnp.nan, factor.lower), factor.jitter)

    def compute(self, state: Factor, vector: Array, options: dict[str, Any]):
        x = jax.scipy.linalg.cho_solve((state.lower, True), vector, check_finite=False)
        result = lx.RESULTS.where(jnp.all(jnp.isfinite(x)), lx.RESULTS.successful, lx.RESULTS.singular)
        return x, result, {"jitter": state.jitter}

    def transpose(self, state, options):
        return state, options

    def conj(self, state, options):
        return state, options

    def assume_full_rank(self):
        return True


class ConjugateGradient(lx.AbstractLinearSolver):
    """`lineax.CG` until `|b - A x| <= rtol |b|` in the 2-norm, whatever the units of A and b.

    lineax also asks that the last step be small and takes a small `p.Ap` for a breakdown; neither test is free of units,
    and both stop or prolong well-posed solves in float32. The system is therefore handed over with |b| = 1 and A
    multiplied by a large number, which makes both vacuous. `stats["steps"]` counts products with A.

    Attributes:
        rtol: relative residual at which to stop; default eps^(2/3), 4e-11 in float64 and 2e-5 in float32.
        max_steps: default 1000.
    """

    rtol: float | None = None
    max_steps: int = 1000

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> lx.AbstractLinearOperator:
        if not lx.is_positive_semidefinite(operator):
            raise ValueError("ConjugateGradient needs an operator tagged lineax.positive_semidefinite_tag")
        return lx.linearise(operator)

    def compute(self, state: lx.AbstractLinearOperator, vector: Array, options: dict[str, Any]):
        eps, size = jnp.finfo(vector.dtype).eps, jnp.linalg.norm(vector)
        size = jnp.where(size > 0, size, 1)
        unit = vector / size
        curvature = jnp.abs(jnp.vdot(unit, state.mv(unit)))
        large = 1 / (eps**2 * jnp.where(curvature > 0, curvature, 1))
        operator = lx.TaggedLinearOperator(large * state, lx.positive_semidefinite_tag)
        solver = lx.CG(rtol=0.0, atol=self.tolerance(vector.dtype), norm=jnp.linalg.norm, max_steps=self.max_steps)
        x, result, stats = solver.compute(solver.init(operator, {}), unit, {})
        return large * size * x, result, {"steps": jnp.asarray(stats["num_steps"])}

    def tolerance(self, dtype) -> float:
        """The relative residual that counts as solved in a dtype."""
        return float(jnp.finfo(dtype).eps) ** (2 / 3) if self.rtol is None else self.rtol

    def transpose(self, state, options):
        return state, options

    def conj(self, state, options):
        return state, options

    def assume_full_rank(self):
        return True


def weighted_solve(
    operator: lx.AbstractLinearOperator,
    weights: Float[Array, " n"] | None,
    ridge: Float[Array, ""],
    rhs: Float[Array, "n p"],
    solver: lx.AbstractLinearSolver,
) -> tuple[Float[Array, "n p"], Any, dict[str, Array]]:
    """Solves `(W K + ridge I) A = rhs` for a positive semidefinite K and `W = diag(weights)`, weights >= 0.

    With `S = sqrt(W)` and `M = S K S + ridge I`, positive definite, `A = S M^-1 (rhs / S)` where a weight is positive; where
    it is zero the row reads `ridge a = rhs` and is eliminated first. Nothing is divided by a weight that is zero, and
    a point of weight zero is removed exactly, also when ridge = 0.

    Returns the solution, the worst result over the columns, and stats: the solver's own, and the largest true `residual`
    `|rhs - (W K + ridge) a| / |rhs|`.
    """
    A, _, result, stats = _weighted_solve(operator, weights, ridge, rhs, solver=solver)
    return A, result, stats


@eqx.filter_custom_jvp
def _weighted_solve(operator, weights, ridge, rhs, *, solver):
    system = _System(operator, weights, ridge)
    state = solver.init(system.symmetric_form(), {})
    system = system.with_jitter(state)
    A, (results, stats) = system.solve(solver, state, rhs)
    residual = jnp.linalg.norm(rhs - system.apply(jnp.where(jnp.isfinite(A), A, 0)), axis=0)
    size = jnp.linalg.norm(rhs, axis=0)
    relative = residual / jnp.where(size > 0, size, 1)
    result = _verdict(results, relative, solver)
    stats = {name: jnp.max(figure) for name, figure in stats.items()} | {"residual": jnp.max(relative)}
    reusable = state if all(map(eqx.is_array, jax.tree.leaves(state))) else None
    return jnp.where(result == RESULTS.nonfinite, jnp.nan, A), reusable, result, stats


@_weighted_solve.def_jvp
def _weighted_solve_jvp(primals, tangents, *, solver):
    # From T(args) A = rhs(args), T = W K + ridge: T dA = d rhs - dT A. The system is solved as written, unsymmetric, because it
    # is smooth at weight zero and sqrt(W) is not; with the factor at hand, and in a form that JAX can transpose and
    # differentiate again. A failed solve gives NaN tangents, not an exception.
    A, reusable, result, stats = _weighted_solve(*primals, solver=solver)
    system = _System(*primals[:3])
    state = stopped(solver.init(system.symmetric_form(), {}) if reusable is None else reusable)
    moving, known = split_by_tangent(primals, tangents)

    def misfit(moving):
        operator, weights, ridge, rhs = eqx.combine(moving, known)
        return rhs - _System(operator, weights, ridge).with_jitter(state).apply(A)

    _, t_rhs = eqx.filter_jvp(misfit, (moving,), (tangents,))
    system = system.with_jitter(state)
    t_A = lax.custom_linear_solve(
        system.apply,
        t_rhs,
        lambda _, B: stopped(system).solve(solver, state, B)[0],
        lambda _, B: stopped(system).solve_transposed(solver, state, B)[0],
    )
    return (A, reusable, result, stats), (t_A, *jax.tree.map(lambda _: None, (reusable, result, stats)))


class _System(eqx.Module):
    """`W K + diag(shift)`, and its two inverses by way of the symmetric `M = S K S + diag(shift)`, S = sqrt(W)."""

    operator: lx.AbstractLinearOperator
    weights: Float[Array, " n"] | None
    shift: Float[Array, " n"]

    def __init__(self, operator, weights, ridge):
        self.operator, self.weights = operator, weights
        self.shift = jnp.broadcast_to(ridge, (operator.in_size(),))
        if weights is not None:  # the row of a removed point, a_i = 0, may be scaled at will
            self.shift = jnp.where((weights > 0) | (ridge > 0), self.shift, 1)

    def with_jitter(self, state: Any) -> "_System":
        return eqx.tree_at(lambda s: s.shift, self, self.shift + state.jitter) if isinstance(state, Factor) else self

    def symmetric_form(self) -> lx.AbstractLinearOperator:
        """M as a matrix if K is one, otherwise as products only."""
        K, root = self.operator, None if self.weights is None else _roots(self.weights)[0]
        if isinstance(K, lx.MatrixLinearOperator):
            inner = K.matrix if root is None else root[:, None] * K.matrix * root[None, :]
            return lx.MatrixLinearOperator(inner + jnp.diag(self.shift), lx.positive_semidefinite_tag)
        if root is not None:
            S = lx.DiagonalLinearOperator(root)
            K = S @ K @ S
        return lx.TaggedLinearOperator(K + lx.DiagonalLinearOperator(self.shift), lx.positive_semidefinite_tag)

    def apply(self, A):
        KA = self._K(A)
        return (KA if self.weights is None else self.weights[:, None] * KA) + self.shift[:, None] * A

    def solve(self, solver, state, B):
        """`(W K + shift)^-1 B`, with the results and stats of each column."""
        if self.weights is None:
            return self._columns(solver, state, B)
        root, inverse_root, removed = _roots(self.weights)
        alone = removed[:, None] * B / self.shift[:, None]
        x, report = self._columns(solver, state, inverse_root[:, None] * (B - self.weights[:, None] * self._K(alone)))
        return root[:, None] * x + alone, report

    def solve_transposed(self, solver, state, B):
        """`(K W + shift)^-1 B`, likewise."""
        if self.weights is None:
            return self._columns(solver, state, B)
        root, inverse_root, removed = _roots(self.weights)
        x, report = self._columns(solver, state, root[:, None] * B)
        x = inverse_root[:, None] * x
        return x + removed[:, None] * (B - self._K(self.weights[:, None] * x)) / self.shift[:, None], report

    def _K(self, A):
        return jax.vmap(self.operator.mv, 1, 1)(A)

    def _columns(self, solver, state, B):
        def column(b):
            x, result, stats = solver.compute(state, b, {})
            return x, result, {name: jnp.asarray(figure) for name, figure in stats.items() if figure is not None}

        x, result, stats = jax.vmap(column, 1, (1, 0, 0))(B)
        return x, (result, stats)


def _roots(weights: Array) -> tuple[Array, Array, Array]:
    """sqrt(w), 1 / sqrt(w) with zero where w = 0, and one where w = 0."""
    on = weights > 0
    root = jnp.sqrt(jnp.where(on, weights, 1))
    return jnp.where(on, root, 0), jnp.where(on, 1 / root, 0), jnp.where(on, 0, 1).astype(root.dtype)


def _verdict(results: Any, relative: Array, solver: lx.AbstractLinearSolver) -> Any:
    """The worst result over the columns. An iterative solver has succeeded only if the true residual says so."""
    worst = jax.tree.map(lambda leaf: leaf[jnp.argmax(results != lx.RESULTS.successful)], results)
    result = RESULTS.promote(worst)
    result = RESULTS.where(result == RESULTS.singular, RESULTS.not_psd, result)
    if isinstance(solver, ConjugateGradient):
        unmet = jnp.max(relative) > 2 * solver.tolerance(relative.dtype)
        result = RESULTS.where((result == RESULTS.successful) & unmet, RESULTS.breakdown, result)
    return RESULTS.where(jnp.all(jnp.isfinite(relative)), result, RESULTS.nonfinite)


def solve(
    operator: lx.AbstractLinearOperator, rhs: ArrayLike, solver: lx.AbstractLinearSolver | None = None, *, throw: bool = True
) -> Solution[Array]:
    """Solves `A x = rhs` for a positive semidefinite lineax operator, rhs of shape (n,) or (n, p).

    `solver` defaults to `JitteredCholesky()`; any lineax solver for such operators will do. Differentiable to every order in
    the operator and in rhs. Stats: the solver's (`jitter`, or `steps`), and the true relative `residual`.

    Raises (`throw=True`): NonFiniteError, NotPSDError, MaxStepsError, BreakdownError.
    """
    rhs = as_targets(rhs, operator.in_size(), operator.in_structure().dtype, "rhs")
    solver = JitteredCholesky() if solver is None else solver
    return finish(_solve(operator, rhs, solver), throw)


@eqx.filter_jit
def _solve(operator, rhs, solver):
    ridge = jnp.zeros((), rhs.dtype)
    value, result, stats = weighted_solve(operator, None, ridge, rhs.reshape(len(rhs), -1), solver)
    return Solution(value.reshape(rhs.shape), result, stats)
