"""User functions that are called during learning."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from kernax.core.base.parameters import check_count
from kernax.core.base.solution import Solution
from kernax.selection.optimise.progress import LearningRun, Observer, Reached


@dataclasses.dataclass(frozen=True)
class Callback:
    """Calls `function(solution)` after every `every` steps, with the solution that `minimise` would
    return there.

    The solution is concrete: `solution.value` is the best model so far, and `solution.stats` holds
    `loss` (its loss), `losses`, `steps` (so far), `validation_loss`, and whatever else the learning
    function documents. If the callback returns True, learning ends and returns that solution; None
    and False continue. Exceptions do not end learning: any exception of the function reaches the
    caller, also a StopIteration, which may come from an exhausted iterator inside the function.

    Arguments:
        function: a function of a `Solution`. In a run that continues from a checkpoint it is called
            again for the steps since the file was written.
        every: the number of steps between calls; there is a call at the end as well. Between calls
            the steps are one compiled program; a call costs an evaluation of the loss and a
            transfer from the device.

    Raises ValueError for arguments of the wrong kind.

    Examples:
        >>> import optax
        >>> def show(solution):
        ...     print(int(solution.stats["steps"]))
        ...
        >>> def loss(kernel):
        ...     return (kernel.lengthscale - 2.0) ** 2
        ...
        >>> every_tenth = kernax.selection.Callback(show, every=10)
        >>> adam = optax.adam(0.1)
        >>> solution = kernax.minimise(loss, kernax.RBF(1.0), adam, 20, callback=every_tenth)
        10
        20
    """

    function: Callable[[Solution], Any]
    every: int = 1

    def __post_init__(self):
        if not callable(self.function):
            raise ValueError(
                "callback must be a function of a Solution, or "
                "kernax.selection.Callback(function, every=10), but is of type "
                f"{type(self.function).__name__}"
            )
        check_count(self.every, "every of a Callback")


def as_callback(callback: Any) -> Callback:
    """A function as a `Callback` that is called after every step."""
    return callback if isinstance(callback, Callback) else Callback(callback)


def caller(callback: Callback, search: LearningRun) -> Observer:
    """An observer that calls the callback."""

    def told(reached: Reached) -> bool:
        answer = callback.function(search.close(reached.state))
        if answer is None:
            return False
        if np.shape(answer) != () or np.asarray(answer).dtype != bool:
            raise ValueError(
                "callback must return True, which ends learning, False or None, but returned "
                f"{answer!r}"
            )
        return bool(answer)

    return Observer(callback.every, told)
