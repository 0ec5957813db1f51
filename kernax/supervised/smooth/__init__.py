"""Smooth losses by Newton's method: logistic regression of two and of several classes."""

# May import: kernax._advice, kernax.core.
