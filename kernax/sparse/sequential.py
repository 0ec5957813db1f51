"""Fast maximisation of the evidence: functions are added, estimated again and deleted one by one
(Tipping & Faul 2003).

As a function of one precision alone the log evidence is, up to a constant, `l(alpha) = (log alpha -
log(alpha + s) + q^2 / (alpha + s)) / 2` (eq. 18), s and q the sparsity and the quality of the
function without itself. It has its maximum at `s^2 / (q^2 - s)` if `q^2 > s`, else at infinity,
where the function is not in the model (eqs. 20 and 21).
"""

from functools import partial

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.core.numerics import chosen, eps_of, matmul, positive_or_one
from kernax.core.parameters import check_count
from kernax.core.sharding import while_loop
from kernax.sparse.basis import Slots, curved, values
from kernax.sparse.observations import Numbers, Posterior, posterior
from kernax.sparse.solver import AbstractRelevanceSolver, Choice, Problem


class SequentialEvidence(AbstractRelevanceSolver):
    """Adds, estimates again or deletes the one function that raises the evidence most, from none
    (Tipping & Faul 2003), until no such step raises it by `tol`. The hyperprior is flat.

    Attributes:
        tol: in nats; at least the root of the rounding unit.
        max_steps: of one function each; default 1000, and ten for each function.
    """

    tol: float = eqx.field(default=1e-6, static=True)
    max_steps: int | None = eqx.field(default=None, static=True)

    def __check_init__(self):
        if not self.tol > 0:
            raise ValueError(f"tol must be positive, but is {self.tol!r}")
        if self.max_steps is not None:
            check_count(self.max_steps, "max_steps")

    def solve(self, problem):
        m = len(problem.basis.scales) * problem.observations.outputs
        most = 1000 + 10 * m if self.max_steps is None else self.max_steps
        tol = max(self.tol, eps_of(problem.basis.columns) ** 0.5)
        products = _products(problem)

        def go_on(now: _Sweep) -> Array:
            return ~now.finished & (now.steps < most)

        step = partial(_swept, problem, products, tol)
        end = while_loop(go_on, step, _Sweep.first(problem))
        return Choice(end.slots, end.noise, end.steps, end.finished, end.left_out)

    def hyperprior(self, dtype):
        return jnp.zeros((), dtype), jnp.zeros((), dtype)


def _products(problem: Problem) -> Float[Array, "m m"] | None:
    """`Phi^T W Phi`, of which the second derivatives of numbers are made; None for labels, whose
    curvatures change.
    """
    if not isinstance(problem.observations, Numbers):
        return None
    columns = problem.basis.columns
    return matmul(columns.T, problem.observations.weights[:, None] * columns)


class _Sweep(eqx.Module):
    """The machine between two sweeps of steps for which the noise and the curvatures stay."""

    slots: Slots
    noise: Float[Array, ""]
    steps: Int[Array, ""]
    finished: Bool[Array, ""]  # whether no step raises the evidence, nor changes the noise
    left_out: Float[Array, ""]  # the gain of functions that there is no place for

    @staticmethod
    def first(problem: Problem) -> "_Sweep":
        """No functions."""
        noise = problem.noise.variance
        slots = Slots.empty(problem.capacity, problem.basis.columns)
        zero = jnp.zeros((), jnp.int32)
        return _Sweep(slots, noise, zero, jnp.array(False), jnp.zeros_like(noise))


class Outlook(eqx.Module):
    """What the evidence depends on, while noise and curvatures stay.

    Attributes:
        slots: the functions taken.
        covariance: Sigma, of their weights.
        products: `Phi^T B J`, the second derivatives of the losses between all m c candidates and
            the functions taken.
        sparsity, quality: `S_j = phi_j^T C^-1 phi_j` and `Q_j = phi_j^T C^-1 t` of the candidates
            (eqs. 22 and 23), C the covariance of the targets.
        curvatures: B, of the losses at each point.
        diagonal: `phi_j^T B phi_j`.
        steps: taken so far.
    """

    slots: Slots
    covariance: Float[Array, "M M"]
    products: Float[Array, "k M"]
    sparsity: Float[Array, " k"]
    quality: Float[Array, " k"]
    curvatures: Float[Array, "n c c"]
    diagonal: Float[Array, " k"]
    steps: Int[Array, ""]


