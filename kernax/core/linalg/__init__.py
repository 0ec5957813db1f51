"""Linear algebra with a Gram operator: factorisations, solves and their derivatives, the log
density, iterations by products, eigenproblems, pivots and preconditioners.
"""

# May import: kernax.core.base, kernax.core.kernel, kernax.core.operators.

from kernax.core.linalg import low_rank as low_rank  # registers the factor of K in few features
