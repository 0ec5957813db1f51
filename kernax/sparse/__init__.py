"""Machines that keep few of the points."""

# May import: kernax.advice, kernax.core.
