"""Gaussian processes: exact regression, inducing points, other likelihoods, and sample paths."""

# May import: kernax._advice, kernax.core.
