"""One run of learning, for a single start and for many, and how it ends."""

import contextlib
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from kernax.core.base.numerics import is_concrete
from kernax.core.base.solution import RESULTS, Solution, finish, warn
from kernax.core.checkpoint.checkpoint import Checkpoint, as_checkpoint
from kernax.errors import RunawayWarning
from kernax.selection.optimise.callbacks import Callback, as_callback, caller
from kernax.selection.optimise.kept_learning import Call, facts_of_call, keeper, resumed
from kernax.selection.optimise.progress import LearningRun, Observer, Reached, bar, run


class Watchers(NamedTuple):
    """What is drawn, called and written during learning: the keywords of the functions."""

    progress: bool
    callback: Callback | None
    checkpoint: Checkpoint | None


def watchers(progress: bool, callback: Any, checkpoint: Any) -> Watchers:
    """The keywords that a user passed. Raises ValueError for values of the wrong kind."""
    return Watchers(
        progress,
        None if callback is None else as_callback(callback),
        as_checkpoint(checkpoint),
    )


def run_watched(search: LearningRun, call: Call, watchers: Watchers) -> Solution:
    """The outcome of a call. Raises ValueError for watchers under a transformation."""
    state = search.start(call.steps)
    if not any(watchers):
        return search.close(search.advance(state, jnp.asarray(call.steps)))
    if not is_concrete(search, state):
        raise ValueError(
            "progress=True, callback and checkpoint need concrete values: leave them out under "
            "jit, grad and vmap"
        )
    reached = Reached(state, 0, over=False)
    # The callback comes first, as it may end the run; the checkpoint comes last, to record that.
    last = []
    if watchers.checkpoint is not None:
        facts = facts_of_call(call, search)
        reached = resumed(watchers.checkpoint, facts, call.steps, state)
        last.append(keeper(watchers.checkpoint, facts, call.steps))
    with contextlib.ExitStack() as stack:
        observers: list[Observer] = []
        if watchers.callback is not None:
            observers.append(caller(watchers.callback, search))
        if watchers.progress:
            observers.append(stack.enter_context(bar(reached, call.steps)))
        reached = run(search, reached, call.steps, [*observers, *last])
    return search.close(reached.state)


def finish_learning(solution: Solution, throw: bool, function_name: str) -> Solution:
    """`finish`, plus a warning that names the parameters at their bounds.

    The warning requires concrete values.
    """
    if not is_concrete(solution.stats):
        return finish(solution, throw, function_name)
    names = ", ".join(path for path, there in solution.stats["runaways"].items() if there)
    finish(solution, throw, f"{function_name}: {_hint(solution, names)}")
    if names:
        warn(
            f"{names} moved eight powers of ten away from the start and was stopped there: take "
            "shorter steps, or, if the loss hardly depends on it any more, leave it out, freeze "
            "it or add a prior",
            RunawayWarning,
        )
    return solution


def _hint(solution: Solution, names: str) -> str:
    """The advice after a failure; `names` are the names of the parameters at their bounds."""
    if not np.isfinite(solution.stats["losses"][0]):
        return (
            "the loss is not finite at the start: look for NaN in args, and for parameters that it "
            "cannot take."
        )
    if not np.isfinite(solution.stats.get("validation_loss", 0.0)):
        return (
            "the validation loss is finite at no step: look for NaN in the args of validation, and "
            "for a model that it cannot take."
        )
    if solution.result == RESULTS.diverged:
        return (
            f"{names} moved eight powers of ten away, and no step improved on the start: take "
            "shorter steps."
        )
    if solution.result == RESULTS.stagnation:
        return (
            "no step moved a parameter, although the gradient is not zero: the steps of the "
            "optimiser are below rounding, or out of the range of floats. Multiply the loss or "
            "the learning rate by a constant, or use optax.lbfgs(), whose steps do not depend on "
            "it."
        )
    return "pass throw=False to get the best model before that."
