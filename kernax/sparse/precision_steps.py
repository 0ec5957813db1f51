"""The step of a single precision that raises the evidence most (Tipping & Faul 2003).

As a function of one precision alone the log evidence is, up to a constant, `l(alpha) = (log alpha -
log(alpha + s) + q^2 / (alpha + s)) / 2` (eq. 18), where s and q are the sparsity and the quality of
the function, computed without the function itself. It has its maximum at `s^2 / (q^2 - s)` if `q^2
> s`, else at infinity, where the function is not in the model (eqs. 20 and 21).
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.numerics import eps_of, positive_or_one
from kernax.sparse.basis import ActiveFunctions, curved, values
from kernax.sparse.solver import RelevanceProblem


class EvidenceState(eqx.Module):
    """The quantities on which the evidence depends while noise and curvatures stay fixed.

    Attributes:
        active: the functions in the model.
        covariance: Sigma, the covariance of their weights.
        products: `Phi^T B J`, the second derivatives of the losses between all m c candidates and
            the active functions.
        sparsity, quality: `S_j = phi_j^T C^-1 phi_j` and `Q_j = phi_j^T C^-1 t` of the candidates
            (eqs. 22 and 23), C the covariance of the targets.
        curvatures: B, those of the losses at each point.
        diagonal: `phi_j^T B phi_j`.
        steps: the number of steps so far.
    """

    active: ActiveFunctions
    covariance: Float[Array, "M M"]
    products: Float[Array, "k M"]
    sparsity: Float[Array, " k"]
    quality: Float[Array, " k"]
    curvatures: Float[Array, "n c c"]
    diagonal: Float[Array, " k"]
    steps: Int[Array, ""]

    @property
    def is_accurate(self) -> Bool[Array, ""]:
        """Whether updates of rank one are still accurate: rounding then leaves half of the digits
        in solves with `I + A^-1/2 J^T B J A^-1/2`, which has eigenvalues between 1 and its trace.
        """
        own = jnp.max(abs(self.products), 0)  # that of a function with itself
        trace = jnp.sum(jnp.where(self.active.used, own / self.active.precisions, 0))
        return trace < eps_of(trace) ** -0.5


class Action(eqx.Module):
    """A step: one function gets a new precision.

    Attributes:
        gain: by how much the log evidence rises.
        slot: the slot of the function among the active ones.
        candidate: the number of the function.
        is_new: whether the function is added.
        precision: the new precision; inf if the function is deleted.
        left_out: the gain of the best function for which there is no slot.
    """

    gain: Float[Array, ""]
    slot: Int[Array, ""]
    candidate: Int[Array, ""]
    is_new: Bool[Array, ""]
    precision: Float[Array, ""]
    left_out: Float[Array, ""]


class Changes(eqx.Module):
    """The gain from setting the precision of each function to its best value.

    Attributes:
        gains: by how much the log evidence rises; -inf where the change is not allowed.
        precisions: the best values; inf where the function is best left out.
    """

    gains: Float[Array, " functions"]
    precisions: Float[Array, " functions"]


def best_action(problem: RelevanceProblem, now: EvidenceState, tol: ArrayLike) -> Action:
    """The step with the largest gain; among equal ones a step that adds no function, else the
    first.

    A function must add more than `tol` nats to become active.
    """
    of_active = _of_taken(problem, now, tol / 10)
    of_new = _of_new(problem, now, tol)
    is_full = jnp.all(now.active.used)
    best_left = jnp.where(is_full, jnp.max(of_new.gains), 0)
    gains_of_new = jnp.where(is_full, -jnp.inf, of_new.gains)
    gains = jnp.append(of_active.gains, gains_of_new)
    precisions = jnp.append(of_active.precisions, of_new.precisions)
    # The first of those that are the largest up to rounding.
    largest = jnp.max(gains)
    best = jnp.argmax(gains >= largest - eps_of(largest) ** 0.5 * abs(largest)).astype(jnp.int32)
    # The active functions are counted first, then all candidates. A new one gets the first free
    # slot.
    active = now.active
    size = len(active.used)
    is_new = best >= size
    slot = jnp.where(is_new, jnp.argmin(active.used).astype(jnp.int32), best)
    of_taken = active.candidates(problem.observations.outputs)[slot]
    return Action(
        gain=gains[best],
        slot=slot,
        candidate=jnp.where(is_new, best - size, of_taken),
        is_new=is_new,
        precision=precisions[best],
        left_out=jnp.maximum(best_left, 0),
    )


def hidden_gain(
    problem: RelevanceProblem, now: EvidenceState, noise: Float[Array, ""]
) -> Float[Array, ""]:
    """A lower bound of what the best of those functions would add that are left out only because
    rounding hides their remainder.

    The gain falls in S and rises in |Q|: it is computed with the largest S that is left out, and
    with |Q| less its rounding.
    """
    numbers = now.active.candidates(problem.observations.outputs)
    candidates = _Candidates.of(problem, now)
    # Rounding of the values at the points changes r by B times it. With columns of norm one, where
    # squares have the weights, `|phi_j^T r| <= |W^-1/2 r|`.
    design = problem.design(now.active)
    residuals = problem.observations.residuals(values(design, now.active.weights), noise)
    of_values = curved(
        abs(now.curvatures), values(abs(design), abs(now.active.weights))[:, :, None]
    )
    parts = (abs(residuals) + of_values[:, :, 0]) ** 2
    weights = problem.observations.weights
    of_residuals = jnp.sqrt(jnp.sum(parts / positive_or_one(weights)[:, None]))
    # At the mode Q of an active function is alpha times its weight.
    error = now.quality[numbers] - now.active.precisions * now.active.weights
    of_mode = jnp.max(abs(error), where=now.active.used, initial=0)
    rounding = 8 * eps_of(of_residuals) * of_residuals + of_mode
    quality = jnp.maximum(abs(now.quality) - rounding, 0)
    gain, _ = _best(candidates.least, quality)
    return jnp.max(gain, where=candidates.allowed & candidates.is_rounding, initial=0)


class _Candidates(eqx.Module):
    """Which functions may be added.

    Attributes:
        allowed: those that are not active and not a multiple of an active function.
        least: the largest remainder that may be rounding.
        is_rounding: those whose remainder is at most that.
    """

    allowed: Bool[Array, " k"]
    least: Float[Array, " k"]
    is_rounding: Bool[Array, " k"]

    @staticmethod
    def of(problem: RelevanceProblem, now: EvidenceState) -> "_Candidates":
        active = now.active
        numbers = active.candidates(problem.observations.outputs)
        eps = eps_of(now.sparsity)
        taken = jnp.zeros(now.sparsity.shape, bool).at[numbers].max(active.used)
        # The remainder of a function that equals a combination of the others up to rounding is
        # rounding.
        least = 1e3 * eps * now.diagonal
        # The squared cosines of the angles between candidates and active functions.
        sizes = positive_or_one(now.diagonal)
        cosines = now.products**2 / (sizes[:, None] * sizes[numbers][None, :])
        is_multiple = jnp.any(cosines > 1 - eps**0.5, 1)
        allowed = jnp.repeat(problem.basis.allowed, problem.observations.outputs)
        return _Candidates(allowed & ~(taken | is_multiple), least, now.sparsity <= least)


def _best(s: Array, q: Array) -> tuple[Array, Array]:
    """The largest `l`, and its precision, inf where the largest `l` is zero."""
    excess = q**2 - s
    relevant = (excess > 0) & (s > 0)
    s = jnp.where(relevant, s, 1)
    excess = jnp.where(relevant, excess, 1)
    # At alpha = s^2 / (q^2 - s) it is l = (ratio - log(1 + ratio)) / 2, ratio = (q^2 - s) / s.
    ratio = excess / s
    best = jnp.where(relevant, (ratio - jnp.log1p(ratio)) / 2, 0)
    return best, jnp.where(relevant, s * (s / excess), jnp.inf)


def _of_taken(problem: RelevanceProblem, now: EvidenceState, least: ArrayLike) -> Changes:
    """The changes of the active functions.

    A function worth no more than `least` is deleted, which counts as a gain of `least`. Computed
    without the function itself, `s = gamma / Sigma_ii` and `q = mu_i / Sigma_ii`.
    """
    active = now.active
    variance = positive_or_one(jnp.diagonal(now.covariance))
    # gamma = 1 - alpha_i Sigma_ii = S_i / alpha_i, by whichever form does not cancel.
    kept = active.precisions * variance
    sparsity = now.sparsity[active.candidates(problem.observations.outputs)]
    gamma = jnp.where(kept > 0.5, sparsity / active.precisions, 1 - kept)
    s = jnp.maximum(gamma, 0) / variance
    q = active.weights / variance
    best, precision = _best(s, q)
    rounding = 8 * eps_of(best) * best
    # l at the present precisions; it is zero at infinity.
    evidence = (q**2 / (active.precisions + s) - jnp.log1p(s / active.precisions)) / 2
    gain = best - evidence - rounding
    is_worthless = best <= least
    gain = jnp.where(is_worthless, jnp.maximum(gain, least), gain)
    precision = jnp.where(is_worthless, jnp.inf, precision)
    return Changes(jnp.where(active.used, gain, -jnp.inf), precision)


def _of_new(problem: RelevanceProblem, now: EvidenceState, least: ArrayLike) -> Changes:
    """The changes of the candidates that are not active, are not a multiple of an active function,
    and would add more than `least`.
    """
    candidates = _Candidates.of(problem, now)
    allowed = candidates.allowed & ~candidates.is_rounding
    # For an inactive function s = S and q = Q.
    gain, precision = _best(jnp.where(allowed, now.sparsity, 1), now.quality)
    return Changes(jnp.where(allowed & (gain > least), gain, -jnp.inf), precision)
