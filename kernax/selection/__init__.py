"""Choosing among models and learning their parameters, beyond what `kernax` itself has
(`kernax.minimise`, `kernax.multi_start`, `kernax.cross_validate`, `kernax.k_folds`,
`kernax.grid_search`).

Criteria: leave-one-out errors and generalised cross-validation along a path of ridges, the
alignment of a kernel with targets, a `CrossValidatedLoss` that gradients minimise, comparisons of
models, the bootstrap. Searches: over random values, and over sums and products of kernels. For
`kernax.minimise`: where it starts from, and what watches it. For Bayesian optimisation: where to
evaluate an expensive function next.
"""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale.

from kernax import _lazy

# A name is imported when it is first used; `__init__.pyi` has the names.
__getattr__, __dir__ = _lazy(__name__, __file__)
