"""The names of kernax.kernels, and the module that each comes from: for type checkers, and for the
imports on first use. Tests compare them with the table of kernels.
"""

from kernax.core.functionals.linear_functionals import OfFunctionals
from kernax.core.functionals.stein import SteinKernel
from kernax.core.kernel.kernel import Constant as Constant
from kernax.core.kernel.kernel import Custom as Custom
from kernax.core.kernel.kernel import Power, Product, Scaled, Sum
from kernax.core.kernel.mahalanobis import Mahalanobis
from kernax.core.kernel.on import On as On
from kernax.core.kernel.spectral_densities import AbstractSpectral
from kernax.core.operators.feature_map import FeatureMap as FeatureMap
from kernax.kernels.basis_expansions import GaussianBasis as GaussianBasis
from kernax.kernels.basis_expansions import PolynomialBasis as PolynomialBasis
from kernax.kernels.basis_expansions import SigmoidBasis as SigmoidBasis
from kernax.kernels.combinators import Centred, ExpOf, GaussianOf, Modulated, PolynomialOf
from kernax.kernels.combinators import Normalised as Normalised
from kernax.kernels.combinators import Warped as Warped
from kernax.kernels.dot_product import BilinearForm, ShiftedLinear, Tanh
from kernax.kernels.dot_product import Linear as Linear
from kernax.kernels.dot_product import Polynomial as Polynomial
from kernax.kernels.families import FAMILIES as FAMILIES
from kernax.kernels.families import KERNELS as KERNELS
from kernax.kernels.global_alignment import GlobalAlignment
from kernax.kernels.integers import Coregionalisation, Exchangeable, Herglotz
from kernax.kernels.integers import Precomputed as Precomputed
from kernax.kernels.nonstationary import (
    ArcCosine,
    Brownian,
    BrownianBridge,
    Gibbs,
    IntegratedBrownian,
    LinearSpline,
)
from kernax.kernels.nonstationary import ChangePoint as ChangePoint
from kernax.kernels.sets import AllSubsets, Intersection, Jaccard, Monomials, Tanimoto
from kernax.kernels.spectrum import AllSubstrings, BlendedSpectrum, Mismatch
from kernax.kernels.spectrum import Spectrum as Spectrum
from kernax.kernels.stationary import RBF as RBF
from kernax.kernels.stationary import (
    Cosine,
    DampedOscillator,
    GammaExponential,
    LpLaplace,
    ZeroMeanPeriodic,
)
from kernax.kernels.stationary import Matern as Matern
from kernax.kernels.stationary import Matern12 as Matern12
from kernax.kernels.stationary import Matern32 as Matern32
from kernax.kernels.stationary import Matern52 as Matern52
from kernax.kernels.stationary import Periodic as Periodic
from kernax.kernels.stationary import RationalQuadratic as RationalQuadratic
from kernax.kernels.stationary import SpectralMixture as SpectralMixture
from kernax.kernels.subsequences import AllSubsequences
from kernax.kernels.subsequences import Subsequence as Subsequence
from kernax.kernels.subset_trees import SubsetTree as SubsetTree
from kernax.kernels.tangent_kernels import FisherKernel, TangentKernel

# What `kernax` itself does not have, as text for type checkers: a test compares it with the table.
__all__ = [
    "AbstractSpectral",
    "GammaExponential", "LpLaplace", "ZeroMeanPeriodic", "Cosine", "DampedOscillator",
    "ShiftedLinear", "BilinearForm",
    "ArcCosine", "Tanh", "Brownian", "BrownianBridge", "IntegratedBrownian", "LinearSpline",
    "Gibbs", "Herglotz", "Coregionalisation", "Exchangeable", "AllSubsets", "Monomials",
    "Intersection", "Jaccard", "Tanimoto", "BlendedSpectrum", "AllSubstrings", "Mismatch",
    "AllSubsequences", "GlobalAlignment", "Sum", "Product",
    "Scaled", "Power", "Mahalanobis", "Centred", "ExpOf", "PolynomialOf", "GaussianOf", "Modulated",
    "OfFunctionals", "SteinKernel", "TangentKernel", "FisherKernel",
]  # fmt: skip