class Action(eqx.Module):
    """A step: one function gets another precision.

    Attributes:
        gain: by how much the log evidence rises.
        place: of the function among the slots.
        candidate: its number.
        is_new: whether it is added.
        precision: inf where it is deleted.
        left_out: the gain of the best function for which there is no place.
    """

    gain: Float[Array, ""]
    place: Int[Array, ""]
    candidate: Int[Array, ""]
    is_new: Bool[Array, ""]
    precision: Float[Array, ""]
    left_out: Float[Array, ""]


def _swept(problem: Problem, products: Array | None, tol: float, now: _Sweep) -> _Sweep:
    """Steps until the noise is estimated again; of labels one step, as their curvatures change."""
    of_numbers = isinstance(problem.observations, Numbers)
    most = now.steps + (_STEPS_OF_NUMBERS if of_numbers else 1)

    def go_on(now: _Ahead) -> Array:
        return (now.action.gain > tol) & (now.outlook.steps < most)

    def step(now: _Ahead) -> _Ahead:
        return _Ahead.of(problem, _moved(problem, products, now.outlook, now.action))

    first = _Ahead.of(problem, _outlook(problem, products, now))
    end = while_loop(go_on, step, first)
    outlook = end.outlook
    noise = _renewed_noise(problem, outlook, now.noise)
    settled = abs(jnp.log(noise / now.noise)) <= tol
    idle = ~(first.action.gain > tol)
    return _Sweep(outlook.slots, noise, outlook.steps, idle & settled, end.action.left_out)


class _Ahead(eqx.Module):
    """What the evidence depends on, and the best step there."""

    outlook: Outlook
    action: Action

    @staticmethod
    def of(problem: Problem, outlook: Outlook) -> "_Ahead":
        return _Ahead(outlook, best_action(problem, outlook))


_STEPS_OF_NUMBERS = 10


def _renewed_noise(problem: Problem, now: Outlook, noise: Float[Array, ""]) -> Float[Array, ""]:
    """The noise that goes with the weights."""
    if not problem.noise.learned:
        return noise
    slots = now.slots
    f = values(slots.design(problem.basis, 1), slots.weights)
    gamma = 1 - slots.precisions * jnp.diagonal(now.covariance)
    determined = jnp.sum(jnp.where(slots.used, gamma, 0))
    return problem.noise.renewed(problem.observations, f, noise, determined)


def _outlook(problem: Problem, products: Array | None, now: _Sweep) -> Outlook:
    """All figures from the beginning."""
    slots = now.slots
    deviations = slots.deviations
    design = slots.design(problem.basis, problem.observations.outputs)
    start = slots.weights * jnp.sqrt(slots.precisions)
    whitened = design * deviations[None, None, :]
    fit = posterior(problem.observations, whitened, start, now.noise)
    slots = eqx.tree_at(lambda slots: slots.weights, slots, fit.mode * deviations)
    of_slots = _second_derivatives(problem, products, slots, design, fit, now.noise)
    diagonal = _diagonal(problem, fit.curvatures)
    return Outlook(
        slots=slots,
        covariance=deviations[:, None] * fit.covariance * deviations[None, :],
        products=of_slots,
        sparsity=diagonal - _explained(of_slots, deviations, fit),
        quality=_quality(problem, fit, now.noise),
        curvatures=fit.curvatures,
        diagonal=diagonal,
        steps=now.steps,
    )


def _explained(
    of_slots: Float[Array, "k M"], deviations: Float[Array, " M"], fit: Posterior
) -> Float[Array, " k"]:
    """What the functions taken take from the sparsity of each candidate."""
    parts = matmul(of_slots * deviations[None, :], fit.inverse_factor.T)
    return jnp.sum(parts**2, 1)


def _quality(problem: Problem, fit: Posterior, noise: Float[Array, ""]) -> Float[Array, " k"]:
    """`phi_j^T r` of all candidates."""
    residuals = problem.observations.residuals(fit.values, noise)
    return matmul(problem.basis.columns.T, residuals).reshape(-1)


def _second_derivatives(
    problem: Problem,
    products: Array | None,
    slots: Slots,
    design: Float[Array, "n c M"],
    fit: Posterior,
    noise: Float[Array, ""],
) -> Float[Array, "k M"]:
    """`Phi^T B J`; 0 where a place is not used."""
    if products is not None:
        return jnp.where(slots.used[None, :], products[:, slots.column] / noise, 0)
    n, c, size = design.shape
    image = curved(fit.curvatures, design).reshape(n, c * size)
    return matmul(problem.basis.columns.T, image).reshape(-1, size)


