"""The compiled steps of an optimiser: the problem, the state, and the best model so far."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int

from kernax.core.base.compiled import compiled
from kernax.core.base.intervals import REAL
from kernax.core.base.numerics import eps_of, tree_where
from kernax.core.base.parameters import Rebuild, as_floats
from kernax.core.base.powers import exponent_of, lengths, times_power_of_two
from kernax.core.base.solution import RESULTS, Solution
from kernax.selection.optimise.validation import Validation

# How far the logarithm of a positive parameter may move: eight powers of ten.
_REACH = 8 * math.log(10)


class LearningProblem(eqx.Module):
    """The problem of a run: the objective, the start and the optimiser; constant during a run.

    optax gets the parameters as a list, in the order of their names, because it looks things up by
    name, and a parameter may have any name.
    """

    loss: Callable
    rebuild: Rebuild
    origin: dict[str, Array]
    args: tuple
    optimiser: optax.GradientTransformation
    validation: Validation | None

    def first(self) -> list[Array]:
        return [self.origin[path] for path in sorted(self.origin)]

    def model(self, theta: list[Array]) -> Any:
        """The model with these parameters. A parameter that runs away stops at its bound, and so
        does its derivative.
        """
        bounded = {}
        for path, value in zip(sorted(self.origin), theta):
            reach = self._reach(path)
            origin = self.origin[path]
            low = origin - reach
            high = origin + reach
            # theta is bounded to theta_0 +- 8 log 10: a positive parameter is exp(theta).
            bounded[path] = jnp.clip(value, low, high)
        return self.rebuild(bounded)

    def runaways(self, theta: list[Array]) -> dict[str, Array]:
        """Which parameters have an element at its bound."""
        stopped = {}
        for path, value in zip(sorted(self.origin), theta):
            reach = self._reach(path)
            distance = abs(value - self.origin[path])
            at_bound = distance >= reach
            stopped[path] = jnp.any(at_bound)
        return stopped

    def _reach(self, path: str) -> float:
        """How far an unconstrained parameter may move."""
        intervals = {path: interval for path, interval, _ in self.rebuild.entries}
        return math.inf if intervals[path] == REAL else _REACH

    def objective(self, theta: list[Array]) -> Array:
        return _scalar(self.loss(self.model(theta), *self.args), "loss")

    def validation_loss(self, theta: list[Array]) -> Array | None:
        """The validation loss of a model; None without validation."""
        if self.validation is None:
            return None
        value = self.validation.loss(self.model(theta), *self.validation.args)
        return _scalar(value, "the validation loss")


def _scalar(value: Any, name: str) -> Array:
    """The value of a loss. Raises ValueError for anything but a scalar."""
    if not eqx.is_array_like(value):
        raise ValueError(f"{name} must return a scalar alone, but returns {type(value).__name__}")
    if jnp.shape(value) != ():
        raise ValueError(
            f"{name} must return a scalar, but returns shape {jnp.shape(value)}: take its mean or "
            "sum"
        )
    return as_floats(value)


class OptimiserState(eqx.Module):
    """The state of the optimiser, the best model so far, and the losses at every step.

    The best model has the lowest validation loss, or without validation the lowest objective. The
    optimiser gets the objective in units of `2^unit`.
    """

    theta: list[Array]
    memory: Any
    best: list[Array]
    best_step: Int[Array, ""]
    lowest: Float[Array, ""]
    losses: Float[Array, " steps"]
    validation_losses: Float[Array, " steps"] | None
    gradient_norm: Float[Array, ""]
    unit: Int[Array, ""]
    step: Int[Array, ""]
    result: Any
    running: Array


@compiled
def start(problem: LearningProblem, steps: int) -> OptimiserState:
    """The state before the first step."""
    theta = problem.first()
    dtype = jax.eval_shape(problem.objective, theta).dtype
    judged_by = jax.eval_shape(problem.validation_loss, theta)
    losses = jnp.full(steps + 1, jnp.nan, dtype)
    state = OptimiserState(
        theta=theta,
        memory=problem.optimiser.init(theta),
        best=theta,
        best_step=jnp.zeros((), jnp.int32),
        lowest=jnp.array(jnp.inf, dtype if judged_by is None else judged_by.dtype),
        losses=losses,
        validation_losses=None if judged_by is None else losses.astype(judged_by.dtype),
        gradient_norm=jnp.array(jnp.nan, dtype),
        unit=jnp.zeros((), jnp.int32),
        step=jnp.zeros((), jnp.int32),
        result=RESULTS.successful,
        running=jnp.array(True),
    )

    # The types that the state has after reading it from a file, so that a continued run uses the
    # same program.
    def strongly_typed(leaf: Any) -> Any:
        if not eqx.is_array(leaf) or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        return lax.convert_element_type(leaf, leaf.dtype)

    return jax.tree.map(strongly_typed, state)


@compiled
def advance(problem: LearningProblem, state: OptimiserState, until: Array) -> OptimiserState:
    """Optimises until step `until`.

    It stops earlier if the loss or its gradient is not finite, the gradient is zero, or the
    validation loss has not improved for `patience` steps.
    """

    def step(state: OptimiserState) -> OptimiserState:
        """One update of the optimiser, from the loss and the gradient at the present parameters."""
        value, grad, unit = _value_and_gradient(problem, state)
        judgement = problem.validation_loss(state.theta)
        norm = _length(grad, value.dtype)
        whole_value, whole_norm = times_power_of_two((value, norm), unit)
        state = _record(state, whole_value, judgement)
        finite = jnp.isfinite(value) & jnp.isfinite(norm)
        validation = problem.validation
        is_patient = jnp.array(True)
        if validation is not None and validation.patience is not None:
            is_patient = state.step - state.best_step < validation.patience
        # A gradient that is zero up to rounding ends the run.
        running = finite & (norm > _rounding(value)) & is_patient
        optimiser = optax.with_extra_args_support(problem.optimiser)
        objective = problem.objective
        # The line search compares values, which must be in the unit of the gradient.
        if _has_own_unit(state.memory):
            objective = lambda theta: times_power_of_two(problem.objective(theta), -unit)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes float and integer counters
            updates, memory = optimiser.update(
                grad, state.memory, state.theta, value=value, grad=grad, value_fn=objective
            )
        # theta' = theta + u, where u is the update that the optimiser makes of g = L'(theta).
        theta: Any = optax.apply_updates(state.theta, updates)
        return dataclasses.replace(
            state,
            theta=tree_where(running, theta, state.theta),
            memory=memory,
            gradient_norm=jnp.where(jnp.isfinite(value), whole_norm, jnp.nan).astype(value.dtype),
            unit=unit,
            step=state.step + 1,
            result=RESULTS.where(finite, state.result, RESULTS.nonfinite),
            running=running,
        )

    goes_on = lambda state: state.running & (state.step < until)
    return lax.while_loop(goes_on, step, state)


def _rounding(value: Array) -> Array:
    """The norm below which a gradient is zero up to rounding, for a value of the loss."""
    return eps_of(value) ** (2 / 3) * abs(value)


def _length(grad: list[Array], dtype: Any) -> Array:
    """The norm of a gradient, without overflow of the squares."""
    entries = jnp.concatenate([jnp.ravel(leaf).astype(dtype) for leaf in grad])
    return lengths(entries[:, None])[0]


def _has_own_unit(memory: Any) -> bool:
    """Whether an optimiser takes the same steps in any unit of the loss, up to rounding.

    L-BFGS does, with a line search that leaves value and gradient of its last evaluation.
    """
    names = ("value", "grad", "diff_updates_memory")
    return all(optax.tree.get(memory, name) is not None for name in names)


_LEAST_SHARE = 10  # below 2^-10 of the loss the gradient makes a first step shorter than one


def _value_and_gradient(
    problem: LearningProblem, state: OptimiserState
) -> tuple[Array, list[Array], Array]:
    """The objective and its gradient, in units of `2^unit`, and the unit.

    If a line search has stored its last evaluation, it is not repeated. For L-BFGS the first
    gradient has a length of one to two in that unit: the first step is the gradient, if that is no
    longer than one; later steps do not depend on the unit. Products of gradients stay in the range
    of floats.
    """
    known_value = optax.tree.get(state.memory, "value")
    known_grad: Any = optax.tree.get(state.memory, "grad")
    if not _has_own_unit(state.memory):
        grad: Any
        if known_value is None or known_grad is None:
            value, grad = jax.value_and_grad(problem.objective)(state.theta)
        else:
            of_state = optax.value_and_grad_from_state(problem.objective)
            value, grad = of_state(state.theta, state=state.memory)
        return jnp.asarray(value), grad, state.unit
    known_value = jnp.asarray(known_value)

    def known() -> tuple[Array, list[Array], Array]:
        return known_value, known_grad, state.unit

    def anew() -> tuple[Array, list[Array], Array]:
        value, pull = jax.vjp(problem.objective, state.theta)
        # Backwards from a number such as 1 / value, so that no product on the way is out of range.
        most = jnp.finfo(value.dtype).maxexp - 8
        of_value = jnp.clip(exponent_of(abs(value)), -most, most)
        (grad,) = pull(times_power_of_two(jnp.ones_like(value), -of_value))
        size = jnp.maximum(_length(grad, value.dtype), 2.0**-_LEAST_SHARE)
        first = of_value + exponent_of(size) - 1
        # 2^-unit |L'| is in [1, 2) at the start, unless |L'| is below 2^(of_value - 10).
        unit = jnp.where(state.step == 0, first, state.unit)
        grad = [times_power_of_two(leaf, of_value - unit) for leaf in grad]
        return times_power_of_two(value, -unit), grad, unit

    return lax.cond(jnp.isfinite(known_value), known, anew)


def _record(state: OptimiserState, value: Array, validation_loss: Array | None) -> OptimiserState:
    """Records the losses at the current parameters, and stores these if they are the best so
    far.
    """
    # The best step is argmin_t of the validation loss, or else of L(theta_t).
    judgement = value
    validation_losses = state.validation_losses
    if validation_loss is not None and validation_losses is not None:
        judgement = validation_loss
        validation_losses = validation_losses.at[state.step].set(judgement)
    better = (judgement < state.lowest) & jnp.isfinite(judgement) & jnp.isfinite(value)
    return dataclasses.replace(
        state,
        best=tree_where(better, state.theta, state.best),
        best_step=jnp.where(better, state.step, state.best_step),
        lowest=jnp.where(better, judgement, state.lowest),
        losses=state.losses.at[state.step].set(value),
        validation_losses=validation_losses,
    )


@compiled
def close(problem: LearningProblem, state: OptimiserState) -> Solution:
    """Evaluates the parameters after the last update too, and rebuilds the best model.

    The losses of the best model are computed anew: those of the steps come from another program,
    which rounds differently.
    """

    def look(place: Array, now: _Look) -> _Look:
        """First at the last parameters, which may be the best, then at the best."""
        at_last = place == 0
        theta = tree_where(at_last, now.state.theta, now.state.best)
        value = problem.objective(theta)
        validation_loss = problem.validation_loss(theta)
        recorded = _record(now.state, value, validation_loss)
        new = at_last & now.state.running
        failed = jnp.where(at_last, now.state.running & ~jnp.isfinite(value), now.failed)
        return _Look(tree_where(new, recorded, now.state), value, validation_loss, failed)

    # Whether the model equals the start, although the gradient is not zero: the steps of the
    # optimiser are below rounding, or out of the range of floats.
    if _has_own_unit(state.memory):
        unmoved = jnp.array(False)  # a line search lowers the loss
    else:
        models = (problem.model(theta) for theta in (state.theta, problem.first()))
        present, before = (
            jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)) for model in models
        )
        same = [jnp.all(one == other) for one, other in zip(present, before)]
        last_value = state.losses[jnp.maximum(state.step - 1, 0)]
        unmoved = jnp.all(jnp.stack(same)) & (state.gradient_norm > _rounding(last_value))
    value = state.losses[0]
    validation_loss = None if state.validation_losses is None else state.lowest
    nothing = _Look(state, value, validation_loss, jnp.zeros_like(state.running))
    end = lax.fori_loop(0, 2, look, nothing)
    state = end.state
    known = jnp.isfinite(state.lowest)
    known &= jnp.isfinite(end.value)
    result = RESULTS.where(end.failed | ~known, RESULTS.nonfinite, state.result)
    # Nothing was learned if a parameter ended at its bound and no step improved on the start.
    last = problem.runaways(state.theta)
    at_bound = jnp.any(jnp.stack(list(last.values())))
    lost = at_bound & known & (state.best_step == 0)
    succeeds = result == RESULTS.successful
    result = RESULTS.where(succeeds & unmoved, RESULTS.stagnation, result)
    result = RESULTS.where(succeeds & lost, RESULTS.diverged, result)
    # A diverged run names the parameters that ran away at its end, although its best model is the
    # start.
    best = problem.runaways(state.best)
    runaways = {path: best[path] | (lost & last[path]) for path in best}
    # NaN if no loss was ever finite.
    stats = {
        "loss": jnp.where(known, end.value, jnp.nan),
        "losses": state.losses,
        "steps": state.step,
        "gradient_norm": state.gradient_norm,
        "runaways": runaways,
    }
    if end.validation_loss is not None and state.validation_losses is not None:
        stats["validation_loss"] = jnp.where(known, end.validation_loss, jnp.nan)
        stats["validation_losses"] = state.validation_losses
    return Solution(problem.model(state.best), result, stats)


class _Look(eqx.Module):
    """The state at the end of a run, losses at some of its parameters, and whether the last ones
    are not finite.
    """

    state: OptimiserState
    value: Float[Array, ""]
    validation_loss: Float[Array, ""] | None
    failed: Array
