"""Sparse models: relevance vector machines and import vector machines."""

# May import: kernax._advice, kernax.core.
