"""Kernels and their algebra, models, spectral densities, state-space models, columns of points, and
priors of parameters.
"""

# May import: kernax.core.base.
