"""A search over sums and products of kernels, and the sentences that say what it found."""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale, kernax.selection.optimise,
# kernax.selection.choose.
