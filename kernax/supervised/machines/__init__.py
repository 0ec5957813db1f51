"""Losses with a dual in a box: support vector machines, their solvers, certificates and
derivatives, and probabilities of their decision values.
"""

# May import: kernax._advice, kernax.core.
