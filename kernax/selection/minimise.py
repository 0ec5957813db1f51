"""Learning the parameters of a model by gradients."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from kernax.core.intervals import REAL
from kernax.core.numerics import chosen, eps_of
from kernax.core.parameters import Rebuild, Trainable, as_floats, unconstrain
from kernax.core.sharding import compiled, while_loop
from kernax.core.solution import RESULTS, Solution
from kernax.selection.ending import ended
from kernax.selection.progress import run

Model = TypeVar("Model")

# How far the logarithm of a positive parameter may move: eight powers of ten.
_REACH = 8 * math.log(10)


class State(eqx.Module):
    """Where the optimiser stands, the best it has seen, and the objective at every step so far."""

    theta: list[Array]
    memory: Any
    best: list[Array]
    best_loss: Float[Array, ""]
    losses: Float[Array, " steps"]
    gradient_norm: Float[Array, ""]
    step: Int[Array, ""]
    result: Any
    running: Array


def minimise(
    loss: Callable[..., Array],
    model: Model,
    optimiser: optax.GradientTransformation,
    steps: int,
    *,
    args: tuple = (),
    trainable: Trainable | None = None,
    progress: bool = False,
    throw: bool = True,
) -> Solution[Model]:
    """Minimises `loss(model, *args)` over the model's parameters.

    The optimiser is any of optax, `optax.lbfgs()` included.

    Optimises the unconstrained view of the parameters (`unconstrain`), so positive ones stay
    positive, and returns the best model seen, which is never one whose loss is NaN. Compiled once
    for given `loss` and `optimiser` objects and shapes: reuse them, and other arrays and floats in
    `args` never compile again; an integer or a string there is static. What was learned has no
    reverse-mode derivative: JAX refuses `jax.grad` through the steps. Forward mode goes through
    them.

    Arguments:
        loss: `loss(model, *args)`, a scalar. Define it once, at module level; data go through
            `args`.
        model: a pytree of modules and arrays: a kernel, or a module of your own that holds one and
            a `positive()` ridge.
        optimiser: made once, `optimiser = optax.lbfgs()`, at module level as well: written inline,
            `optax.lbfgs()` is another object in every call, and compiles in every call. Its line
            searches are run as optax defines them.
        steps: the number of updates; another number compiles again. Stops early where the gradient
            is zero to rounding: its norm at most eps^(2/3) |loss|.
        trainable: as for `unconstrain`: freezes whole parameters or single elements, which come
            back bitwise.
        progress: draw a bar on standard error (needs `rich`; not under a transformation).
        throw: raise `NonFiniteError` if the loss or its gradient becomes NaN or inf,
            `DivergedError` if the steps were too long; otherwise look at `result`.

    Returns:
        A `Solution`: the model with the lowest finite loss; `nonfinite` if the loss or gradient
        stopped being finite, in which case `value` is the best before that. Stats: `loss` (of
        `value`), `losses` (steps + 1,) with NaN where not reached, `steps` taken, `gradient_norm`
        at the last step, with respect to the unconstrained parameters, and
        `runaways`: which parameters stand at their bounds. A positive parameter may move eight
        powers of ten from its start, an interval's as far in logits; one that is still running
        there is stopped and named in a warning. `diverged` if the run stopped at a bound and no
        step improved on the start, which is then `value`: the gradient is zero at a bound, but
        nothing was learned.

    Raises:
        ValueError: nothing to learn, no steps, or a loss that is not a scalar.
    """
    check_task(loss, optimiser, steps, args, trainable)
    theta, rebuild = unconstrained(model, trainable)
    problem = Problem(loss, rebuild, theta, strongly_typed(args), optimiser)
    state = start(problem, steps)
    state = run(partial(advance, problem), state, steps, progress)
    return ended(close(problem, state), throw, "minimise")


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
        value = self.loss(self.model(theta), *self.args)
        if not eqx.is_array_like(value):
            raise ValueError(f"loss must return a scalar alone, but returns {type(value).__name__}")
        if jnp.shape(value) != ():
            raise ValueError(
                f"loss must return a scalar, but returns shape {jnp.shape(value)}: take its mean "
                "or sum"
            )
        return as_floats(value)


@compiled
def start(problem: Problem, steps: int) -> State:
    """Before the first step."""
    theta = problem.first()
    dtype = jax.eval_shape(problem.objective, theta).dtype
    return State(
        theta=theta,
        memory=problem.optimiser.init(theta),
        best=theta,
        best_loss=jnp.array(jnp.inf, dtype),
        losses=jnp.full(steps + 1, jnp.nan, dtype),
        gradient_norm=jnp.array(jnp.nan, dtype),
        step=jnp.zeros((), jnp.int32),
        result=RESULTS.successful,
        running=jnp.array(True),
    )


@compiled
def advance(problem: Problem, state: State, until: Array) -> State:
    """Optimises until step `until`.

    Or until the loss or its gradient is not finite, or the gradient is zero.
    """
    goes_on = lambda state: state.running & (state.step < until)
    return while_loop(goes_on, partial(_step, problem), state)


def _step(problem: Problem, state: State) -> State:
    """One update of the optimiser, from the loss and the gradient where it stands."""
    value, grad = _value_and_gradient(problem, state)
    state = _record(state, value)
    norm = jnp.asarray(optax.tree.norm(grad))
    finite = jnp.isfinite(value) & jnp.isfinite(norm)
    # A gradient that is zero to rounding ends the run.
    rounding = eps_of(value) ** (2 / 3) * abs(value)
    running = finite & (norm > rounding)
    theta, memory = _updated(problem, state, value, grad)
    return State(
        theta=chosen(running, theta, state.theta),
        memory=memory,
        best=state.best,
        best_loss=state.best_loss,
        losses=state.losses,
        gradient_norm=jnp.where(jnp.isfinite(value), norm, jnp.nan).astype(value.dtype),
        step=state.step + 1,
        result=RESULTS.where(finite, state.result, RESULTS.nonfinite),
        running=running,
    )


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


def _record(state: State, value: Array) -> State:
    """Notes the loss at the current parameters, and keeps these if they are the best yet."""
    better = (value < state.best_loss) & jnp.isfinite(value)
    best = chosen(better, state.theta, state.best)
    best_loss = jnp.where(better, value, state.best_loss)
    losses = state.losses.at[state.step].set(value)
    return eqx.tree_at(lambda s: (s.best, s.best_loss, s.losses), state, (best, best_loss, losses))


@compiled
def close(problem: Problem, state: State) -> Solution:
    """Looks at the parameters after the last update too, and rebuilds the best model."""
    value = problem.objective(state.theta)
    failed = state.running & ~jnp.isfinite(value)
    result = RESULTS.where(failed, RESULTS.nonfinite, state.result)
    state = chosen(state.running, _record(state, value), state)
    # Nothing was learned if a parameter ended at its bound and no step improved on the start.
    last = problem.runaways(state.theta)
    at_bound = jnp.any(jnp.stack(list(last.values())))
    lost = at_bound & (state.best_loss == state.losses[0])
    result = RESULTS.where(lost & (result == RESULTS.successful), RESULTS.diverged, result)
    # A run that was lost names what ran away at its end, although its best model is the start.
    best = problem.runaways(state.best)
    stats = {
        "loss": jnp.where(jnp.isfinite(state.best_loss), state.best_loss, jnp.nan),
        "losses": state.losses,
        "steps": state.step,
        "gradient_norm": state.gradient_norm,
        "runaways": {path: best[path] | (lost & last[path]) for path in best},
    }
    return Solution(problem.model(state.best), result, stats)


def check_task(loss: Any, optimiser: Any, steps: Any, args: Any, trainable: Any) -> None:
    """Raises ValueError for arguments of the wrong kind, before anything is traced."""
    if not isinstance(steps, (int, np.integer)) or steps < 1:
        raise ValueError(f"steps must be a positive integer, but is {steps!r}")
    if not callable(loss):
        raise ValueError(
            f"loss must be a function of a model, but is of type {type(loss).__name__}"
        )
    if not (hasattr(optimiser, "init") and hasattr(optimiser, "update")):
        raise ValueError(
            f"optimiser must be one of optax, such as optax.adam(0.1), called, but is {optimiser!r}"
        )
    _check_args(args, trainable)


def _check_args(args: Any, trainable: Any) -> None:
    """Raises ValueError for what is no tuple of arguments, or no choice of parameters."""
    if not isinstance(args, tuple):
        raise ValueError(
            "args must be a tuple of what loss takes after the model, but is of type "
            f"{type(args).__name__}"
        )
    if trainable is not None and not callable(trainable):
        raise ValueError(
            "trainable must be a function of a path and a value, but is of type "
            f"{type(trainable).__name__}"
        )


def unconstrained(model: Any, trainable: Trainable | None) -> tuple[dict[str, Array], Rebuild]:
    """`unconstrain`, of a model that has something to learn."""
    theta, rebuild = unconstrain(model, trainable)
    if not theta:
        raise ValueError(
            "the model has no free parameters: everything is frozen, or no field is declared "
            "kernax.fields.positive() or real()"
        )
    return theta, rebuild


def strongly_typed(args: tuple) -> tuple:
    """Python floats as arrays, so that another value does not compile again."""
    return jax.tree.map(lambda leaf: as_floats(leaf) if isinstance(leaf, float) else leaf, args)
