"""One run of learning, for a single start and for many."""

import contextlib
from typing import Any, NamedTuple

import jax.numpy as jnp

from kernax.core.base.numerics import is_concrete
from kernax.core.base.solution import Solution
from kernax.core.checkpoint.checkpoint import Checkpoint, as_checkpoint
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


def learned(search: LearningRun, call: Call, watchers: Watchers) -> Solution:
    """The outcome of a call. Raises ValueError for watchers under a transformation."""
    state = search.start(call.steps)
    if not any(watchers):
        return search.close(search.advance(state, jnp.asarray(call.steps)))
    if not is_concrete(search, state):
        raise ValueError(
            "progress=True, callback and checkpoint need concrete values: leave them out under "
            "jit, grad and vmap"
        )
    return search.close(_watched(search, call, watchers, state).state)


def _watched(search: LearningRun, call: Call, watchers: Watchers, state: Any) -> Reached:
    """The end of a run with observers.

    The callback comes first, as it may end the run; the checkpoint comes last, to record that.
    """
    reached = Reached(state, 0, over=False)
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
        return run(search, reached, call.steps, [*observers, *last])
