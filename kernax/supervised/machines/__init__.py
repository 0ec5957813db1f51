"""Support vector machines and other losses with a box-constrained dual: their solvers,
certificates, derivatives, and probabilities from decision values.
"""

# May import: kernax._advice, kernax.core.
