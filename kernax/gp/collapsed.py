"""The collapsed bound of inducing points for normal observations, with the optimal distribution of
the values there, and its derivative in two products of n m^2 operations.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.derivatives import custom_jvp, with_zeros
from kernax.core.base.numerics import (
    eps_of,
    matmul,
    positive_or_one,
    safe_sqrt,
    stop_gradient,
    sum_of_rows,
)
from kernax.core.linalg.cholesky import cholesky_factor
from kernax.core.linalg.density import cholesky
from kernax.core.linalg.low_rank import factor_plus_identity
from kernax.core.linalg.solves import solve_lower, solve_lower_transposed
from kernax.core.operators.operators import DenseGram
from kernax.gp.inducing import Projection, times_inverse_transposed


class NormalObservations(eqx.Module):
    """Observations: r = y - m(X), one column per output, and the weight and noise of each row."""

    targets: Float[Array, "n p"]
    weights: Float[Array, " n"]
    noise: Float[Array, " n"]

    @property
    def gains(self) -> Float[Array, " n"]:
        """`w / noise`."""
        return self.weights / self.noise


class BestValues(eqx.Module):
    """The optimal distribution of the whitened values at Z, `N(mean, B^-1)` with `B = I + S`.

    Attributes:
        mean: `B^-1 U diag(gains) r`, one column per output.
        square: `S = U diag(gains) U^T`.
        inside: the Cholesky factor of B.
        residual: the relative residual of the system for the mean.
        rounding: the rounding error of `log |B|`.
        jitter: the number that was added to the diagonal of B; where it is positive, the
            distribution is that of another model.
    """

    mean: Float[Array, "m p"]
    square: Float[Array, "m m"]
    inside: Float[Array, "m m"]
    residual: Float[Array, ""]
    rounding: Float[Array, ""]
    jitter: Float[Array, ""]

    @property
    def explained(self) -> Float[Array, "m m"]:
        """`I - B^-1`, without cancellation."""
        # I - B^-1 = B^-1 (B - I) = B^-1 S.
        return _solved_inside(self.inside, self.square)


def best_values(U: Float[Array, "m n"], seen: NormalObservations) -> BestValues:
    """The optimal distribution; NaN where B has no Cholesky factor."""
    gains = seen.gains
    # B = I + U diag(gains) U^T.
    square = _weighted_square(U, gains)
    B = square + jnp.eye(len(U), dtype=U.dtype)
    # Derivatives treat the factor as a constant; `cholesky` adds its derivatives in B.
    fixed_B, fixed_U, fixed_gains = stop_gradient((B, U, gains))
    if B.dtype == jnp.float64:
        factor = cholesky_factor(DenseGram(fixed_B))
        rounding = factor.rounding(jnp.diagonal(fixed_B))
    else:
        # In float32 a large U would round the identity away. B = I + A A^T with A = U
        # diag(gains)^1/2 has a factor by a QR of A, which takes longer.
        factor = factor_plus_identity(fixed_U * safe_sqrt(fixed_gains)[None, :])
        sizes = jnp.sqrt(1 + fixed_gains * sum_of_rows(fixed_U**2))
        rounding = eps_of(B) * jnp.linalg.norm(sizes)
    inside = jnp.where(factor.exists, cholesky(B, factor), jnp.nan)
    # B mean = U diag(gains) r, with its relative residual.
    rhs = matmul(U, gains[:, None] * seen.targets)
    mean = _solved_inside(inside, rhs)
    left = jnp.linalg.norm(rhs - matmul(B, mean))
    residual = left / positive_or_one(jnp.linalg.norm(rhs))
    return BestValues(mean, square, inside, residual, rounding, jnp.asarray(factor.jitter))


def _solved_inside(inside: Float[Array, "m m"], rhs: Float[Array, "m p"]) -> Float[Array, "m p"]:
    """`B^-1 rhs`."""
    return solve_lower_transposed(inside, solve_lower(inside, rhs))


def bound_of(of: Projection, seen: NormalObservations, best: BestValues) -> Float[Array, ""]:
    """The log density under `Q + noise`, minus the trace of the unexplained variance."""
    given = _Given(of.at.lower, of.cross, of.variance, seen)
    return _bound(given, of.features, best)


class _Given(eqx.Module):
    """The arguments of the bound: L, k(Z, X), k(x, x) and the observations."""

    lower: Float[Array, "m m"]
    cross: Float[Array, "m n"]
    variance: Float[Array, " n"]
    seen: NormalObservations


@custom_jvp
def _bound(given: _Given, U: Float[Array, "m n"], best: BestValues) -> Float[Array, ""]:
    """The bound; U and the optimal distribution are functions of the first argument."""
    # log |U^T U + diag(1 / gains)| = log |B| - sum log gains, and log |B| = 2 sum_i log inside_ii.
    determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(best.inside)))
    return _without_determinant(given, U, best) - best.mean.shape[1] * determinant / 2


def _without_determinant(
    given: _Given, U: Float[Array, "m n"], best: BestValues
) -> Float[Array, ""]:
    """The bound without `log |B|`."""
    seen = given.seen
    errors = seen.targets - matmul(U.T, best.mean)
    # r.C^-1 r with C = U^T U + diag(1 / gains) is the least sum_i gains_i (r_i - u_i.v)^2 + |v|^2,
    # at v = mean: a sum of squares, in which nothing cancels.
    square = jnp.sum(seen.gains[:, None] * errors**2) + jnp.sum(best.mean**2)
    # tr(diag(gains) (K - Q)) = sum_i gains_i (k(x_i, x_i) - |u_i|^2), once for each column.
    left = given.variance - sum_of_rows(U**2)
    constant = jnp.sum(seen.weights * jnp.log(2 * math.pi * seen.noise))
    of_each_column = constant + jnp.sum(seen.gains * left)
    return -(square + best.mean.shape[1] * of_each_column) / 2


@_bound.def_jvp
def _bound_jvp(primals, tangents):
    # The slopes already include the tangents of U and of the optimal distribution.
    given, U, best = primals
    d_given, _, _ = with_zeros(primals, tangents)
    # With e = r - U^T mean and `T = (I - B^-1) U`, the derivative in U is `D = mean (gains e)^T +
    # p T gains`, because the mean is optimal; that in k(Z, X) is `L^-T D`, and that in L is
    # `-L^-T D U^T`. There `D U^T = mean mean^T + p (I - B^-1) S` needs no product with all
    # points.
    p = best.mean.shape[1]
    gains = given.seen.gains
    weighted = gains[:, None] * (given.seen.targets - matmul(U.T, best.mean))
    # T = (I - B^-1) U, so that U - T = B^-1 U in the slopes of log |B|.
    T = matmul(best.explained, U)
    # D = mean (gains e)^T + p T gains.
    in_U = matmul(best.mean, weighted.T) + p * T * gains[None, :]
    # L^-T D in C = k(Z, X), and its product with -U^T in L, as dU = L^-1 (dC - dL U).
    in_cross = times_inverse_transposed(given.lower, in_U)
    in_lower = -solve_lower_transposed(given.lower, _square_of_slopes(best))
    in_gains = -p * sum_of_rows(U * (U - T)) / 2  # through log |B|

    # -p/2 log |B| has the derivative -p/2 u_i.B^-1 u_i in gain i. Written as a term linear in the
    # gains, it also differentiates the weights and the noise, which form the gains.
    def bound_of_observations(variance: Array, seen: NormalObservations) -> Array:
        seen_alone = _Given(given.lower, given.cross, variance, seen)
        return _without_determinant(seen_alone, U, best) + jnp.sum(in_gains * seen.gains)

    directions = d_given.variance, d_given.seen
    _, of_observations = jax.jvp(bound_of_observations, (given.variance, given.seen), directions)
    # <dF/dC, dC> + <dF/dL, dL> of the bound F.
    of_points = jnp.sum(in_cross * d_given.cross) + jnp.sum(in_lower * d_given.lower)
    return _bound(*primals), of_observations + of_points


def _square_of_slopes(best: BestValues) -> Float[Array, "m m"]:
    """`D U^T`, D the derivative in U."""
    # D U^T = mean (gains e)^T U^T + p T gains U^T, where U (gains e) = mean as B mean = U gains r,
    # and T gains U^T = (I - B^-1) S.
    of_determinant = best.mean.shape[1] * matmul(best.explained, best.square)
    return matmul(best.mean, best.mean.T) + of_determinant


def rounding_of_bound(
    of: Projection, seen: NormalObservations, best: BestValues
) -> Float[Array, ""]:
    """The rounding error of the bound: of `log |B|`, of `k(x, x) - |u(x)|^2`, where terms cancel,
    and of the entries of k(Z, Z).
    """
    eps = eps_of(of.features)
    # left + 2 |u|^2 = k(x, x) + |u(x)|^2 is the sum of the two terms, and left their difference.
    of_trace = eps * _norm(seen.gains * (of.left + 2 * sum_of_rows(of.features**2))) / 2
    # The derivative in k(Z, Z) follows from that in L; both are in units of the largest entry.
    largest = jnp.sqrt(jnp.max(jnp.sum(of.at.lower**2, 1)))
    lower = of.at.lower / positive_or_one(largest)
    # With L L^T = k(Z, Z) and the derivative -L^-T M in L, M = D U^T, that in k(Z, Z) is
    # -L^-T M L^-1 / 2.
    half = solve_lower_transposed(lower, _square_of_slopes(best))
    of_entries = eps * _norm(solve_lower_transposed(lower, half.T)) / 2
    p = best.mean.shape[1]
    return jnp.hypot(p * jnp.hypot(best.rounding, of_trace), of_entries)


def _norm(values: Array) -> Float[Array, ""]:
    """The root of the sum of squares, computed so that the sum does not overflow."""
    unit = positive_or_one(jnp.max(abs(values)))
    return unit * jnp.linalg.norm(values / unit)


@custom_jvp
def _weighted_square(U: Array, gains: Array) -> Array:
    """`U diag(gains) U^T`."""
    return matmul(U * gains[None, :], U.T)


@_weighted_square.def_jvp
def _weighted_square_jvp(primals, tangents):
    # One product and its transpose: in the backward pass one product of n m^2, not two.
    U, gains = primals
    dU, d_gains = with_zeros(primals, tangents)
    # d(U G U^T) = H + H^T with H = (dU G + U dG / 2) U^T, G = diag(gains).
    half = matmul(dU * gains[None, :] + U * (d_gains[None, :] / 2), U.T)
    return _weighted_square(U, gains), half + half.T
