"""Learning in pieces, between which observers run: a bar, a callback, a checkpoint.

The steps do not depend on the observers. Without an observer they are one compiled call.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from kernax.core.base.printing import bar_of

_PIECES = 50  # how often the bar is redrawn


class LearningRun(NamedTuple):
    """The compiled functions of a run, as `jax.tree_util.Partial` of their problem."""

    start: Callable[[int], Any]  # the state before the first step, of so many steps
    advance: Callable[[Any, Array], Any]  # the state at a step, or where it ended
    close: Callable[[Any], Any]  # the `Solution` if learning ends there


class Reached(NamedTuple):
    """A state, the step it belongs to, whether learning is over, and whether an observer ended
    it.
    """

    state: Any
    step: int
    over: bool
    stopped: bool = False


class Observer(NamedTuple):
    """An observer: `told(reached)` is called after every so many steps and at the end, and returns
    whether learning ends there.
    """

    every: int
    told: Callable[[Reached], bool]


def run(
    search: LearningRun, reached: Reached, steps: int, observers: Sequence[Observer]
) -> Reached:
    """Takes all remaining steps, in pieces that end where an observer is due.

    Later observers see the decision of earlier ones.
    """
    while not reached.over:
        # The next multiple of the steps of each.
        due = [(reached.step // each.every + 1) * each.every for each in observers]
        until = min(*due, steps)
        state = search.advance(reached.state, jnp.asarray(until))
        over = until == steps or not bool(state.running.any())
        reached = Reached(state, int(state.step.max()), over)
        for observer in observers:
            if reached.over or until % observer.every == 0:
                stopped = observer.told(reached) or reached.stopped
                reached = reached._replace(over=reached.over or stopped, stopped=stopped)
    return reached


@contextlib.contextmanager
def bar(reached: Reached, steps: int) -> Iterator[Observer]:
    """A bar on standard error."""
    with bar_of("learning", steps, reached.step) as show:

        def told(reached: Reached) -> bool:
            total = reached.step if reached.over else steps  # an early end fills the bar
            kind = "loss" if reached.state.validation_losses is None else "validation loss"
            lowest = float(reached.state.lowest.min())  # of one run, or of several
            show(reached.step, total, f"{kind} {lowest:.6g}")
            return False

        if reached.over:
            told(reached)
        yield Observer(-(-steps // _PIECES), told)
