"""Gaussian processes: exact, over inducing points, and with any likelihood; their draws."""

# May import: kernax.advice, kernax.core.
