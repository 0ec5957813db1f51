"""Losses and likelihoods, integrals of likelihoods, and Newton's method for the minimum of a smooth
risk.
"""

# May import: kernax.core.base, kernax.core.kernel, kernax.core.operators, kernax.core.linalg.
