"""Probabilities from decision values, such as those of `kernax.svm_leave_one_out`: Platt's sigmoid
and isotonic regression, and what they return. For several classes, probabilities of pairs are
coupled.
"""

from kernax.supervised.machines.coupling import pairwise_coupling
from kernax.supervised.machines.decision_calibration import Isotonic, Platt, isotonic, platt

__all__ = ["platt", "isotonic", "pairwise_coupling", "Platt", "Isotonic"]
