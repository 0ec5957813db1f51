"""The original maximisation of the evidence, with all functions at once (Tipping 2001)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import eps_of
from kernax.core.base.parameters import check_share, check_steps, nonnegative
from kernax.sparse.basis import ActiveFunctions, curved
from kernax.sparse.sequential import climbed
from kernax.sparse.solver import AbstractRelevanceSolver, RelevanceChoice, RelevanceProblem


@renamed(tol="rtol")
class EvidenceIteration(AbstractRelevanceSolver):
    """The original solver of relevance vector machines: re-estimates all precisions at once as
    `alpha_i = (gamma_i + 2 shape) / (mu_i^2 + 2 rate)`.

    Here `gamma_i = 1 - alpha_i Sigma_ii`, and the iteration starts with all functions (Tipping
    2001, eqs. 16 and 17, with a hyperprior eq. 47). A step takes n^3 operations. A function is
    deleted permanently if its prior makes it negligible compared with the noise, that is, if
    `gamma_i` could be at most `least`. Near the maximum steps become short, and precisions that
    tend to infinity may rise slowly: with a flat hyperprior the remaining functions are then
    re-estimated or deleted one by one, as in `SequentialEvidence`.

    Attributes:
        shape, rate: the Gamma hyperprior of the precisions, in units of `1 / y^2`; 0 is flat.
        rtol: the largest change of the logarithm of a precision, or of the noise, at which to stop.
        least: see above.
        max_steps: the largest number of steps of all functions at once; with a flat hyperprior up
            to ten times as many steps of single functions may follow.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 8)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> solver = kernax.solvers.EvidenceIteration()
        >>> k = kernax.RBF(0.3)
        >>> machine = kernax.relevance_vector_machine(k, X, y, noise=0.01, solver=solver).value
        >>> int(machine.count) <= 9  # the functions that are relevant, of eight and the bias
        True
    """

    shape: Float[ParameterArray, ""] = nonnegative(default=0.0)
    rate: Float[ParameterArray, ""] = nonnegative(default=0.0)
    rtol: float | Float[Array, ""] = 1e-3
    least: float | Float[Array, ""] = 1e-8
    max_steps: int | Int[Array, ""] = 2000

    def __check_init__(self):
        check_share(self.rtol, "rtol")
        check_share(self.least, "least")
        check_steps(self.max_steps)

    def solve(self, problem):
        # gamma_i = 1 - P_ii is off by some eps, below which no gamma_i differs from zero.
        least = jnp.maximum(self.least, 32 * eps_of(problem.basis.columns))

        def go_on(now: _EvidenceIterate) -> Array:
            return ~(now.change <= self.rtol) & (now.steps < self.max_steps)

        def renewed(now: _EvidenceIterate) -> _EvidenceIterate:
            active = now.active
            fit = problem.posterior(active, now.noise)
            gamma = jnp.maximum(fit.determined, 0)
            # The new alpha is (gamma + 2 shape) / (mu^2 + 2 rate), at most a million times the old
            # one. mode^2 = alpha mu^2, so that the ratio is (gamma + 2 shape) / (mode^2 + 2 rate
            # alpha).
            mass = fit.mode**2 + 2 * problem.rates[active.column] * active.precisions
            ratio = (gamma + 2 * problem.shape) / jnp.maximum(mass, jnp.finfo(mass.dtype).tiny)
            ratio = jnp.clip(ratio, 1e-6, 1e6)
            design = problem.design(active)
            # gamma_i <= c_i / (alpha_i + c_i) < c_i / alpha_i with c the diagonal of J^T B J, here
            # of the new alpha_i.
            curvature = jnp.sum(design * curved(fit.curvatures, design), (0, 1))
            used = active.used & (curvature > least * active.precisions * ratio)
            determined = jnp.sum(jnp.where(active.used, gamma, 0))
            noise = problem.noise.renewed(problem.observations, fit.values, now.noise, determined)
            # The remaining functions, with the weights for the previous precisions.
            remaining = ActiveFunctions(
                active.column,
                active.output,
                used,
                jnp.where(used, active.precisions * ratio, 1),
                jnp.where(used, fit.mode * active.deviations, 0),
            )
            # The largest absolute logarithm of a ratio of precisions, or of the ratio of the noise.
            changes = jnp.where(used, abs(jnp.log(ratio)), 0)
            largest_change = jnp.maximum(jnp.max(changes), abs(jnp.log(noise / now.noise)))
            return _EvidenceIterate(
                active=remaining,
                noise=noise,
                change=largest_change,
                steps=now.steps + 1,
            )

        end = lax.while_loop(go_on, renewed, _EvidenceIterate.first(problem))
        return self._ended(problem, end)

    def _ended(self, problem: RelevanceProblem, end: "_EvidenceIterate") -> RelevanceChoice:
        """The end of the iteration, with `capacity` slots, and by single steps if the hyperprior is
        flat.
        """
        # Where there are too few slots, they are for the functions of the largest weights.
        order = jnp.argsort(~end.active.used, stable=True)
        by_weight = jnp.argsort(-abs(end.active.weights), stable=True)  # 0 where not used
        room = jnp.sum(end.active.used) <= problem.capacity
        places = jnp.where(room, order, by_weight)[: problem.capacity]
        active = jax.tree.map(lambda leaf: leaf[places], end.active)
        is_flat = (problem.shape == 0) & jnp.all(problem.rates == 0)
        most = jnp.where(is_flat, 10 * self.max_steps, 0)
        # Only the active functions may take part.
        taken = jnp.zeros(problem.basis.allowed.shape, bool).at[active.column].max(active.used)
        allowed = problem.basis.allowed & taken
        of_taken = eqx.tree_at(lambda problem: problem.basis.allowed, problem, allowed)
        last = climbed(of_taken, active, end.noise, most=most, tol=_LEAST_GAIN)
        return RelevanceChoice(
            active=last.active,
            noise=last.noise,
            steps=end.steps + last.steps,
            finished=jnp.where(is_flat, last.finished, end.change <= self.rtol),
            # The evidence that more functions would add is unknown: one nat stands for it.
            left_out=jnp.where(room, 0, jnp.ones_like(end.noise)),
            hidden=last.hidden,
        )

    def hyperprior(self, dtype):
        return self.shape.astype(dtype), self.rate.astype(dtype)


_LEAST_GAIN = 1e-6  # in nats


class _EvidenceIterate(eqx.Module):
    active: ActiveFunctions
    noise: Float[Array, ""]
    change: Float[Array, ""]  # the largest, of a logarithm, in the last step
    steps: Int[Array, ""]

    @staticmethod
    def first(problem: RelevanceProblem) -> "_EvidenceIterate":
        """The state before any step, with all functions active."""
        noise = problem.noise.variance
        never = jnp.full_like(noise, jnp.inf)
        # The priors of all functions together have the size of the targets.
        c = problem.observations.outputs
        numbers = jnp.arange(len(problem.basis.scales) * c, dtype=jnp.int32)
        used = problem.basis.allowed[numbers // c]
        precision = len(numbers) / problem.observations.size()
        precisions = jnp.where(used, precision, 1)
        weights = jnp.zeros_like(precisions)
        active = ActiveFunctions(numbers // c, numbers % c, used, precisions, weights)
        return _EvidenceIterate(active, noise, never, jnp.zeros((), jnp.int32))
