"""Linear functionals as points (values, derivatives, integrals), Stein kernels, and draws of
processes as functions.
"""

# May import: kernax.core.base, kernax.core.kernel, kernax.core.operators.
