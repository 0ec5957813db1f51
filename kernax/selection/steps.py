"""The steps of an optimiser, compiled: what is minimised, where it stands, and the best so far."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int

from kernax.core.intervals import REAL
from kernax.core.numerics import chosen, eps_of
from kernax.core.parameters import Rebuild, as_floats
from kernax.core.sharding import compiled, while_loop
from kernax.core.solution import RESULTS, Solution
from kernax.selection.validation import Validation

# How far the logarithm of a positive parameter may move: eight powers of ten.
_REACH = 8 * math.log(10)


class Problem(eqx.Module):
    """What is minimised, from where and how; constant during a run.

    optax sees the parameters as a list, in the order of their names: it looks things up by name,
    and a parameter may have any.
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
        """A parameter that runs away stops at its bound, and so does its derivative."""
        bounded = {}
        for path, value in zip(sorted(self.origin), theta):
            reach = self._reach(path)
            origin = self.origin[path]
            low = origin - reach
            high = origin + reach
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
        """The loss by which models are judged, None where it is the objective itself."""
        if self.validation is None:
            return None
        value = self.validation.loss(self.model(theta), *self.validation.args)
        return _scalar(value, "the validation loss")


def _scalar(value: Any, name: str) -> Array:
    """The value of a loss. Raises ValueError for what is no scalar."""
    if not eqx.is_array_like(value):
        raise ValueError(f"{name} must return a scalar alone, but returns {type(value).__name__}")
    if jnp.shape(value) != ():
        raise ValueError(
            f"{name} must return a scalar, but returns shape {jnp.shape(value)}: take its mean or "
            "sum"
        )
    return as_floats(value)


class State(eqx.Module):
    """Where the optimiser stands, the best it has seen, and the losses at every step so far.

    The best is that of the lowest validation loss, or objective where there is no validation.
    """

    theta: list[Array]
    memory: Any
    best: list[Array]
    best_step: Int[Array, ""]
    lowest: Float[Array, ""]
    losses: Float[Array, " steps"]
    validation_losses: Float[Array, " steps"] | None
    gradient_norm: Float[Array, ""]
    step: Int[Array, ""]
    result: Any
    running: Array


@compiled
def start(problem: Problem, steps: int) -> State:
    """Before the first step."""
    theta = problem.first()
    dtype = jax.eval_shape(problem.objective, theta).dtype
    judged_by = jax.eval_shape(problem.validation_loss, theta)
    losses = jnp.full(steps + 1, jnp.nan, dtype)
    state = State(
        theta=theta,
        memory=problem.optimiser.init(theta),
        best=theta,
        best_step=jnp.zeros((), jnp.int32),
        lowest=jnp.array(jnp.inf, dtype if judged_by is None else judged_by.dtype),
        losses=losses,
        validation_losses=None if judged_by is None else losses.astype(judged_by.dtype),
        gradient_norm=jnp.array(jnp.nan, dtype),
        step=jnp.zeros((), jnp.int32),
        result=RESULTS.successful,
        running=jnp.array(True),
    )
    return jax.tree.map(_strongly_typed, state)


def _strongly_typed(leaf: Any) -> Any:
    """As it is after it was read from a file: whatever continues runs the same program."""
    if not eqx.is_array(leaf) or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return lax.convert_element_type(leaf, leaf.dtype)


@compiled
def advance(problem: Problem, state: State, until: Array) -> State:
    """Optimises until step `until`.

    Or until the loss or its gradient is not finite, the gradient is zero, or the validation loss
    has not improved for as many steps as it may.
    """
    goes_on = lambda state: state.running & (state.step < until)
    return while_loop(goes_on, partial(_step, problem), state)


