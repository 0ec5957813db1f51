"""One way through a run of learning, for one start and for many."""

import contextlib
from typing import Any, NamedTuple

import jax.numpy as jnp

from kernax.core.base.numerics import is_concrete
from kernax.core.base.solution import Solution
from kernax.selection.optimise.callbacks import Callback, as_callback, caller
from kernax.selection.optimise.checkpoints import Checkpoint, Keeper, as_checkpoint, check_file
from kernax.selection.optimise.identity import Call, identity_of
from kernax.selection.optimise.progress import Observer, Reached, Search, bar, run


class Watchers(NamedTuple):
    """What is shown, called and written while learning goes on: each a keyword of the functions."""

    progress: bool
    callback: Callback | None
    checkpoint: Checkpoint | None


def watchers(progress: bool, callback: Any, checkpoint: Any) -> Watchers:
    """What a user passed. Raises ValueError for what is of the wrong kind."""
    return Watchers(
        progress,
        None if callback is None else as_callback(callback),
        None if checkpoint is None else as_checkpoint(checkpoint),
    )


def learned(search: Search, call: Call, watchers: Watchers) -> Solution:
    """The outcome of a call. Raises ValueError for watchers under a transformation."""
    state = search.start(call.steps)
    if not any(watchers):
        return search.close(search.advance(state, jnp.asarray(call.steps)))
    if not is_concrete(search, state):
        raise ValueError(
            "progress=True, callback and checkpoint need concrete values: leave them out under "
            "jit, grad and vmap"
        )
    reached = _watched(search, call, watchers, Reached(state, 0, over=False))
    return search.close(reached.state)


def _watched(search: Search, call: Call, watchers: Watchers, reached: Reached) -> Reached:
    """The end of a run with observers.

    The callback comes first, as it may end the run, and the checkpoint last, which records that.
    """
    kept = []
    if watchers.checkpoint is not None:
        check_file(watchers.checkpoint)
        keeper = Keeper(watchers.checkpoint, identity_of(call, search), call.steps)
        reached = keeper.resumed(reached)
        kept.append(keeper.observer())
    with contextlib.ExitStack() as stack:
        observers: list[Observer] = []
        if watchers.callback is not None:
            observers.append(caller(watchers.callback, search))
        if watchers.progress:
            observers.append(stack.enter_context(bar(reached, call.steps)))
        return run(search, reached, call.steps, [*observers, *kept])
