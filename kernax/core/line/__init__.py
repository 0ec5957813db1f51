"""Points along a line with a state-space kernel: the operator, the Kalman filter as its factor, and
the inverse, each in O(n).
"""

# May import: kernax.core.base, kernax.core.kernel, kernax.core.operators, kernax.core.linalg.
