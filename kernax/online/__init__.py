"""Learners of a stream of points, which they see one after another, and the loop that shows it."""

from kernax.online.learner import AbstractOnlineLearner, AbstractOnlineState
from kernax.online.linear import LinearFunction
from kernax.online.stream import Progress, run

__all__ = [
    "run",
    "Progress",
    "AbstractOnlineLearner",
    "AbstractOnlineState",
    "LinearFunction",
]
