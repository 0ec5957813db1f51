"""Probabilities from decision values, such as those of `svm_leave_one_out`: Platt's sigmoid,
isotonic regression, and pairwise coupling for several classes.
"""

from kernax.supervised.machines.coupling import pairwise_coupling
from kernax.supervised.machines.decision_calibration import (
    Isotonic,
    Platt,
    isotonic,
    platt,
    svm_leave_one_out,
)

__all__ = [
    "platt",
    "isotonic",
    "pairwise_coupling",
    "svm_leave_one_out",
    "Platt",
    "Isotonic",
]
