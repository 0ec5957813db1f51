"""Fits over centres: the choice of centres, and FALKON, in memory or chunk by chunk."""

# May import: kernax.core, kernax.scale.data, kernax.scale.cluster.
