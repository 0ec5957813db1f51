"""Solutions of the linear system of all quadratic learners, and their derivative."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.batching import sequential_vmap
from kernax.core.base.boundary import as_targets
from kernax.core.base.compiled import compiled
from kernax.core.base.derivatives import custom_jvp, split_by_tangent
from kernax.core.base.numerics import (
    expand_to,
    matmul,
    positive_or_one,
    stop_gradient,
    tree_where,
    where_or,
)
from kernax.core.base.parameters import with_arrays
from kernax.core.base.powers import own_unit
from kernax.core.base.solution import RESULTS, Solution, Suspect, finish, void_unless_known
from kernax.core.base.weights import UnitWeights
from kernax.core.linalg.factorisation import AbstractFactor, WeightedSystem
from kernax.core.linalg.linear_solvers import JitteredCholesky, check_is_solver, factor_by
from kernax.core.operators.foreign import as_gram
from kernax.core.operators.operators import WeightedForm


def weighted_solve(
    system: WeightedSystem,
    rhs: Float[Array, "n p"],
    solver: lx.AbstractLinearSolver,
    *,
    options: dict[str, Any] | None = None,
    factor: AbstractFactor | None = None,
) -> tuple[Float[Array, "n p"], Any, dict[str, Array]]:
    """Solves `(W K + diag(shift)) A = rhs` for a positive semidefinite K, differentiable to every
    order in K, the weights, the shift and rhs.

    A point of weight zero is removed exactly, even if its shift is zero, and the derivative in its
    weight is correct. A known `factor` of `system.symmetric_form()` replaces the one that the
    solver would make; `options` are those of lineax.

    Returns the solution, the status over all columns, and stats: those of the solver, and the
    largest true `residual`, `|rhs - T a| / |rhs|`.
    """
    A, _, result, stats = _weighted_solve(system, rhs, factor, options, solver=solver)
    return A, result, stats


@custom_jvp
def _weighted_solve(system, rhs, factor, options, *, solver):
    if system.gram.solves_sequentially:
        return sequential_vmap(_solved, system, rhs, factor, options, solver)
    return _solved(system, rhs, factor, options, solver)


def _solved(system, rhs, factor, options, solver):
    if factor is None:
        factor = factor_by(solver, system.symmetric_form(), options)
    system = system.with_jitter(factor)

    def inner(B: Float[Array, "n p"]) -> tuple[Float[Array, "n p"], Any]:
        # Each column is scaled so that its squares stay in the range of floats. The units are those
        # of `S^-1 rhs`: rhs itself is as large as the weights, and in its units the solution would
        # leave that range for very large or small weights.
        unit = own_unit(B, 0)
        in_units, (status, stats) = factor.solve_and_report(B / unit)
        is_finite = jnp.all(jnp.isfinite(in_units))
        return in_units * unit, (status, stats, is_finite)

    A, (status, stats, is_finite) = system.weights.solve(inner, system.gram.mv, system.shift, rhs)
    # The residual is that of the returned solution: in the units of the problem, entries may be
    # below the smallest float.
    residuals, size = system.residual_and_size(A, rhs)
    # The status over all columns; success also requires a small true residual.
    residual = jnp.max(jnp.linalg.norm(residuals, axis=0) / size)
    unsound = (status == RESULTS.successful) & ~is_finite
    result = tree_where((status == RESULTS.singular) | unsound, RESULTS.not_psd, status)
    claimed = result == RESULTS.successful
    large = residual > factor.accurate_residual(residual.dtype)
    result = tree_where(claimed & large, factor.status_if_inaccurate, result)
    result = tree_where(jnp.isfinite(residual), result, RESULTS.nonfinite)
    # A solution that is only finite in its own units has left the range of floats.
    is_known = jnp.all(jnp.isfinite(A))
    result = tree_where(is_finite & ~is_known, RESULTS.nonfinite, result)
    # With a direct factor finite values suffice, so that jit can omit an unused residual.
    sound = is_known if factor.is_direct else result != RESULTS.nonfinite
    A = where_or(sound, A, jnp.nan)
    stats = stats | {"residual": residual}
    # The factor, if all its leaves are arrays, so that a compiled function can return it.
    returned_factor = factor if all(map(eqx.is_array, jax.tree.leaves(factor))) else None
    return A, returned_factor, result, stats


@_weighted_solve.def_jvp
def _weighted_solve_jvp(primals, tangents, *, solver):
    # From T(args) A = rhs(args), T = W K + shift: T dA = d rhs - dT A. The system is solved in its
    # unsymmetric form, because it is smooth at weight zero and sqrt(W) is not, with the given
    # factor, and in a form that JAX can transpose and differentiate again. A failed solve gives NaN
    # tangents, not an exception.
    outputs = _weighted_solve(*primals, solver=solver)
    A, returned_factor, *_ = outputs
    system, _, _, options = primals
    if returned_factor is None:
        returned_factor = factor_by(solver, system.symmetric_form(), options)
    factor = stop_gradient(returned_factor)
    moving, known = split_by_tangent(primals[:2], tangents[:2])

    def left_of(moving):
        system, rhs = eqx.combine(moving, known)
        return rhs - system.with_jitter(factor).apply(A)

    _, left = eqx.filter_jvp(left_of, (moving,), (tangents[:2],))
    system = system.with_jitter(factor)
    fixed = stop_gradient(system)
    dA = lax.custom_linear_solve(
        system.apply,
        left,
        lambda _, B: fixed.solve(factor, B),
        lambda _, B: fixed.solve_transposed(factor, B),
    )
    return outputs, (dA, *jax.tree.map(lambda _: None, outputs[1:]))


def quotient(pull: Array, sums: Array, otherwise: ArrayLike = 0) -> Array:
    """`sums / pull` where `pull` is positive; `otherwise` where it is zero."""
    none = pull <= 0  # false for NaN
    return jnp.where(none, otherwise, sums / jnp.where(none, 1, pull))


def without_border(
    of_rhs: Float[Array, "n *p"],
    of_border: Float[Array, "n *q"],
    total: ArrayLike = 0,
    *,
    along: Float[Array, " n"] | None = None,
    bias_of: Callable[[Array, Array], Array] = quotient,
) -> tuple[Float[Array, "n *p"], Float[Array, "*p"]]:
    """The solution A and b of the bordered system `T A + border b = rhs`, `along . A = total`, from
    `T^-1 rhs` and `T^-1 border`.

    It determines the unpenalised constants of an expansion. A border of one column is (n,), and
    every column of A has its own number b. If T acts on the c columns of A together, the border has
    c columns, one for each constant: (n, c, c), where the last axis is that of b.

    `along` is by default one for each point. `bias_of(pull, sums)` solves `pull b = sums` for a
    number or matrix (c, c) `pull`, and chooses b if that is zero, as it is if all weights are zero.
    """
    along = jnp.ones_like(of_border, shape=len(of_border)) if along is None else along
    # Use units of the border's solution, because with a tiny ridge its sum would overflow, and b =
    # y / inf would be zero.
    size = stop_gradient(jnp.max(jnp.abs(of_border)))
    size = positive_or_one(size)
    # A = T^-1 rhs - T^-1 border b and along.A = total give b by
    # (along.T^-1 border) b = along.T^-1 rhs - total, both sides of which are divided by the size.
    pull = jnp.sum(expand_to(along, of_border) * (of_border / size), 0)
    sums = jnp.sum(expand_to(along, of_rhs) * (of_rhs / size), 0) - total / size
    b = bias_of(pull, sums)
    if of_border.ndim == 1:
        return of_rhs - expand_to(of_border, of_rhs) * jnp.expand_dims(b, 0), b
    return of_rhs - matmul(of_border, b), b


def solve(
    operator: lx.AbstractLinearOperator,
    rhs: ArrayLike,
    solver: lx.AbstractLinearSolver | None = None,
    *,
    options: dict[str, Any] | None = None,
    throw: bool = True,
) -> Solution[Array]:
    """Solves `A x = rhs` for a positive semidefinite lineax operator, rhs of shape (n,) or (n, p).

    `solver` defaults to `JitteredCholesky()`. Any lineax solver for such operators is accepted,
    with its `options`, such as a preconditioner. The solution is differentiable to every order in
    the operator and in rhs. Stats: those of the solver (`jitter`, or `steps`), and the largest true
    relative `residual` of all columns.

    Raises ValueError for an operator that is not tagged as positive semidefinite, a rhs of another
    shape, and for an argument that is not an operator or not a solver. With `throw=True` a failed
    solve raises NonFiniteError, NotPSDError, MaxStepsError or BreakdownError: the last of these for
    conjugate gradients on a singular system, whose `value` with `throw=False` is the best iterate,
    and for a direct solver whose residual is above eps^(1/3).

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> operator = kernax.gram_operator(kernax.RBF(0.3), X, ridge=0.1)
        >>> solution = kernax.solvers.solve(operator, jnp.ones(5))
        >>> jnp.round(solution.value, 2)
        Array([0.74, 0.09, 0.46, 0.09, 0.74], dtype=float64)
        >>> bool(solution.stats["residual"] < 1e-10)
        True
    """
    if not isinstance(operator, lx.AbstractLinearOperator):
        raise ValueError(
            "operator must be one of lineax, such as gram_operator(kernel, X, ridge=0.1), but is "
            f"of type {type(operator).__name__}: lineax.MatrixLinearOperator(K, "
            "lineax.positive_semidefinite_tag) converts an array"
        )
    if not lx.is_positive_semidefinite(operator):
        raise ValueError(
            "solve needs an operator tagged lineax.positive_semidefinite_tag: tag it if it is "
            "positive semidefinite, else use lineax.linear_solve"
        )
    rhs = as_targets(rhs, operator.in_size(), operator.in_structure().dtype, "rhs")
    check_is_solver(solver)
    solver = JitteredCholesky() if solver is None else solver
    suspect = lambda: Suspect("the operator", operator.in_size(), operator.as_matrix)
    solution = _solve(_system_of(operator), rhs, with_arrays(solver), options)
    return finish(solution, throw, suspect=suspect)


def _system_of(operator: lx.AbstractLinearOperator) -> WeightedSystem:
    """The system of an operator. For `K + diag(shift)` the shift is kept separately."""
    if isinstance(operator, WeightedForm) and not operator.weights.removes:
        return WeightedSystem(operator.gram, operator.weights, operator.shift)
    gram = as_gram(operator)
    n = gram.in_size()
    dtype = gram.in_structure().dtype
    return WeightedSystem(gram, UnitWeights(n, dtype), jnp.zeros(n, dtype))


@compiled
def _solve(system, rhs, solver, options):
    value, result, stats = weighted_solve(
        system, rhs.reshape(len(rhs), -1), solver, options=options
    )
    value = void_unless_known(value, result)  # NaN above the diagonal is never read by Cholesky
    return Solution(value.reshape(rhs.shape), result, stats)
