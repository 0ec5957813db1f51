"""Unsupervised learning: components, clusters, subsamples and comparisons of samples."""

# May import: kernax._advice, kernax.core.
