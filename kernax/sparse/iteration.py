"""The original maximisation of the evidence, of all functions at once (Tipping 2001)."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.core.numerics import eps_of
from kernax.core.parameters import check_count, nonnegative
from kernax.core.sharding import while_loop
from kernax.sparse.basis import Slots, curved
from kernax.sparse.observations import posterior
from kernax.sparse.solver import AbstractRelevanceSolver, Choice, Problem


class EvidenceIteration(AbstractRelevanceSolver):
    """`alpha_i = (gamma_i + 2 shape) / (mu_i^2 + 2 rate)` for all functions at once, `gamma_i = 1 -
    alpha_i Sigma_ii`, from all functions (Tipping 2001, eqs. 16 and 17, with a hyperprior eq. 47).

    A step takes n^3 operations. A function is deleted, for good, where its prior leaves nothing of
    it beside the noise: where `gamma_i` could be at most `least`.

    Attributes:
        shape, rate: of the Gamma hyperprior of precisions, in units of `1 / y^2`; 0 is flat.
        tol: of the largest change of a logarithm of a precision, or of the noise, at which to stop.
        least: see above.
        max_steps: at most.
    """

    shape: Float[Array, ""] = nonnegative(default=0.0)
    rate: Float[Array, ""] = nonnegative(default=0.0)
    tol: float = eqx.field(default=1e-3, static=True)
    least: float = eqx.field(default=1e-8, static=True)
    max_steps: int = eqx.field(default=2000, static=True)

    def __check_init__(self):
        for name in ("tol", "least"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be between 0 and 1, but is {getattr(self, name)!r}")
        check_count(self.max_steps, "max_steps")

    def solve(self, problem):
        def go_on(now: _Round) -> Array:
            return ~(now.change <= self.tol) & (now.steps < self.max_steps)

        # What is determined is 1 - P, which is known to rounding.
        least = max(self.least, 32 * eps_of(problem.basis.columns))
        step = partial(_renewed, problem, least)
        end = while_loop(go_on, step, _Round.first(problem))
        slots, room = _compressed(end.slots, problem.capacity)
        # What else would be gained is not known: that of a nat stands for it.
        left_out = jnp.where(room, 0, jnp.ones_like(end.noise))
        return Choice(slots, end.noise, end.steps, end.change <= self.tol, left_out)

    def hyperprior(self, dtype):
        return self.shape.astype(dtype), self.rate.astype(dtype)


class _Round(eqx.Module):
    """The machine after some steps."""

    slots: Slots
    noise: Float[Array, ""]
    change: Float[Array, ""]  # the largest, of a logarithm, in the last step
    steps: Int[Array, ""]

    @staticmethod
    def first(problem: Problem) -> "_Round":
        """All functions, whose priors together are of the size of the targets."""
        c = problem.observations.outputs
        numbers = jnp.arange(len(problem.basis.scales) * c, dtype=jnp.int32)
        used = problem.basis.allowed[numbers // c]
        noise = problem.noise.variance
        size = problem.observations.size()
        precision = jnp.full(used.shape, len(numbers) / size, noise.dtype)
        slots = Slots(
            numbers // c,
            numbers % c,
            used,
            jnp.where(used, precision, 1),
            jnp.zeros_like(precision),
        )
        return _Round(slots, noise, jnp.full_like(noise, jnp.inf), jnp.zeros((), jnp.int32))


def _renewed(problem: Problem, least: float, now: _Round) -> _Round:
    """A step."""
    slots = now.slots
    design = slots.design(problem.basis, problem.observations.outputs)
    start = slots.weights * jnp.sqrt(slots.precisions)
    whitened = design * slots.deviations[None, None, :]
    fit = posterior(problem.observations, whitened, start, now.noise)
    gamma = jnp.maximum(fit.determined, 0)
    ratio = _ratio_of_precisions(problem, slots, fit.mode, gamma)
    curvature = jnp.sum(design * curved(fit.curvatures, design), (0, 1))
    used = slots.used & (curvature > least * slots.precisions * ratio)
    determined = jnp.sum(jnp.where(slots.used, gamma, 0))
    noise = problem.noise.renewed(problem.observations, fit.values, now.noise, determined)
    return _Round(
        slots=_with_precisions(slots, used, slots.precisions * ratio, fit.mode),
        noise=noise,
        change=_largest_change(used, ratio, noise / now.noise),
        steps=now.steps + 1,
    )


def _with_precisions(
    slots: Slots, used: Bool[Array, " M"], precisions: Float[Array, " M"], mode: Float[Array, " M"]
) -> Slots:
    """The functions that are left, with weights of the precisions before."""
    return Slots(
        slots.column,
        slots.output,
        used,
        jnp.where(used, precisions, 1),
        jnp.where(used, mode * slots.deviations, 0),
    )


def _largest_change(
    used: Bool[Array, " M"], ratio: Float[Array, " M"], of_noise: Float[Array, ""]
) -> Float[Array, ""]:
    """The largest logarithm of a ratio of precisions, or of that of the noise."""
    changes = jnp.where(used, abs(jnp.log(ratio)), 0)
    return jnp.maximum(jnp.max(changes), abs(jnp.log(of_noise)))


def _ratio_of_precisions(
    problem: Problem, slots: Slots, mode: Float[Array, " M"], gamma: Float[Array, " M"]
) -> Float[Array, " M"]:
    """`(gamma + 2 shape) / (mu^2 + 2 rate)` over alpha, by at most a million."""
    mass = mode**2 + 2 * problem.rates[slots.column] * slots.precisions
    ratio = (gamma + 2 * problem.shape) / jnp.maximum(mass, jnp.finfo(mass.dtype).tiny)
    return jnp.clip(ratio, 1e-6, 1e6)


def _compressed(slots: Slots, size: int) -> tuple[Slots, Bool[Array, ""]]:
    """The functions in fewer places, those of the largest weights first where there are too many,
    and whether there are enough places.
    """
    order = jnp.argsort(~slots.used, stable=True)
    by_weight = jnp.argsort(-abs(slots.weights), stable=True)  # 0 where not used
    room = jnp.sum(slots.used) <= size
    places = jnp.where(room, order, by_weight)[:size]
    return jax.tree.map(lambda leaf: leaf[places], slots), room
