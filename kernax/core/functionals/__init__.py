"""Linear functionals of functions as points: values, derivatives, integrals; Stein's kernel; draws
of processes as functions.
"""

# May import: kernax.core.base, kernax.core.kernel, kernax.core.operators.