def _diagonal(problem: Problem, curvatures: Float[Array, "n c c"]) -> Float[Array, " k"]:
    """`phi_j^T B phi_j` of all candidates."""
    own = jnp.diagonal(curvatures, axis1=1, axis2=2)
    return matmul((problem.basis.columns**2).T, own).reshape(-1)


class Changes(eqx.Module):
    """What it gives to set the precision of each function to its best.

    Attributes:
        gains: by how much the log evidence rises; -inf where that is not to be done.
        precisions: the best ones; inf without the function.
    """

    gains: Float[Array, " functions"]
    precisions: Float[Array, " functions"]


def best_action(problem: Problem, now: Outlook) -> Action:
    """The step with the largest gain; of equal ones that which adds nothing, else the first."""
    of_taken = _of_taken(now)
    of_new = _of_new(problem, now)
    is_full = jnp.all(now.slots.used)
    best_left = jnp.where(is_full, jnp.max(of_new.gains), 0)
    gains_of_new = jnp.where(is_full, -jnp.inf, of_new.gains)
    gains = jnp.append(of_taken.gains, gains_of_new)
    precisions = jnp.append(of_taken.precisions, of_new.precisions)
    best = _first_of_largest(gains)
    return Action(
        gain=gains[best],
        precision=precisions[best],
        left_out=jnp.maximum(best_left, 0),
        **_numbers_of(problem, now, best),
    )


def _first_of_largest(gains: Float[Array, " functions"]) -> Int[Array, ""]:
    """The first of those that are the largest up to rounding."""
    largest = jnp.max(gains)
    return jnp.argmax(gains >= largest - eps_of(largest) ** 0.5 * abs(largest)).astype(jnp.int32)


def _numbers_of(problem: Problem, now: Outlook, best: Int[Array, ""]) -> dict[str, Array]:
    """The place and the number of a function among those taken, followed by all candidates."""
    slots = now.slots
    size = len(slots.used)
    is_new = best >= size
    place = jnp.where(is_new, jnp.argmin(slots.used).astype(jnp.int32), best)
    of_taken = slots.candidates(problem.observations.outputs)[place]
    candidate = jnp.where(is_new, best - size, of_taken)
    return {"place": place, "candidate": candidate, "is_new": is_new}


def _evidence(s: Array, q: Array, alpha: Array) -> Array:
    """`l(alpha)`, which is zero at infinity."""
    return (q**2 / (alpha + s) - jnp.log1p(s / alpha)) / 2


def _best(s: Array, q: Array) -> tuple[Array, Array]:
    """The largest `l`, and its precision, inf where that is zero."""
    excess = q**2 - s
    relevant = (excess > 0) & (s > 0)
    s = jnp.where(relevant, s, 1)
    excess = jnp.where(relevant, excess, 1)
    ratio = excess / s
    best = jnp.where(relevant, (ratio - jnp.log1p(ratio)) / 2, 0)
    return best, jnp.where(relevant, s * (s / excess), jnp.inf)


def _of_taken(now: Outlook) -> Changes:
    """Of the functions taken.

    Without itself a function has `s = gamma / Sigma_ii` and `q = mu_i / Sigma_ii`.
    """
    slots = now.slots
    variance = positive_or_one(jnp.diagonal(now.covariance))
    s = jnp.maximum(1 - slots.precisions * variance, 0) / variance
    q = slots.weights / variance
    best, precision = _best(s, q)
    gain = best - _evidence(s, q, slots.precisions)
    return Changes(jnp.where(slots.used, gain, -jnp.inf), precision)


def _of_new(problem: Problem, now: Outlook) -> Changes:
    """Of the candidates that are not taken."""
    allowed = jnp.repeat(problem.basis.allowed, problem.observations.outputs)
    allowed = allowed & _independent(problem, now)
    gain, precision = _best(jnp.where(allowed, now.sparsity, 1), now.quality)
    return Changes(jnp.where(allowed, gain, -jnp.inf), precision)


def _independent(problem: Problem, now: Outlook) -> Bool[Array, " k"]:
    """Which candidates are not taken, nor a multiple of one that is."""
    slots = now.slots
    numbers = slots.candidates(problem.observations.outputs)
    eps = eps_of(now.sparsity)
    taken = jnp.zeros(now.sparsity.shape, bool).at[numbers].max(slots.used)
    # What is left of a function that the others make up to rounding is rounding itself.
    is_rounding = now.sparsity <= 1e3 * eps * now.diagonal
    sizes = positive_or_one(now.diagonal)
    cosines = now.products**2 / (sizes[:, None] * sizes[numbers][None, :])
    parallel = jnp.any(cosines > 1 - eps**0.5, 1)
    return ~(taken | is_rounding | parallel)


