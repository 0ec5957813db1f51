"""Explicit features phi, functions of a point: `kernax.FeatureMap` makes the kernel `phi(x) .
phi(z)`. `empirical_features` and `eigenpairs` find the features of any kernel from data, and
`weight_space` gives the posterior of the weights of features.

A basis of your own is a class derived from `AbstractBasis`; a network or a `kernax.Custom` function
will do as well.
"""

from kernax.gp.posterior_parts import weight_space
from kernax.kernels.basis_expansions import (
    AbstractBasis,
    GaussianBasis,
    IndicatorBins,
    PolynomialBasis,
    SigmoidBasis,
)
from kernax.unsupervised.mercer import eigenpairs, empirical_features

__all__ = [
    "PolynomialBasis",
    "GaussianBasis",
    "SigmoidBasis",
    "IndicatorBins",
    "AbstractBasis",
    "empirical_features",
    "eigenpairs",
    "weight_space",
]
