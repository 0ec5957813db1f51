"""Smooth losses by Newton's method: logistic regression for two and for several classes."""

# May import: kernax._advice, kernax.core.