class _RankOne(eqx.Module):
    """A step changes the covariance by `c u u^T`, and the weights by `c t u`."""

    u: Float[Array, " M"]
    c: Float[Array, ""]
    t: Float[Array, ""]

    @staticmethod
    def of(now: Outlook, action: Action) -> "_RankOne":
        i = action.place
        j = action.candidate
        is_place = now.slots.at(i)
        given_way = jnp.where(is_place, 1, -matmul(now.covariance, now.products[j]))
        of_new = _RankOne(given_way, 1 / (action.precision + now.sparsity[j]), now.quality[j])
        of_taken = _RankOne(now.covariance[:, i], _change(now, action), now.slots.weights[i])
        return chosen(action.is_new, of_new, of_taken)


def _moved(problem: Problem, products: Array | None, now: Outlook, action: Action) -> Outlook:
    """The figures after a step: all of them change by rank one (Tipping & Faul 2003, appendix).

    The covariance becomes `Sigma + c u u^T`. Of a function taken, `u = Sigma_i` and `c = -d / (1 +
    d Sigma_ii)`, d the change of its precision; of a new one, u is what others give way to its unit
    weight by, and `c = 1 / (alpha + S)`. With `p = Phi^T B J u` and t the product of u and `J^T B`
    of the targets, the weights change by `c t u`, S by `-c p^2`, and Q by `-c t p`.
    """
    is_place = now.slots.at(action.place)
    column = _column(problem, products, now, action)
    of_slots = jnp.where(action.is_new & is_place[None, :], column[:, None], now.products)
    step = _RankOne.of(now, action)
    p = matmul(of_slots, step.u)
    deleted = is_place & jnp.isinf(action.precision)
    covariance = now.covariance + step.c * step.u[:, None] * step.u[None, :]
    return Outlook(
        slots=_renewed(problem, now.slots, action, now.slots.weights + step.c * step.t * step.u),
        covariance=jnp.where(deleted[:, None] | deleted[None, :], 0, covariance),
        products=jnp.where(deleted[None, :], 0, of_slots),
        sparsity=now.sparsity - step.c * p**2,
        quality=now.quality - step.c * step.t * p,
        curvatures=now.curvatures,
        diagonal=now.diagonal,
        steps=now.steps + 1,
    )


def _change(now: Outlook, action: Action) -> Float[Array, ""]:
    """`-1 / (Sigma_ii + 1 / d)`, d the change of a precision, which may be infinite."""
    variance = positive_or_one(now.covariance[action.place, action.place])
    deleted = jnp.isinf(action.precision)
    change = jnp.where(deleted, 1, action.precision) - now.slots.precisions[action.place]
    return jnp.where(deleted, -1 / variance, -change / (1 + change * variance))


def _column(
    problem: Problem, products: Array | None, now: Outlook, action: Action
) -> Float[Array, " k"]:
    """`Phi^T B phi` of the function of a step."""
    outputs = problem.observations.outputs
    column = action.candidate // outputs
    if products is not None:
        # All curvatures are the weights over the noise.
        of_unit = products[:, column]
        return of_unit * (now.diagonal[column] / positive_or_one(products[column, column]))
    output = action.candidate % outputs
    image = now.curvatures[:, :, output] * problem.basis.columns[:, column, None]
    return matmul(problem.basis.columns.T, image).reshape(-1)


def _renewed(problem: Problem, slots: Slots, action: Action, weights: Float[Array, " M"]) -> Slots:
    """The functions after a step."""
    outputs = problem.observations.outputs
    is_place = slots.at(action.place)
    deleted = is_place & jnp.isinf(action.precision)
    precisions = jnp.where(is_place, action.precision, slots.precisions)
    return Slots(
        column=jnp.where(is_place, action.candidate // outputs, slots.column).astype(jnp.int32),
        output=jnp.where(is_place, action.candidate % outputs, slots.output).astype(jnp.int32),
        used=(slots.used | is_place) & ~deleted,
        precisions=jnp.where(deleted, 1, precisions),
        weights=jnp.where(deleted, 0, weights),
    )
