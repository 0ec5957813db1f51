"""Fits over centres: which points are centres, and FALKON, in memory or chunk by chunk."""

# May import: kernax.core, kernax.scale.data, kernax.scale.cluster.
