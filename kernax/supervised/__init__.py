"""Supervised learners, grouped by the shape of their loss."""

# May import: kernax.core.
