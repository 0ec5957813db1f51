"""What a learner of a stream is: a start, and what one more point changes."""

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, PyTree

from kernax.core.base.parameters import check_intervals
from kernax.core.base.printing import Printed


class AbstractOnlineState(Printed):
    """The state of a learner between two points: arrays whose shapes never change.

    A kernel in it is the learner's, for `function`. No update may change it, and a run that goes on
    with another learner replaces it by the kernel of that one.

    Attributes:
        updates: the number of points at which the learner changed the function.
    """

    updates: eqx.AbstractVar[Int[Array, ""]]

    @property
    @abc.abstractmethod
    def function(self) -> Callable:
        """The function learned so far, of one point; `function.values(X)` for a stack."""

    @property
    @abc.abstractmethod
    def result(self) -> Any:
        """A status of `RESULTS`: whether the state is what the learner promises.

        `run` itself checks that it is finite.
        """


class AbstractOnlineLearner(Printed):
    """An online learner: for one point after another it predicts, receives the target, and learns
    from it.

    Attributes:
        loss: one of `kernax.losses`: what a prediction costs. `loss.targets` says what targets are.
    """

    loss: eqx.AbstractVar[Any]

    def __check_init__(self):
        check_intervals(self)

    @abc.abstractmethod
    def init(self, point: PyTree) -> AbstractOnlineState:
        """The state before the first point, for points of the shapes and dtypes of this one."""

    @abc.abstractmethod
    def update(
        self, state: Any, x: PyTree, y: Float[Array, ""]
    ) -> tuple[AbstractOnlineState, Float[Array, ""]]:
        """The state after one more point, and the prediction `f(x)` before y was seen."""

    def is_mistake(self, prediction: Float[Array, ""], y: Float[Array, ""]) -> Bool[Array, ""]:
        """Whether the sign of the prediction is wrong, or it is zero: `y f(x) <= 0`.

        Where targets are numbers or counts: whether the loss is positive, as most losses are for
        all but exact predictions.
        """
        if self.loss.targets == "signs":
            return y * prediction <= 0
        return self.loss(y, prediction) > 0

    def hint_of_capacity(self) -> str:
        """Advice for the case that more points were needed than the capacity."""
        return "a larger capacity is needed."


@functools.singledispatch
def check_stream(learner: AbstractOnlineLearner, X: PyTree) -> None:
    """Raises ValueError for a stack of points that a learner cannot take; by default for none.

    For a learner of one's own: `check_stream.register(MyLearner)(function)`.

    Examples:
        >>> rule, budget = kernax.online.Perceptron(), kernax.online.NoBudget(capacity=5)
        >>> learner = kernax.online.DualLearner(rule, kernax.RBF(0.3), budget)
        >>> kernax.online.check_stream(learner, jnp.zeros((5, 1)))
    """
