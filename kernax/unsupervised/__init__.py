"""Learning without targets: components, clusters, comparisons of samples."""

# May import: kernax.advice, kernax.core.
