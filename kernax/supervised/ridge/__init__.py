"""Squared losses: kernel ridge regression, its regularisation path, discriminants."""

# May import: kernax._advice, kernax.core.
