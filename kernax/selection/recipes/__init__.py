"""The recipes of the command line and the estimators for a table: which parameters are learned, in
which stages, and which stage is kept.
"""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale, kernax.selection.optimise,
# kernax.selection.choose.
