"""Machines that keep few of the points."""

# May import: kernax._advice, kernax.core.
