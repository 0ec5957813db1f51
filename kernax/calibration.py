"""Probabilities from decision values, such as those of `kernax.svm_leave_one_out`: Platt's sigmoid
and isotonic regression, and what they return.
"""

from kernax.supervised.calibration import Isotonic, Platt, isotonic, platt

__all__ = ["platt", "isotonic", "Platt", "Isotonic"]
