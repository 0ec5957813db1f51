"""What a kernel is: kernels and their algebra, models, spectral densities, state-space models,
columns of points, priors of parameters.
"""

# May import: kernax.core.base.
