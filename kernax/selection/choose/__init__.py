"""Choosing among models: folds, cross-validation, comparisons, grids, the bootstrap, paths of
regularisation, alignment.
"""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale, kernax.selection.optimise.
