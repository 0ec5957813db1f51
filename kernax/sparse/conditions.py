"""The conditions that weights, precisions and noise satisfy at the maximum, and their derivative.

With whitened weights `v = A^1/2 w` and their covariance `P = (I + A^-1/2 J^T B J A^-1/2)^-1`:

    A^-1/2 J^T r - v = 0                            the mode
    1 - P_ii - v_i^2 + 2 shape - 2 rate alpha_i = 0          the precisions (Tipping 2001, eq. 16)
    sum w (y - f)^2 / noise + sum_i (1 - P_ii) - sum w = 0   the noise (eq. 18)

The active set is held fixed.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.derivatives import at_stationary_point, implicit
from kernax.core.base.numerics import eps_of, matmul, stop_gradient, tree_where
from kernax.core.linalg.solves import log_determinant_by_lu, solve_by_lu
from kernax.sparse.basis import second_derivative, slopes, values
from kernax.sparse.observations import AbstractObservations, NoisyObservations


class Root(eqx.Module):
    """The unknowns of the conditions.

    Attributes:
        weights: w, of functions divided by their norms; 0 in slots that are not used.
        log_precisions: those of these weights; 0 in slots that are not used.
        log_noise: 0 for labels.
    """

    weights: Float[Array, " M"]
    log_precisions: Float[Array, " M"]
    log_noise: Float[Array, ""]


class Conditions(eqx.Module):
    """The data of the conditions.

    Attributes:
        design: J, (n, c, M).
        used: which slots hold a function.
        observations: the targets.
        log_noise: the given noise, or the starting point if it is learned.
        learns_noise: whether the noise is learned and is not at its bound.
        shape, rates: those of the Gamma hyperprior of each precision.
    """

    design: Float[Array, "n c M"]
    used: Bool[Array, " M"]
    observations: AbstractObservations
    log_noise: Float[Array, ""]
    learns_noise: Bool[Array, ""]
    shape: Float[Array, ""]
    rates: Float[Array, " M"]

    def deviations(self, root: Root) -> Float[Array, " M"]:
        """`alpha^-1/2`; 0 where not used."""
        return jnp.where(self.used, jnp.exp(-root.log_precisions / 2), 0)

    def whitened(self, root: Root) -> Float[Array, "n c M"]:
        """`J A^-1/2`."""
        return self.design * self.deviations(root)[None, None, :]

    def mode(self, root: Root) -> Float[Array, " M"]:
        """v."""
        return root.weights * jnp.exp(root.log_precisions / 2)

    def system(self, root: Root) -> Float[Array, "M M"]:
        """`I + A^-1/2 J^T B J A^-1/2`."""
        f = values(self.design, root.weights)
        B = self.observations.curvatures(f, jnp.exp(root.log_noise))
        identity = jnp.eye(len(root.weights), dtype=root.weights.dtype)
        return identity + second_derivative(B, self.whitened(root))

    def covariance(self, root: Root) -> Float[Array, "M M"]:
        """P."""
        return _inverse(self.system(root))


def _inverse(system: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """`system^-1`."""
    return solve_by_lu(system, jnp.eye(len(system), dtype=system.dtype))


def log_evidence(root: Root, conditions: Conditions) -> Float[Array, ""]:
    """`log p(y | alpha, noise)`, for labels by Laplace's approximation: `-losses - |v|^2 / 2 - log
    |P^-1| / 2`.
    """
    f = values(conditions.design, root.weights)
    losses = conditions.observations.losses(f, jnp.exp(root.log_noise))
    v = conditions.mode(root)
    return -losses - (jnp.sum(v**2) + log_determinant_by_lu(conditions.system(root))) / 2


class _Figures(eqx.Module):
    """The quantities from which the conditions and their derivatives are computed."""

    v: Float[Array, " M"]
    f: Float[Array, "n c"]
    noise: Float[Array, ""]
    design: Float[Array, "n c M"]  # whitened
    system: Float[Array, "M M"]
    P: Float[Array, "M M"]

    @staticmethod
    def of(root: Root, conditions: Conditions) -> "_Figures":
        f = values(conditions.design, root.weights)
        noise = jnp.exp(root.log_noise)
        system = conditions.system(root)
        P = _inverse(system)
        return _Figures(conditions.mode(root), f, noise, conditions.whitened(root), system, P)


def _left(now: _Figures, root: Root, conditions: Conditions) -> Float[Array, " unknowns"]:
    """The left-hand sides: M for the mode, M for the precisions, and one for the noise."""
    of_mode = slopes(now.design, conditions.observations.residuals(now.f, now.noise)) - now.v
    gamma = 1 - jnp.diagonal(now.P)
    # The terms that the hyperprior adds to the conditions of the precisions.
    left_of_prior = 2 * (conditions.shape - conditions.rates * jnp.exp(root.log_precisions))
    of_precisions = gamma - now.v**2 + left_of_prior
    of_precisions = jnp.where(conditions.used, of_precisions, -root.log_precisions)
    # The condition of the noise over the number of observations; for a given noise, its error.
    of_noise = conditions.log_noise - root.log_noise
    observations = conditions.observations
    if isinstance(observations, NoisyObservations):
        squares = matmul(observations.weights, (observations.y - now.f)[:, 0] ** 2)
        learned = (squares / now.noise + jnp.sum(gamma)) / observations.count - 1
        of_noise = jnp.where(conditions.learns_noise, learned, of_noise)
    return jnp.concatenate([of_mode, of_precisions, of_noise[None]])


def _step(now: _Figures, root: Root, conditions: Conditions) -> Float[Array, " unknowns"]:
    """Newton's step, in `A^1/2 dw`, the logarithms of the precisions and the logarithm of the
    noise.

    The derivative of the left-hand sides follows from `dP_ii / d log alpha_j = P_ii delta_ij -
    P_ij^2`, `dP_ii / d log noise = P_ii - (P^2)_ii` and, for a change of the curvatures, `dP_ii =
    - sum_n X_ni . dB_n X_ni` with `X = J A^-1/2 P`.
    """
    # The rows of the conditions of the mode. At the root A^-1/2 J^T r = v. With log alpha_i the
    # left side changes by -v_i / 2 and the right side by v_i / 2; with log noise, r changes by -r.
    v = now.v
    through_noise = jnp.diagonal(now.P) - jnp.sum(now.P**2, 1)
    of_mode = [-now.system, -jnp.diag(v), -v[:, None]]

    # The rows of the conditions of the precisions, which change with the mode through `1 - P_ii`,
    # by the curvatures, and through v.
    used = conditions.used[:, None]
    n, c, size = now.design.shape
    # d(1 - P_ii) = sum_n X_ni . dB_n X_ni, by the derivative of B in f, df = J A^-1/2 (A^1/2 dw).
    X = matmul(now.design, now.P)
    third = conditions.observations.third_derivative(now.f, now.noise, X)
    through_curvatures = matmul(third.reshape(n * c, size).T, now.design.reshape(n * c, size))
    in_mode = through_curvatures - 2 * jnp.diag(v)
    rates = 2 * conditions.rates * jnp.exp(root.log_precisions)
    # d(1 - P_ii - v_i^2 - 2 rate alpha_i) / d log alpha_j
    #     = P_ij^2 - delta_ij (P_ii + v_i^2 + 2 rate alpha_i).
    own_terms = jnp.diagonal(now.P) + v**2 + rates
    in_precisions = now.P**2 - jnp.diag(own_terms)
    identity = jnp.eye(len(v), dtype=v.dtype)
    of_precisions = [
        jnp.where(used, in_mode, 0),
        jnp.where(used, in_precisions, -identity),
        jnp.where(used, -through_noise[:, None], 0),
    ]

    # The row of the condition of the noise.
    observations = conditions.observations
    count = observations.count
    learned = conditions.learns_noise & isinstance(observations, NoisyObservations)
    # sum w (y - f)^2 / noise changes by -2 r.J dw = -2 v.(A^1/2 dw), and with log noise by minus
    # itself.
    total = jnp.zeros((), v.dtype)
    if isinstance(observations, NoisyObservations):
        squares = matmul(observations.weights, (observations.y - now.f)[:, 0] ** 2)
        total = squares / now.noise + jnp.sum(through_noise)
    of_noise = [
        jnp.where(learned, -2 * v / count, 0)[None],
        jnp.where(learned, -through_noise / count, 0)[None],
        jnp.where(learned, -total / count, -1)[None, None],
    ]
    derivative = jnp.block([of_mode, of_precisions, of_noise])
    return -solve_by_lu(derivative, _left(now, root, conditions))


def _moved(root: Root, conditions: Conditions, step: Float[Array, " unknowns"]) -> Root:
    """The root with a step added."""
    size = len(root.weights)
    return Root(
        # dw = A^-1/2 step.
        root.weights + conditions.deviations(root) * step[:size],
        root.log_precisions + step[size:-1],
        root.log_noise + step[-1],
    )


class _Polish(eqx.Module):
    root: Root
    left: Float[Array, ""]  # the largest left-hand side
    length: Float[Array, ""]  # of the next step, 1 is Newton's
    steps: Int[Array, ""]


_MOST_STEPS = 40
_SHORTEST = 0.01


def _left_at(root: Root, conditions: Conditions) -> Float[Array, ""]:
    """The largest left-hand side. That of the mode is measured by its effect on the weights,
    because it is a difference of terms that are large where the noise is small.
    """
    now = _Figures.of(root, conditions)
    left = _left(now, root, conditions)
    size = len(now.v)
    change = matmul(now.P, left[:size]) / jnp.maximum(1, jnp.max(abs(now.v)))
    return jnp.max(abs(jnp.append(change, left[size:])))


def root_near(start: Root, conditions: Conditions) -> tuple[Root, Float[Array, ""]]:
    """The root near a start, differentiable in the conditions to any order, and the largest
    left-hand side there.
    """

    def solve(args: tuple[Root, Conditions]) -> tuple[Root, Float[Array, ""]]:
        start, conditions = stop_gradient(args)

        def go_on(now: _Polish) -> Array:
            unfinished = (now.left > eps_of(now.left)) & (now.steps < _MOST_STEPS)
            return unfinished & (now.length > _SHORTEST)

        def step_that_lowers(now: _Polish) -> _Polish:
            # A step of Newton's method; the next one is shorter if this one lowers nothing.
            step = _step(_Figures.of(now.root, conditions), now.root, conditions)
            # A step changes no precision, nor the noise, by more than a factor e.
            longest = jnp.max(abs(step[len(now.root.weights) :]))
            root = _moved(now.root, conditions, step * now.length / jnp.maximum(1, longest))
            left = _left_at(root, conditions)
            better = left < now.left
            length = jnp.where(better, jnp.minimum(2 * now.length, 1), now.length / 4)
            root = tree_where(better, root, now.root)
            return _Polish(root, jnp.minimum(left, now.left), length, now.steps + 1)

        zero = jnp.zeros((), jnp.int32)
        left = _left_at(start, conditions)
        first = _Polish(start, left, jnp.ones_like(left), zero)
        end = lax.while_loop(go_on, step_that_lowers, first)
        return end.root, end.left

    def one_step(end: tuple[Root, Float[Array, ""]], args: tuple[Root, Conditions]) -> tuple:
        # One more step of Newton's method has the derivative of the root.
        root, left = end
        _, conditions = args
        step = _step(_Figures.of(root, conditions), root, conditions)
        return _moved(root, conditions, step), stop_gradient(left)

    return implicit(solve, one_step, (stop_gradient(start), conditions))


def evidence_at(root: Root, conditions: Conditions, *, stationary: bool) -> Float[Array, ""]:
    """The log evidence, with the derivative in the data alone where it is stationary in the root.

    It is stationary for numbers with a flat hyperprior, but not in a given noise.
    """
    if not stationary:
        return log_evidence(root, conditions)

    def of_noise(root: Root, conditions: Conditions) -> Float[Array, ""]:
        # As a function of the given noise, if there is one.
        log_noise = jnp.where(conditions.learns_noise, root.log_noise, conditions.log_noise)
        return log_evidence(eqx.tree_at(lambda root: root.log_noise, root, log_noise), conditions)

    return at_stationary_point(of_noise, root, conditions)
