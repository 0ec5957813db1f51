"""Squared losses: ridge regression, its path, discriminants."""

# May import: kernax.core, kernax.supervised.advice.
