"""Learning without targets: components, clusters, comparisons of samples."""
