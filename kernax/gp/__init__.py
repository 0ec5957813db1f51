"""Gaussian processes: exact, over inducing points, and with any likelihood; their draws."""

# May import: kernax._advice, kernax.core.
