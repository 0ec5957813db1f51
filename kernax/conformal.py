"""Conformal prediction: intervals and sets that cover a given share of new targets, whatever the
model, from the leave-one-out predictions of a process, or from held-out points.
"""

from kernax.gp.jackknife import jackknife_plus
from kernax.metrics.split_conformal import conformal_radius, conformal_set

__all__ = ["jackknife_plus", "conformal_radius", "conformal_set"]
