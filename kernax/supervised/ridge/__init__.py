"""Squared losses: ridge regression, its path, discriminants."""

# May import: kernax._advice, kernax.core.
