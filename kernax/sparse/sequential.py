"""Fast maximisation of the evidence, which adds, re-estimates and deletes one function at a time
(Tipping & Faul 2003).
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.batching import largest_of_batch
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import eps_of, matmul, positive_or_one, tree_where
from kernax.core.base.parameters import check_positive, check_steps
from kernax.sparse.basis import ActiveFunctions, curved, values
from kernax.sparse.damping import StepBounds
from kernax.sparse.observations import NoisyObservations
from kernax.sparse.precision_steps import Action, EvidenceState, best_action, hidden_gain
from kernax.sparse.solver import AbstractRelevanceSolver, RelevanceChoice, RelevanceProblem


@renamed(tol="atol")
class SequentialEvidence(AbstractRelevanceSolver):
    """The fast solver of relevance vector machines, which adds, re-estimates or deletes one
    function at a time (Tipping & Faul 2003). It starts without functions, always takes the step
    that raises the evidence most, and ends when no step raises it. The hyperprior is flat.

    Attributes:
        atol: how much a function must add to the evidence to be accepted, in nats; at least the
            root of the rounding unit. A function that adds less than a tenth of it is deleted.
            Precisions are re-estimated until rounding hides the gain, and then by Newton's method.
        max_steps: the largest number of steps, each on one function; default: 1000 plus ten for
            each function.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 8)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> solver = kernax.solvers.SequentialEvidence()
        >>> k = kernax.RBF(0.3)
        >>> machine = kernax.relevance_vector_machine(k, X, y, noise=0.01, solver=solver).value
        >>> int(machine.count) <= 9  # the functions that are relevant, of eight and the bias
        True
    """

    atol: float | Float[Array, ""] = 1e-6
    max_steps: int | Int[Array, ""] | None = None

    def __check_init__(self):
        check_positive(self.atol, "atol")
        if self.max_steps is not None:
            check_steps(self.max_steps)

    def solve(self, problem):
        m = len(problem.basis.scales) * problem.observations.outputs
        most = 1000 + 10 * m if self.max_steps is None else self.max_steps
        active = ActiveFunctions.empty(problem.capacity, problem.basis.columns)
        return climbed(problem, active, problem.noise.variance, most=most, tol=self.atol)

    def hyperprior(self, dtype):
        return jnp.zeros((), dtype), jnp.zeros((), dtype)


def climbed(
    problem: RelevanceProblem,
    active: ActiveFunctions,
    noise: Float[Array, ""],
    *,
    most: Any,
    tol: ArrayLike,
) -> RelevanceChoice:
    """Takes at most `most` single steps from some active functions. A new one must add `tol`
    nats.
    """
    tol = jnp.maximum(tol, eps_of(noise) ** 0.5)
    # Phi^T W Phi, from which second derivatives for numbers are computed; the curvatures of labels
    # change.
    products = None
    if isinstance(problem.observations, NoisyObservations):
        columns = problem.basis.columns
        products = matmul(columns.T, problem.observations.weights[:, None] * columns)

    def go_on(now: _SequentialSweep) -> Array:
        return ~now.finished & (now.steps < most)

    active_and_bounds = lambda now: (now.active, now.bounds)
    whole = partial(_swept, problem, products, tol)

    # A step costs the square of the number of slots. Slots are filled from the first on, and a
    # sweep uses only the first slots while they are enough.
    def few(now: _SequentialSweep) -> _SequentialSweep:
        first = jax.tree.map(lambda leaf: leaf[:_FEW], active_and_bounds(now))
        rest = jax.tree.map(lambda leaf: leaf[_FEW:], active_and_bounds(now))
        end = whole(eqx.tree_at(active_and_bounds, now, first))
        return eqx.tree_at(
            active_and_bounds, end, jax.tree.map(jnp.append, active_and_bounds(end), rest)
        )

    def with_few_slots(now: _SequentialSweep) -> _SequentialSweep:
        # 1 where a sweep may need more than few slots; for a batch, where one of its members may.
        numbers = jnp.arange(problem.capacity)
        last = jnp.max(jnp.where(now.active.used, numbers, -1))
        needed = last + 1 + _steps_of_a_sweep(problem)
        needs_all = largest_of_batch((needed > _FEW).astype(jnp.int32))
        return lax.switch(needs_all, (few, whole), now)

    sweep = whole if problem.capacity <= 2 * _FEW else with_few_slots
    end = lax.while_loop(go_on, lambda now: sweep(now), _SequentialSweep.first(active, noise))
    return RelevanceChoice(end.active, end.noise, end.steps, end.finished, end.left_out, end.hidden)


class _SequentialSweep(eqx.Module):
    """The state between two sweeps; during a sweep the noise and the curvatures stay fixed."""

    active: ActiveFunctions
    noise: Float[Array, ""]
    steps: Int[Array, ""]
    finished: Bool[Array, ""]  # whether no step raises the evidence, nor changes the noise
    left_out: Float[Array, ""]  # the gain of functions for which there is no slot
    hidden: Float[Array, ""]  # a bound of the gain of functions that rounding hides
    bounds: StepBounds

    @staticmethod
    def first(active: ActiveFunctions, noise: Float[Array, ""]) -> "_SequentialSweep":
        """The state before any step."""
        zero = jnp.zeros((), jnp.int32)
        nats = jnp.zeros_like(noise)
        bounds = StepBounds.none(active.weights)
        return _SequentialSweep(active, noise, zero, jnp.array(False), nats, nats, bounds)


_FEW = 32  # slots


def _steps_of_a_sweep(problem: RelevanceProblem) -> int:
    """How many steps are taken before the noise and the curvatures are computed again: one for
    labels.
    """
    return 10 if isinstance(problem.observations, NoisyObservations) else 1


def _swept(
    problem: RelevanceProblem, products: Array | None, tol: ArrayLike, now: _SequentialSweep
) -> _SequentialSweep:
    """Takes steps until the noise and the curvatures are computed again."""
    first = _PlannedStep.of(problem, _evidence_state(problem, products, now), tol)
    bounds = now.bounds
    # A step is damped for labels; the curvatures of numbers stay the same.
    if not isinstance(problem.observations, NoisyObservations):
        action, bounds = bounds.damped(first.state, first.action)
        first = _PlannedStep(first.state, action)
    # The steps of a sweep: the first, and others while their figures are accurate.
    start = first.state.steps
    most = start + _steps_of_a_sweep(problem)

    def go_on(planned: _PlannedStep) -> Array:
        steps = planned.state.steps
        return planned.rises & (steps < most) & ((steps == start) | planned.state.is_accurate)

    def step(planned: _PlannedStep) -> _PlannedStep:
        return _PlannedStep.of(
            problem, _moved(problem, products, planned.state, planned.action), tol
        )

    end = lax.while_loop(go_on, step, first)
    noise = now.noise
    if problem.noise.learned:
        active = end.state.active
        f = values(problem.design(active), active.weights)
        # gamma_i = 1 - alpha_i Sigma_ii.
        gamma = 1 - active.precisions * jnp.diagonal(end.state.covariance)
        determined = jnp.sum(jnp.where(active.used, gamma, 0))
        noise = problem.noise.renewed(problem.observations, f, noise, determined)
    unsettled = abs(jnp.log(noise / now.noise)) > tol  # NaN ends the loop
    finished = ~(unsettled | first.rises)
    # Only the last sweep needs it.
    hidden = lax.cond(
        finished,
        lambda: hidden_gain(problem, end.state, now.noise),
        lambda: jnp.zeros_like(now.noise),
    )
    return _SequentialSweep(
        active=end.state.active,
        noise=noise,
        # A sweep without a step may still change the noise. It counts as one step, so that sweeps
        # end.
        steps=jnp.maximum(end.state.steps, now.steps + 1),
        finished=finished,
        left_out=end.action.left_out,
        hidden=hidden,
        bounds=bounds,
    )


class _PlannedStep(eqx.Module):
    """The state of the evidence, and the best next step."""

    state: EvidenceState
    action: Action

    @staticmethod
    def of(problem: RelevanceProblem, state: EvidenceState, tol: ArrayLike) -> "_PlannedStep":
        return _PlannedStep(state, best_action(problem, state, tol))

    @property
    def rises(self) -> Bool[Array, ""]:
        """Whether the step raises the evidence by more than rounding."""
        return self.action.gain > eps_of(self.action.gain) ** 0.8


def _evidence_state(
    problem: RelevanceProblem, products: Array | None, now: _SequentialSweep
) -> EvidenceState:
    """The state of the evidence, computed from scratch."""
    active = now.active
    deviations = active.deviations
    fit = problem.posterior(active, now.noise)
    active = eqx.tree_at(lambda active: active.weights, active, fit.mode * deviations)
    # Phi^T B J, zero where a slot is not used; for numbers B is the weights over the noise.
    if products is not None:
        of_active = jnp.where(active.used[None, :], products[:, active.column] / now.noise, 0)
    else:
        design = problem.design(active)
        n, c, size = design.shape
        image = curved(fit.curvatures, design).reshape(n, c * size)
        of_active = matmul(problem.basis.columns.T, image).reshape(-1, size)
    # phi_j^T B phi_j of all candidates.
    own = jnp.diagonal(fit.curvatures, axis1=1, axis2=2)
    diagonal = matmul((problem.basis.columns**2).T, own).reshape(-1)
    # phi_j^T B J Sigma J^T B phi_j of all candidates, by which S_j is less than phi_j^T B phi_j, as
    # the sums of squares of the rows of Phi^T B J A^-1/2 L^-T.
    parts = matmul(of_active * deviations[None, :], fit.inverse_factor.T)
    explained = jnp.sum(parts**2, 1)
    # phi_j^T r of all candidates.
    residuals = problem.observations.residuals(fit.values, now.noise)
    # At the mode r = C^-1 t, where t are the targets; for labels, the targets of the expansion
    # about the mode.
    quality = matmul(problem.basis.columns.T, residuals).reshape(-1)
    return EvidenceState(
        active=active,
        covariance=deviations[:, None] * fit.covariance * deviations[None, :],
        products=of_active,
        sparsity=diagonal - explained,
        quality=quality,
        curvatures=fit.curvatures,
        diagonal=diagonal,
        steps=now.steps,
    )


class _RankOne(eqx.Module):
    """The update of a step: the covariance changes by `c u u^T`, and the weights by `c t u`."""

    u: Float[Array, " M"]
    c: Float[Array, ""]
    t: Float[Array, ""]

    @staticmethod
    def of(now: EvidenceState, action: Action) -> "_RankOne":
        i = action.slot
        j = action.candidate
        # As the weight of a new function rises by 1, the mean of the others moves by -Sigma J^T B
        # phi_j. For a new function u consists of that and 1, c = 1 / (alpha + S_j), and t = Q_j.
        others = -matmul(now.covariance, now.products[j])
        given_way = jnp.where(now.active.at(i), 1, others)
        of_new = _RankOne(given_way, 1 / (action.precision + now.sparsity[j]), now.quality[j])
        # For an active function u = Sigma e_i, c = -1 / (Sigma_ii + 1 / d), and t = mu_i, with d
        # the change of the precision, which may be infinite.
        variance = positive_or_one(now.covariance[i, i])
        deleted = jnp.isinf(action.precision)
        d = jnp.where(deleted, 1, action.precision) - now.active.precisions[i]
        c = jnp.where(deleted, -1 / variance, -d / (1 + d * variance))
        of_taken = _RankOne(now.covariance[:, i], c, now.active.weights[i])
        return tree_where(action.is_new, of_new, of_taken)

    def of_weights(self, weights: Float[Array, " M"]) -> Float[Array, " M"]:
        """The weights after the step."""
        return weights + self.c * self.t * self.u

    def added_to(self, covariance: Float[Array, "M M"]) -> Float[Array, "M M"]:
        """The covariance after the step."""
        return covariance + self.c * self.u[:, None] * self.u[None, :]


def _moved(
    problem: RelevanceProblem, products: Array | None, now: EvidenceState, action: Action
) -> EvidenceState:
    """The state after a step: every quantity changes by rank one (Tipping & Faul 2003, appendix).

    The covariance becomes `Sigma + c u u^T`. For an active function, `u = Sigma_i` and `c = -d / (1
    + d Sigma_ii)`, d the change of its precision. For a new one, u is the change of all weights as
    its own weight rises by 1, and `c = 1 / (alpha + S)`. With `p = Phi^T B J u` and t the product
    of u and `J^T B` of the targets, the weights change by `c t u`, S by `-c p^2`, and Q by `-c t
    p`.
    """
    is_slot = now.active.at(action.slot)
    outputs = problem.observations.outputs
    number, output = action.candidate // outputs, action.candidate % outputs
    # Phi^T B phi for the function of the step.
    if products is not None:
        # All curvatures are the weights over the noise.
        of_unit = products[:, number]
        column = of_unit * (now.diagonal[number] / positive_or_one(products[number, number]))
    else:
        image = now.curvatures[:, :, output] * problem.basis.columns[:, number, None]
        column = matmul(problem.basis.columns.T, image).reshape(-1)
    of_active = jnp.where(action.is_new & is_slot[None, :], column[:, None], now.products)
    step = _RankOne.of(now, action)
    p = matmul(of_active, step.u)
    deleted = is_slot & jnp.isinf(action.precision)
    precisions = jnp.where(is_slot, action.precision, now.active.precisions)
    active = ActiveFunctions(
        column=jnp.where(is_slot, number, now.active.column).astype(jnp.int32),
        output=jnp.where(is_slot, output, now.active.output).astype(jnp.int32),
        used=(now.active.used | is_slot) & ~deleted,
        precisions=jnp.where(deleted, 1, precisions),
        weights=jnp.where(deleted, 0, step.of_weights(now.active.weights)),
    )
    # Rows and columns of a deleted function are zero up to rounding.
    kept = ~deleted
    return EvidenceState(
        active=active,
        covariance=jnp.where(kept[:, None] & kept[None, :], step.added_to(now.covariance), 0),
        products=jnp.where(kept[None, :], of_active, 0),
        sparsity=now.sparsity - step.c * p**2,
        quality=now.quality - step.c * step.t * p,
        curvatures=now.curvatures,
        diagonal=now.diagonal,
        steps=now.steps + 1,
    )
