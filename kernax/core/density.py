"""What Gaussian models need of `T = W K + diag(noise)`: its inverse, its factor, and the log density of data under it.

Each has one derivative rule, and all can share one factorisation. As in `linalg`, `W = diag(weights)` may hold zeros, and
nothing is divided by them.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float

from kernax.core.linalg import WeightedSystem, unit_of
from kernax.core.numerics import product, split_by_tangent, stopped
from kernax.core.powers import times_power_of_two
from kernax.core.solution import RESULTS
from kernax.core.solvers import Factor, JitteredCholesky, factorise, solve_lower


def factor_of(
    operator: lx.AbstractLinearOperator, weights: Float[Array, " n"] | None, noise: Float[Array, "*n"]
) -> tuple[Factor, Any, dict[str, Array]]:
    """The factor of `S K S + diag(noise)`, S = sqrt(W), that the functions below take; without a derivative.

    Also the result, and stats: the `jitter` that was added to the diagonal, and the `rounding` of what was factorised.
    """
    form = stopped(WeightedSystem(operator, weights, noise).symmetric_form())
    factor = factorise(form)
    diagonal = lx.diagonal(form)
    finite = jnp.all(jnp.isfinite(diagonal)) & jnp.all(jnp.isfinite(operator.as_matrix()))
    result = RESULTS.where(factor.exists, RESULTS.successful, RESULTS.where(finite, RESULTS.not_psd, RESULTS.nonfinite))
    return factor, result, {"jitter": factor.jitter, "rounding": factor.rounding(diagonal + factor.jitter)}


def cholesky(A: Float[Array, "n n"], factor: Factor) -> Float[Array, "n n"]:
    """The lower factor of a symmetric A, found already, with its derivative."""
    return _cholesky(A, stopped(factor))


@eqx.filter_custom_jvp
def _cholesky(A, factor):
    return factor.lower


@_cholesky.def_jvp
def _cholesky_jvp(primals, tangents):
    # From L L^T = A: L^-1 dL + (L^-1 dL)^T = L^-1 dA L^-T, whose lower triangle, half of its diagonal, is L^-1 dL.
    L, dA = _cholesky(*primals), tangents[0]
    if dA is None:
        return L, None
    inner = solve_lower(L, solve_lower(L, dA).T)
    return L, product(L, jnp.tril(inner) - jnp.diag(jnp.diagonal(inner) / 2))


def weighted_inverse(
    operator: lx.AbstractLinearOperator, weights: Float[Array, " n"] | None, noise: Float[Array, "*n"], factor: Factor
) -> Float[Array, "n n"]:
    """`T^-1 = (W K + diag(noise))^-1`, NaN where there is no factor."""
    return _inverse(operator, weights, noise, stopped(factor))


@eqx.filter_custom_jvp
def _inverse(operator, weights, noise, factor):
    if weights is None:
        return factor.inverse()
    system = WeightedSystem(operator, weights, noise).with_jitter(factor)
    return system.solve(JitteredCholesky(), factor, jnp.eye(len(weights), dtype=weights.dtype))[0]


@_inverse.def_jvp
def _inverse_jvp(primals, tangents):
    # dP = -P dT P.
    P, factor = _inverse(*primals), primals[3]
    moving, known = split_by_tangent(primals[:3], tangents[:3])
    _, t_TP = eqx.filter_jvp(
        lambda moving: WeightedSystem(*eqx.combine(moving, known)).with_jitter(factor).apply(P), (moving,), (tangents[:3],)
    )
    return P, -product(P, t_TP)


def log_density(
    operator: lx.AbstractLinearOperator,
    weights: Float[Array, " n"] | None,
    noise: Float[Array, "*n"],
    y: Float[Array, "n p"],
    factor: Factor,
) -> Float[Array, ""]:
    """`log N(S y | 0, S K S + diag(noise)) + 1/2 sum (1 - w) log(2 pi noise)`, summed over the columns of y; S = sqrt(W).

    Weights are powers of the likelihood: two is the observation repeated, zero the observation removed. With `P = T^-1` and
    `a = P W y` it is `-1/2 (log |T| + y.a) - 1/2 sum (w log 2 pi - (1 - w) log noise)`. NaN where there is no factor.
    """
    return _log_density(operator, weights, noise, y, stopped(factor))


@eqx.filter_custom_jvp
def _log_density(operator, weights, noise, y, factor):
    system = WeightedSystem(operator, weights, noise).with_jitter(factor)
    unit = unit_of(y)  # y.a may be in the range of floats where its terms are not
    y = times_power_of_two(y, -unit)
    a = system.solve(JitteredCholesky(), factor, y if weights is None else weights[:, None] * y)[0]
    square = jnp.sum(times_power_of_two(jnp.sum(y * a, axis=0, keepdims=True), 2 * unit))
    return -(y.shape[1] * factor.log_determinant() + square) / 2 + y.shape[1] * _constant(weights, system.shift)


@_log_density.def_jvp
def _log_density_jvp(primals, tangents):
    # d log|T| = tr(P dT). With b = P^T y and a = W b, d(y.P W y) = 2 a.dy + b.dW y - b.dT a (P W is symmetric). Both are the
    # derivatives of expressions linear in T, W and y, with P, a and b held fixed, of which JAX takes care; P and b are
    # functions of the primals, so that the second derivative is exact as well.
    P, factor = _inverse(*primals[:3], primals[4]), primals[4]
    b = product(P.T, primals[3])
    a = b if primals[1] is None else primals[1][:, None] * b
    moving, known = split_by_tangent(primals[:4], tangents[:4])

    def linear(moving):
        operator, weights, noise, y = eqx.combine(moving, known)
        system, p = WeightedSystem(operator, weights, noise).with_jitter(factor), y.shape[1]
        square = jnp.sum(b * ((y if weights is None else weights[:, None] * y) - system.apply(a))) + jnp.sum(a * y)
        return -(p * system.trace(P) + square) / 2 + p * _constant(weights, system.shift)

    _, tangent = eqx.filter_jvp(linear, (moving,), (tangents[:4],))
    return _log_density(*primals), tangent


def _constant(weights, shift):
    """`-1/2 sum (w log 2 pi - (1 - w) log noise)`."""
    log_tau = math.log(2 * math.pi)
    if weights is None:
        return jnp.asarray(-len(shift) * log_tau / 2, shift.dtype)
    removed = (1 - weights) * jnp.log(jnp.where(shift > 0, shift, 1))
    removed = jnp.where((shift > 0) | (weights == 1), removed, jnp.nan)  # a fraction of an observation without noise
    return -jnp.sum(weights * log_tau - removed) / 2
