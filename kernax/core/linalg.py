"""The one linear solve behind every quadratic learner, and its derivative."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from kernax.core.batching import one_by_one
from kernax.core.boundary import as_targets
from kernax.core.cancellation import careful_product, extra_bits
from kernax.core.conjugate_gradient import ConjugateGradient
from kernax.core.numerics import product, split_by_tangent, stopped
from kernax.core.operators import FeatureOperator, ShiftedOperator
from kernax.core.powers import exponent_of, times_power_of_two
from kernax.core.sharding import compiled
from kernax.core.solution import RESULTS, Solution, Suspect, finish, promoted, void_unless_known
from kernax.core.solvers import Factor, JitteredCholesky


def weighted_solve(
    operator: lx.AbstractLinearOperator,
    weights: Float[Array, " n"] | None,
    ridge: Float[Array, "*n"],
    rhs: Float[Array, "n p"],
    solver: lx.AbstractLinearSolver,
    factor: Factor | None = None,
) -> tuple[Float[Array, "n p"], Any, dict[str, Array]]:
    """Solves `(W K + ridge I) A = rhs` for a positive semidefinite K and `W = diag(weights)`, weights >= 0.

    `ridge` is a number, or one for each point. A `factor` of `symmetric_form`, if known, saves the solver its first step.

    With `S = sqrt(W)` and `M = S K S + ridge I`, positive definite, `A = S M^-1 (rhs / S)` where a weight is positive; where
    it is zero the row reads `ridge a = rhs` and is eliminated first. Nothing is divided by a weight that is zero, and
    a point of weight zero is removed exactly, also when ridge = 0.

    Returns the solution, the result of all columns, and stats: the solver's own, and the largest
    true `residual`, `|rhs - (W K + ridge) a| / |rhs|`.
    """
    A, _, result, stats = _weighted_solve(operator, weights, ridge, rhs, factor, solver=solver)
    return A, result, stats


@eqx.filter_custom_jvp
def _weighted_solve(operator, weights, ridge, rhs, factor, *, solver):
    if isinstance(operator, (lx.MatrixLinearOperator, FeatureOperator)):
        solved = lambda matrix, rhs, factor: _solved(matrix[0], matrix[1], matrix[2], rhs, factor, solver)
        return one_by_one(solved, (operator, weights, ridge), rhs, factor)
    return _solved(operator, weights, ridge, rhs, factor, solver)


def _solved(operator, weights, ridge, rhs, factor, solver):
    system = WeightedSystem(operator, weights, ridge)
    state = solver.init(system.symmetric_form(), {}) if factor is None else factor
    system = system.with_jitter(state)
    # In units of each column its squares stay in the range of floats.
    unit = unit_of(rhs)
    in_units, (results, stats) = system.solve(solver, state, times_power_of_two(rhs, -unit))
    A = times_power_of_two(in_units, unit)
    # Judged is what is returned: back in the units of the problem, entries may be less than the smallest float.
    off, size = system.misfit(A, rhs)
    relative = jnp.linalg.norm(off, axis=0) / size
    result = _verdict(results, in_units, relative, solver)
    out_of_range = jnp.any(jnp.isfinite(in_units) & ~jnp.isfinite(A))
    result = RESULTS.where(out_of_range, RESULTS.nonfinite, result)
    stats = {name: jnp.max(figure) for name, figure in stats.items()} | {"residual": jnp.max(relative)}
    reusable = state if all(map(eqx.is_array, jax.tree.leaves(state))) else None
    # Where a factor exists a finite solution is one, so the fit alone, under jit, does not pay for its residual.
    sound = jnp.all(jnp.isfinite(A)) if isinstance(state, Factor) else result != RESULTS.nonfinite
    return jnp.where(sound, A, jnp.nan), reusable, result, stats


@_weighted_solve.def_jvp
def _weighted_solve_jvp(primals, tangents, *, solver):
    # From T(args) A = rhs(args), T = W K + ridge: T dA = d rhs - dT A. The system is solved as written, unsymmetric, because it
    # is smooth at weight zero and sqrt(W) is not; with the factor at hand, and in a form that JAX can transpose and
    # differentiate again. A failed solve gives NaN tangents, not an exception.
    A, reusable, result, stats = _weighted_solve(*primals, solver=solver)
    system = WeightedSystem(*primals[:3])
    state = stopped(solver.init(system.symmetric_form(), {}) if reusable is None else reusable)
    moving, known = split_by_tangent(primals, tangents)

    def misfit(moving):
        operator, weights, ridge, rhs, _ = eqx.combine(moving, known)
        return rhs - WeightedSystem(operator, weights, ridge).with_jitter(state).apply(A)

    _, t_rhs = eqx.filter_jvp(misfit, (moving,), (tangents,))
    system = system.with_jitter(state)
    t_A = lax.custom_linear_solve(
        system.apply,
        t_rhs,
        lambda _, B: stopped(system).solve(solver, state, B)[0],
        lambda _, B: stopped(system).solve_transposed(solver, state, B)[0],
    )
    return (A, reusable, result, stats), (t_A, *jax.tree.map(lambda _: None, (reusable, result, stats)))


class WeightedSystem(eqx.Module):
    """`W K + diag(shift)`, and its two inverses by way of the symmetric `M = S K S + diag(shift)`, S = sqrt(W)."""

    operator: lx.AbstractLinearOperator
    weights: Float[Array, " n"] | None
    shift: Float[Array, " n"]

    def __init__(self, operator, weights, ridge):
        self.operator, self.weights = operator, weights
        self.shift = jnp.broadcast_to(ridge, (operator.in_size(),))
        if weights is not None:  # the row of a removed point, a_i = 0, may be scaled at will
            self.shift = jnp.where((weights > 0) | (ridge > 0), self.shift, 1)

    def with_jitter(self, state: Any) -> "WeightedSystem":
        return eqx.tree_at(lambda s: s.shift, self, self.shift + state.jitter) if isinstance(state, Factor) else self

    def symmetric_form(self) -> lx.AbstractLinearOperator:
        """M as a matrix if K is one, otherwise as products only."""
        K, root = self.operator, None if self.weights is None else self._roots(self.weights)[0]
        if isinstance(K, FeatureOperator):
            return FeatureOperator(K.features if root is None else root[:, None] * K.features, self.shift)
        return ShiftedOperator(K, root, self.shift)

    def apply(self, A):
        return self._weighted(self._K(A)) + self.shift[:, None] * A

    def misfit(self, A: Array, rhs: Array, known: ArrayLike = 0) -> tuple[Array, Array]:
        """`rhs - known - (W K + diag(shift)) A`, in units of each column of rhs; and the length of that, one for zero."""
        unit = unit_of(rhs)
        rhs, known, A = (times_power_of_two(jnp.asarray(part, rhs.dtype), -unit) for part in (rhs, known, A))
        A = jnp.where(jnp.isfinite(A), A, 0)
        K_A = self._K(A)
        # Without jitter, F^T A may cancel to a few of its digits. Of more than 4095 terms in float32 no more would be left.
        if isinstance(self.operator, FeatureOperator) and extra_bits(len(A), A.dtype) >= 6:
            K_A = jax.vmap(partial(_careful_mv, self.operator), 1, 1)(A)
        size = jnp.linalg.norm(rhs, axis=0)
        return rhs - known - self._weighted(K_A) - self.shift[:, None] * A, jnp.where(size > 0, size, 1)

    def trace(self, P):
        """`tr(P (W K + diag(shift)))` for a dense K."""
        K = self.operator.as_matrix()
        return jnp.sum(P.T * (K if self.weights is None else self.weights[:, None] * K)) + jnp.sum(jnp.diagonal(P) * self.shift)

    def solve(self, solver, state, B):
        """`(W K + shift)^-1 B`, with the results and stats of each column."""
        if self.weights is None:
            return self._columns(solver, state, B)
        root, inverse_root, removed = self._roots(self.weights)
        alone = removed[:, None] * B
        x, report = self._columns(solver, state, inverse_root[:, None] * (B - self.weights[:, None] * self._K(alone)))
        return root[:, None] * x + alone, report

    def solve_transposed(self, solver, state, B):
        """`(K W + shift)^-1 B`, likewise."""
        if self.weights is None:
            return self._columns(solver, state, B)
        root, inverse_root, removed = self._roots(self.weights)
        x, report = self._columns(solver, state, root[:, None] * B)
        x = inverse_root[:, None] * x
        return x + removed[:, None] * (B - self._K(self.weights[:, None] * x)), report

    def _weighted(self, B):
        return B if self.weights is None else self.weights[:, None] * B

    def _K(self, A):
        return jax.vmap(self.operator.mv, 1, 1)(A)

    def _columns(self, solver, state, B):
        def column(b):
            x, result, stats = solver.compute(state, b, {})
            return x, result, {name: jnp.asarray(figure) for name, figure in stats.items() if figure is not None}

        x, result, stats = jax.vmap(column, 1, (1, 0, 0))(B)
        return x, (result, stats)

    def _roots(self, weights) -> tuple[Array, Array, Array]:
        """sqrt(w) and 1 / sqrt(w), zero where w = 0, and 1 / shift, zero elsewhere."""
        on = weights > 0
        root = jnp.sqrt(jnp.where(on, weights, 1))
        return jnp.where(on, root, 0), jnp.where(on, 1 / root, 0), jnp.where(on, 0, 1 / jnp.where(on, 1, self.shift))


def _verdict(results: Any, A: Array, relative: Array, solver: lx.AbstractLinearSolver) -> Any:
    """The result of all columns. Whatever a solver says, it has succeeded only if the true residual says so too."""
    first_failure = jax.tree.map(lambda leaf: leaf[jnp.argmax(results != lx.RESULTS.successful)], results)
    result = promoted(first_failure)
    result = RESULTS.where(result == RESULTS.singular, RESULTS.not_psd, result)
    result = RESULTS.where((result == RESULTS.successful) & ~jnp.all(jnp.isfinite(A)), RESULTS.not_psd, result)
    word = RESULTS.breakdown if isinstance(solver, ConjugateGradient) else RESULTS.inaccurate
    bar = accurate_residual(solver, A.dtype)
    result = RESULTS.where((result == RESULTS.successful) & (jnp.max(relative) > bar), word, result)
    return RESULTS.where(jnp.all(jnp.isfinite(relative)), result, RESULTS.nonfinite)


def _careful_mv(operator: FeatureOperator, vector: Float[Array, " n"]) -> Float[Array, " n"]:
    """`operator.mv(vector)` with more digits where the terms of `F^T vector` cancel; no derivative is of use."""
    unit = exponent_of(jnp.max(jnp.abs(vector)))
    inside = careful_product(operator.features.T, times_power_of_two(vector, -unit))
    return times_power_of_two(product(operator.features, inside), unit) + operator.shift * vector


def accurate_residual(solver: lx.AbstractLinearSolver, dtype: Any) -> float:
    """The relative residual up to which a solution counts as one."""
    iterative = isinstance(solver, ConjugateGradient)
    return 2 * solver.tolerance(dtype) if iterative else float(jnp.finfo(dtype).eps) ** (1 / 3)


def unit_of(columns: Array) -> Array:
    """The exponent of the largest entry of each column."""
    return exponent_of(jnp.max(jnp.abs(columns), axis=0, keepdims=True))


def solve(
    operator: lx.AbstractLinearOperator, rhs: ArrayLike, solver: lx.AbstractLinearSolver | None = None, *, throw: bool = True
) -> Solution[Array]:
    """Solves `A x = rhs` for a positive semidefinite lineax operator, rhs of shape (n,) or (n, p).

    `solver` defaults to `JitteredCholesky()`; any lineax solver for such operators will do. Differentiable to every order in
    the operator and in rhs. Stats: the solver's (`jitter`, or `steps`), and the true relative `residual`.

    Raises (`throw=True`): NonFiniteError, NotPSDError, MaxStepsError, BreakdownError (conjugate gradients on a singular
    system, whose `value` is then the best iterate; a direct solver whose residual is above eps^(1/3)).
    """
    if not lx.is_positive_semidefinite(operator):
        raise ValueError("solve needs an operator tagged lineax.positive_semidefinite_tag: tag it if it is, or use lineax")
    rhs = as_targets(rhs, operator.in_size(), operator.in_structure().dtype, "rhs")
    solver = JitteredCholesky() if solver is None else solver
    suspect = Suspect("the operator", operator.in_size(), operator.as_matrix)
    return finish(_solve(operator, rhs, solver), throw, suspect=suspect)


@compiled
def _solve(operator, rhs, solver):
    ridge = jnp.zeros_like(rhs, shape=())
    value, result, stats = weighted_solve(operator, None, ridge, rhs.reshape(len(rhs), -1), solver)
    value = void_unless_known(value, result)  # NaN above the diagonal is never read by Cholesky
    return Solution(value.reshape(rhs.shape), result, stats)
