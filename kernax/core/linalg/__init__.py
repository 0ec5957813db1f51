"""Linear algebra with a Gram operator: factorisations, solves and their derivatives, the log
density, iterations by products, eigenproblems, pivots and preconditioners.
"""

# May import: kernax.core.base, kernax.core.kernel, kernax.core.operators.
