"""Squared losses: ridge regression, its path, discriminants."""

# May import: kernax.advice, kernax.core.