def _step(problem: Problem, state: State) -> State:
    """One update of the optimiser, from the loss and the gradient where it stands."""
    value, grad = _value_and_gradient(problem, state)
    state = _record(problem, state, value)
    norm = jnp.asarray(optax.tree.norm(grad))
    finite = jnp.isfinite(value) & jnp.isfinite(norm)
    # A gradient that is zero to rounding ends the run.
    rounding = eps_of(value) ** (2 / 3) * abs(value)
    running = finite & (norm > rounding) & _is_patient(problem, state)
    theta, memory = _updated(problem, state, value, grad)
    return dataclasses.replace(
        state,
        theta=chosen(running, theta, state.theta),
        memory=memory,
        gradient_norm=jnp.where(jnp.isfinite(value), norm, jnp.nan).astype(value.dtype),
        step=state.step + 1,
        result=RESULTS.where(finite, state.result, RESULTS.nonfinite),
        running=running,
    )


def _is_patient(problem: Problem, state: State) -> Array:
    """Whether the validation loss may still improve."""
    if problem.validation is None or problem.validation.patience is None:
        return jnp.array(True)
    return state.step - state.best_step < problem.validation.patience


def _value_and_gradient(problem: Problem, state: State) -> tuple[Array, Any]:
    """Of the objective; where a line search left its last evaluation, it is not repeated."""
    if any(optax.tree.get(state.memory, name) is None for name in ("value", "grad")):
        value, grad = jax.value_and_grad(problem.objective)(state.theta)
    else:
        of_state = optax.value_and_grad_from_state(problem.objective)
        value, grad = of_state(state.theta, state=state.memory)
    return jnp.asarray(value), grad


def _updated(problem: Problem, state: State, value: Array, grad: Any) -> tuple[Any, Any]:
    """The parameters after a step of the optimiser, and what it remembers."""
    optimiser = optax.with_extra_args_support(problem.optimiser)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes float and integer counters
        updates, memory = optimiser.update(
            grad, state.memory, state.theta, value=value, grad=grad, value_fn=problem.objective
        )
    return optax.apply_updates(state.theta, updates), memory


def _record(problem: Problem, state: State, value: Array) -> State:
    """Notes the losses at the current parameters, and keeps these if they are the best yet."""
    judgement = value
    validation_losses = state.validation_losses
    if validation_losses is not None:
        judgement = jnp.asarray(problem.validation_loss(state.theta))
        validation_losses = validation_losses.at[state.step].set(judgement)
    better = (judgement < state.lowest) & jnp.isfinite(judgement) & jnp.isfinite(value)
    return dataclasses.replace(
        state,
        best=chosen(better, state.theta, state.best),
        best_step=jnp.where(better, state.step, state.best_step),
        lowest=jnp.where(better, judgement, state.lowest),
        losses=state.losses.at[state.step].set(value),
        validation_losses=validation_losses,
    )


@compiled
def close(problem: Problem, state: State) -> Solution:
    """Looks at the parameters after the last update too, and rebuilds the best model."""
    value = problem.objective(state.theta)
    failed = state.running & ~jnp.isfinite(value)
    state = chosen(state.running, _record(problem, state, value), state)
    known = jnp.isfinite(state.lowest)
    result = RESULTS.where(failed | ~known, RESULTS.nonfinite, state.result)
    # Nothing was learned if a parameter ended at its bound and no step improved on the start.
    last = problem.runaways(state.theta)
    at_bound = jnp.any(jnp.stack(list(last.values())))
    lost = at_bound & known & (state.best_step == 0)
    result = RESULTS.where(lost & (result == RESULTS.successful), RESULTS.diverged, result)
    # A run that was lost names what ran away at its end, although its best model is the start.
    best = problem.runaways(state.best)
    runaways = {path: best[path] | (lost & last[path]) for path in best}
    return Solution(problem.model(state.best), result, _statistics(state) | {"runaways": runaways})


def _statistics(state: State) -> dict[str, Array]:
    """The losses of the best model, and of every step; NaN where none was ever finite."""
    known = jnp.isfinite(state.lowest)
    stats = {
        "loss": jnp.where(known, state.losses[state.best_step], jnp.nan),
        "losses": state.losses,
        "steps": state.step,
        "gradient_norm": state.gradient_norm,
    }
    if state.validation_losses is not None:
        stats["validation_loss"] = jnp.where(known, state.lowest, jnp.nan)
        stats["validation_losses"] = state.validation_losses
    return stats
