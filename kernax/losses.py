"""Losses `L(y, f)` of a target and a value, for `kernax.regularised_risk`.

A loss of your own is a class derived from `AbstractSmoothLoss`, which has a derivative and a
curvature, or from `AbstractPiecewiseLinearLoss`, whose dual is a box.
"""

from kernax.core.losses.loss_functions import (
    Absolute,
    AbstractLoss,
    AbstractPiecewiseLinearLoss,
    AbstractSmoothLoss,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    Poisson,
    Squared,
    SquaredHinge,
)

__all__ = [
    "Absolute",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Pinball",
    "Poisson",
    "Squared",
    "SquaredHinge",
    "AbstractLoss",
    "AbstractSmoothLoss",
    "AbstractPiecewiseLinearLoss",
]
