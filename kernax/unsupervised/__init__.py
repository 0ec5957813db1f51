"""Learning without targets: components, clusters, comparisons of samples."""

# May import: kernax._advice, kernax.core.
