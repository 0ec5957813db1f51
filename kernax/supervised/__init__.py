"""Learners of targets, by the shape of their loss."""

# May import: kernax.core.
