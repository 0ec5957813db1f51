"""Explicit features phi, functions of a point: `kernax.FeatureMap` makes the kernel `phi(x) .
phi(z)`.

A basis of your own is a class derived from `AbstractBasis`; a network or a `kernax.Custom` function
will do as well.
"""

from kernax.kernels.basis_expansions import (
    AbstractBasis,
    GaussianBasis,
    IndicatorBins,
    PolynomialBasis,
    SigmoidBasis,
)

__all__ = ["PolynomialBasis", "GaussianBasis", "SigmoidBasis", "IndicatorBins", "AbstractBasis"]
