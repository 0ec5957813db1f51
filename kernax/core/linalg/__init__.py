"""Linear algebra with a Gram operator: factorisations, solves and their derivatives, the log
density, matrix-free iterations, eigenproblems, pivots and preconditioners.
"""

# May import: kernax.core.base, kernax.core.kernel, kernax.core.operators.
