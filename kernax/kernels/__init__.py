"""Formulas: one class a kernel."""

from kernax.kernels.combinators import (
    Centred,
    Custom,
    ExpOf,
    GaussianOf,
    Modulated,
    Normalised,
    On,
    PolynomialOf,
    Warped,
)
from kernax.kernels.dot_product import BilinearForm, Linear, Polynomial, Tanh
from kernax.kernels.features import GaussianBasis, IndicatorBins, PolynomialBasis, SigmoidBasis
from kernax.kernels.integers import Herglotz, Precomputed
from kernax.kernels.nonstationary import ArcCosine, Brownian, BrownianBridge, ChangePoint, Gibbs, IntegratedBrownian
from kernax.kernels.sets import AllSubsets, Intersection, Jaccard, Monomials, Tanimoto
from kernax.kernels.spectrum import AllSubstrings, BlendedSpectrum, Mismatch, Spectrum
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
from kernax.kernels.subsequences import AllSubsequences, Subsequence
from kernax.kernels.subset_trees import SubsetTree

__all__ = [
    "RBF", "BilinearForm", "Cosine", "Custom", "ExpOf", "GammaExponential", "Linear", "Matern", "Matern12", "Matern32",
    "Matern52", "Modulated", "Normalised", "On", "Periodic", "Polynomial", "PolynomialOf", "RationalQuadratic",
    "SpectralMixture", "Tanh", "Warped",
    "AllSubsequences", "AllSubstrings", "BlendedSpectrum", "Mismatch", "Spectrum", "Subsequence",
    "AllSubsets", "Intersection", "Jaccard", "Monomials", "SubsetTree", "Tanimoto",
    "ArcCosine", "Brownian", "BrownianBridge", "Centred", "ChangePoint", "GaussianBasis", "GaussianOf", "Gibbs", "Herglotz",
    "IndicatorBins", "IntegratedBrownian", "PolynomialBasis", "Precomputed", "SigmoidBasis",
]  # fmt: skip
