"""A search over sums and products of kernels, and sentences that describe its result."""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale, kernax.selection.optimise,
# kernax.selection.choose.
