"""The factor of `T = W K + diag(noise)`, and the log density of data under it, for Gaussian models.

`log_density` and `cholesky` each have one derivative rule, `factor_of` is a constant for
derivatives, and all share one factorisation. `W = diag(weights)` may have zeros, and there is no
division by them.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float

from kernax.core.base.derivatives import custom_jvp, split_by_tangent
from kernax.core.base.numerics import matmul, stop_gradient, tree_where
from kernax.core.base.powers import own_unit
from kernax.core.base.solution import RESULTS
from kernax.core.linalg.cholesky import CholeskyFactor, cholesky_factor
from kernax.core.linalg.factorisation import AbstractFactor, WeightedSystem
from kernax.core.linalg.linear_solvers import factor_by, factorise
from kernax.core.linalg.solves import solve_lower
from kernax.core.operators.operators import DenseGram, is_finite


def factor_of(
    system: WeightedSystem,
    solver: lx.AbstractLinearSolver | None = None,
    *,
    for_inverse: bool = False,
) -> tuple[AbstractFactor, Any, dict[str, Array]]:
    """The factor of `S K S + diag(noise)`, S = sqrt(W), for the functions below, without a
    derivative. The solver computes it, or `factorise` if the solver is None.

    It also returns the result and stats: the `jitter` that was added to the diagonal, the
    `rounding` error of the log density in nats, if the factor has a determinant, and statistics of
    the factor. With `for_inverse` the `rounding` is that of the entries of the inverse.
    """
    form = stop_gradient(system.symmetric_form())
    factor = factorise(form) if solver is None else factor_by(solver, form)
    diagonal = lx.diagonal(form)
    finite = jnp.all(jnp.isfinite(diagonal)) & is_finite(system.gram)
    failure = tree_where(finite, factor.status_without_factor, RESULTS.nonfinite)
    result = tree_where(jnp.asarray(factor.exists), RESULTS.successful, failure)
    stats = {"jitter": factor.jitter} | factor.figures()
    if for_inverse:
        stats = stats | {"rounding": factor.rounding_of_inverse(diagonal + factor.jitter)}
    elif factor.knows_determinant:
        stats = stats | {"rounding": factor.rounding(diagonal + factor.jitter)}
    return factor, result, stats


def rounding_of_inverse(system: WeightedSystem, factor: AbstractFactor) -> Float[Array, ""]:
    """The relative rounding error of the entries of the inverse of a system."""
    diagonal = stop_gradient(system.gram.diagonal() * system.weights.values + system.shift)
    return factor.rounding_of_inverse(diagonal + factor.jitter)


def cholesky(A: Float[Array, "n n"], factor: CholeskyFactor) -> Float[Array, "n n"]:
    """The lower Cholesky factor of a symmetric A, from `factor`, with its derivative in A."""
    return _cholesky(A, stop_gradient(factor))


@custom_jvp
def _cholesky(A, factor):
    return factor.lower


@_cholesky.def_jvp
def _cholesky_jvp(primals, tangents):
    # L L^T = A gives L^-1 dL + (L^-1 dL)^T = L^-1 dA L^-T. Its lower triangle, with half of its
    # diagonal, is L^-1 dL.
    L = _cholesky(*primals)
    dA = tangents[0]
    if dA is None:
        return L, None
    inner = solve_lower(L, solve_lower(L, dA).T)
    halved = (jnp.tril(inner) + jnp.tril(inner, -1)) / 2
    return L, matmul(L, halved)


def root_of_covariance(covariance: Float[Array, "c c"]) -> Float[Array, "c c"]:
    """A matrix L with `L L^T = covariance`; zero if the covariance is zero."""
    # If the covariance is zero, any factor times zero serves.
    size = jnp.trace(covariance)
    known = ~(size <= 0)  # or NaN
    identity = jnp.eye(len(covariance), dtype=covariance.dtype)
    sound = jnp.where(known, covariance, identity)
    root = cholesky(sound, cholesky_factor(DenseGram(stop_gradient(sound))))
    return jnp.where(known, root, 0)


def log_density(
    system: WeightedSystem,
    y: Float[Array, "n p"],
    factor: AbstractFactor,
    solution: Float[Array, "n p"] | None = None,
) -> Float[Array, ""]:
    """`log N(S y | 0, S K S + diag(noise)) + 1/2 sum (1 - w) log(2 pi noise)`, summed over the
    columns of y; S = sqrt(W).

    Weights are powers of the likelihood: two is the observation repeated, zero the observation
    removed. With `P = T^-1` and `a = P W y` it is `-1/2 (log |T| + y.a) - 1/2 sum (w log 2 pi - (1
    - w) log noise)`. Here `y.a` is a sum of squares of whitened data, without cancellation, or
    comes from a solution if the factor cannot whiten. NaN if there is no factor.

    Arguments:
        solution: a, if it is known, which saves an iterative factor a solve.
    """
    factor = stop_gradient(factor)
    square = None
    if solution is not None and not factor.is_direct:
        square = stop_gradient(_square_by(system.with_jitter(factor), y, solution))
    return _log_density(system, y, factor, square)


@custom_jvp
def _log_density(system, y, factor, square):
    system = system.with_jitter(factor)
    if square is None:
        # `y.a`.
        if not factor.is_direct:
            square = _square_by(system, y, system.solve(factor, system.weights.times(y)))
        else:
            # y.a = (S y).M^-1 (S y) with the symmetric M = S K S + diag(noise), as P W = S M^-1 S.
            data = system.weights.times_roots(y)
            unit = own_unit(data, 0)
            white = factor.whitened(data / unit)
            unit_of_white = own_unit(white, 0)
            # With V^T V = B^T M^-1 B, b = S y and v in units of their own: y.a = u^2 |v|^2, where u
            # is the product of the units.
            squares = jnp.sum((white / unit_of_white) ** 2, 0, keepdims=True)
            of_both = unit * unit_of_white
            square = jnp.sum(squares * of_both * of_both)
    return _density(system, factor.log_determinant(), square, y.shape[1])


def _square_by(system: WeightedSystem, y: Float[Array, "n p"], a: Float[Array, "n p"]) -> Array:
    """`y.a` from an approximate a, accurate to second order in its error."""
    # With a = S x and W y - T a = S r it is y.a + x.r + r.M^-1 r. The last term is omitted, because
    # it is of second order in the error of a.
    weights = system.weights
    off = weights.times(y) - system.apply(a)
    return jnp.sum(y * a) + jnp.sum(weights.over_roots(a) * weights.over_roots(off))


@_log_density.def_jvp
def _log_density_jvp(primals, tangents):
    # JAX differentiates expressions that are linear in T, W and y for most factors. Their constants
    # are functions of the primals, so the second derivative is exact.
    system, y, factor, _ = primals
    terms = factor.terms_of_density(system, y)
    moving, known = split_by_tangent(primals[:2], tangents[:2])

    def linear(moving):
        system, y = eqx.combine(moving, known)
        determinant, square = terms(system, y)
        density = _density(system.with_jitter(factor), determinant, square, y.shape[1])
        return density, square

    (_, square), (tangent, _) = eqx.filter_jvp(linear, (moving,), (tangents[:2],))
    # If the value needs a solve, it uses the one of the derivative.
    square = None if factor.is_direct else stop_gradient(square)
    return _log_density(system, y, factor, square), tangent


def log_determinant(system: WeightedSystem, factor: AbstractFactor) -> Float[Array, ""]:
    """`log |T|`, differentiable to every order; NaN if there is no factor."""
    return _log_determinant(system, stop_gradient(factor))


@custom_jvp
def _log_determinant(system, factor):
    return factor.log_determinant()


@_log_determinant.def_jvp
def _log_determinant_jvp(primals, tangents):
    # d log|T| = tr(P dT) is the derivative of an expression linear in T, with P = T^-1 held fixed.
    system, factor = primals
    P = factor.inverse_of(system)
    moving, known = split_by_tangent(system, tangents[0])

    def linear(moving):
        return P.trace_with(eqx.combine(moving, known).with_jitter(factor))

    _, tangent = eqx.filter_jvp(linear, (moving,), (tangents[0],))
    return _log_determinant(*primals), tangent


def _density(system: WeightedSystem, determinant: Array, square: Array, columns: int) -> Array:
    """`-1/2 (log |T| + y.a) - 1/2 sum (w log 2 pi - (1 - w) log noise)`."""
    log_tau = math.log(2 * math.pi)
    if system.weights.removes:
        weights = system.weights.values
        noisy = system.shift > 0
        removed = (1 - weights) * jnp.log(jnp.where(noisy, system.shift, 1))
        # A fraction of an observation without noise has no density.
        removed = jnp.where(noisy | (weights == 1), removed, jnp.nan)
        constant = -jnp.sum(weights * log_tau - removed) / 2
    else:
        constant = jnp.asarray(-len(system.shift) * log_tau / 2, system.shift.dtype)
    return -(columns * determinant + square) / 2 + columns * constant
