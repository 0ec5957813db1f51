"""Learning parameters, choosing among models, composing kernels."""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale.
