"""Points along a line under a state-space kernel: the operator, the Kalman filter as its factor,
and what is asked of the inverse, each in O(n).
"""

# May import: kernax.core.base, kernax.core.kernel, kernax.core.operators, kernax.core.linalg.
