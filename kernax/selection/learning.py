"""One way through a run of learning, for one start and for many."""

import contextlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from kernax.core.numerics import is_concrete
from kernax.core.solution import Solution
from kernax.selection.callbacks import Callback, as_callback, caller
from kernax.selection.checkpoints import Checkpoint, Keeper, as_checkpoint, check_file
from kernax.selection.identity import Call, identity_of
from kernax.selection.progress import Observer, Reached, Search, bar, run


class Watchers(NamedTuple):
    """Who is told how learning goes: each a keyword of the verbs."""

    progress: bool
    callback: Callback | None
    checkpoint: Checkpoint | None


def watchers(
    progress: bool,
    callback: Callback | Callable[[Solution], Any] | None,
    checkpoint: Checkpoint | str | os.PathLike | None,
) -> Watchers:
    """What a user passed. Raises ValueError for what is of the wrong kind."""
    return Watchers(
        progress,
        None if callback is None else as_callback(callback),
        None if checkpoint is None else as_checkpoint(checkpoint),
    )


def learned(search: Search, call: Call, watchers: Watchers) -> Solution:
    """The outcome of a call.

    Raises ValueError under a transformation, where there is nothing to tell a watcher.
    """
    asked = [name for name, watcher in watchers._asdict().items() if watcher]
    if not asked:
        state = search.advance(search.start(call.steps), jnp.asarray(call.steps))
        return search.close(state)
    if not is_concrete(search, call):
        raise ValueError(
            f"{asked[0]}={getattr(watchers, asked[0])!r} needs concrete values: leave it out "
            "under jit, grad and vmap"
        )
    reached = Reached(search.start(call.steps), 0, over=False)
    return search.close(_watched(search, call, watchers, reached).state)


def _watched(search: Search, call: Call, watchers: Watchers, reached: Reached) -> Reached:
    """The end of a run under the eyes of all who watch it. The checkpoint is written last."""
    with contextlib.ExitStack() as stack:
        observers: list[Observer] = []
        kept = []
        if watchers.checkpoint is not None:
            check_file(watchers.checkpoint)
            keeper = Keeper(watchers.checkpoint, identity_of(call, search), call.steps)
            reached = keeper.resumed(reached)
            kept.append(keeper.observer())
        if watchers.progress:
            observers.append(stack.enter_context(bar(reached, call.steps)))
        if watchers.callback is not None:
            observers.append(caller(watchers.callback, search))
        return run(search, reached, call.steps, [*observers, *kept])
