"""Formulas: one class a kernel."""

from kernax.kernels.combinators import Custom, ExpOf, Modulated, Normalised, On, PolynomialOf, Warped
from kernax.kernels.dot_product import BilinearForm, Linear, Polynomial, Tanh
from kernax.kernels.stationary import (
    RBF,
    Cosine,
    GammaExponential,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SpectralMixture,
)

__all__ = [
    "RBF", "BilinearForm", "Cosine", "Custom", "ExpOf", "GammaExponential", "Linear", "Matern", "Matern12", "Matern32",
    "Matern52", "Modulated", "Normalised", "On", "Periodic", "Polynomial", "PolynomialOf", "RationalQuadratic",
    "SpectralMixture", "Tanh", "Warped",
]  # fmt: skip
