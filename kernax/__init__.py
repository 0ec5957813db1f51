"""kernax: differentiable kernel methods in JAX. Nouns are equinox modules, verbs are functions."""

from kernax import errors
from kernax.core.conjugate_gradient import ConjugateGradient
from kernax.core.description import describe
from kernax.core.expansion import KernelExpansion, kernel_distance
from kernax.core.features import FeatureMap
from kernax.core.gram import gram, gram_diagonal, gram_operator
from kernax.core.kernel import AbstractKernel, AbstractStationary, Constant, Power, Product, Scaled, Sum
from kernax.core.labels import one_hot, signs
from kernax.core.linalg import solve
from kernax.core.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    Poisson,
    Squared,
    SquaredHinge,
)
from kernax.core.parameters import data, integer, interval, nonnegative, positive, real, unconstrain
from kernax.core.solution import RESULTS, Solution
from kernax.core.solvers import JitteredCholesky
from kernax.core.spectral import AbstractSpectral
from kernax.files import load, save
from kernax.gp.process import ConstantMean, GaussianProcess, LinearMean
from kernax.gp.regression import condition, log_marginal_likelihood
from kernax.kernels import (
    RBF,
    AllSubsequences,
    AllSubsets,
    AllSubstrings,
    ArcCosine,
    BilinearForm,
    BlendedSpectrum,
    Brownian,
    BrownianBridge,
    Centred,
    ChangePoint,
    Cosine,
    Custom,
    ExpOf,
    GammaExponential,
    GaussianBasis,
    GaussianOf,
    Gibbs,
    Herglotz,
    IndicatorBins,
    IntegratedBrownian,
    Intersection,
    Jaccard,
    Linear,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Mismatch,
    Modulated,
    Monomials,
    Normalised,
    On,
    Periodic,
    Polynomial,
    PolynomialBasis,
    PolynomialOf,
    Precomputed,
    RationalQuadratic,
    SigmoidBasis,
    SpectralMixture,
    Spectrum,
    Subsequence,
    SubsetTree,
    Tanh,
    Tanimoto,
    Warped,
    strings,
    trees,
)
from kernax.online.perceptron import kernel_perceptron
from kernax.scale.random_features import random_fourier_features
from kernax.selection.heuristics import median_lengthscale
from kernax.selection.minimise import minimise
from kernax.selection.multi_start import multi_start, random_starts, unconstrained_density
from kernax.supervised.calibration import isotonic, platt, svm_leave_one_out
from kernax.supervised.lasso import lasso
from kernax.supervised.logistic import kernel_logistic
from kernax.supervised.projected_gradient import ProjectedGradient
from kernax.supervised.ridge import kernel_ridge, leave_one_out
from kernax.supervised.risk import regularised_risk
from kernax.supervised.smo import SMO
from kernax.supervised.softmax import kernel_softmax
from kernax.supervised.svm import one_class_svm, support_vector_regression, svm
from kernax.unsupervised.embedding import (
    PermutationTest,
    hsic,
    independence_test,
    maximum_mean_discrepancy,
    mean_embedding,
    two_sample_test,
)
from kernax.unsupervised.mercer import eigenpairs, empirical_features

__version__ = "0.1.0"

__all__ = [
    # kernels
    "AbstractKernel", "AbstractStationary", "AbstractSpectral", "RBF", "Matern12", "Matern32", "Matern52", "Matern",
    "RationalQuadratic", "GammaExponential", "Periodic", "Cosine", "SpectralMixture", "Linear", "Polynomial",
    "BilinearForm", "Constant", "Tanh",
    # kernels of strings
    "Spectrum", "BlendedSpectrum", "AllSubstrings", "Mismatch", "Subsequence", "AllSubsequences", "strings",
    # kernels of sets and trees
    "AllSubsets", "Monomials", "Intersection", "Jaccard", "Tanimoto", "SubsetTree", "trees",
    # kernels of places, of integers, of layers of a network
    "Brownian", "BrownianBridge", "IntegratedBrownian", "Gibbs", "ChangePoint", "ArcCosine", "Precomputed", "Herglotz",
    # their algebra
    "Sum", "Product", "Scaled", "Power", "Warped", "Modulated", "ExpOf", "PolynomialOf", "Normalised", "On", "FeatureMap",
    "Custom", "GaussianOf", "Centred",
    # features for FeatureMap, given and from data
    "PolynomialBasis", "GaussianBasis", "SigmoidBasis", "IndicatorBins", "empirical_features", "eigenpairs",
    # parameters
    "positive", "nonnegative", "interval", "real", "integer", "data", "unconstrain", "describe",
    # matrices, solvers and what they return
    "gram", "gram_diagonal", "gram_operator", "solve", "JitteredCholesky", "ConjugateGradient", "RESULTS", "Solution",
    "errors",
    # Gaussian processes
    "GaussianProcess", "condition", "log_marginal_likelihood", "ConstantMean", "LinearMean",
    # learners
    "KernelExpansion", "kernel_distance", "kernel_ridge", "leave_one_out", "kernel_logistic", "kernel_softmax", "svm",
    "support_vector_regression", "one_class_svm", "SMO", "ProjectedGradient", "signs", "one_hot",
    "svm_leave_one_out", "platt", "isotonic", "kernel_perceptron", "lasso",
    # losses, for any of which there is a learner
    "regularised_risk", "Squared", "Absolute", "Huber", "Pinball", "Logistic", "Hinge", "SquaredHinge", "EpsilonInsensitive",
    "Poisson",
    # learning
    "minimise", "multi_start", "random_starts",
    "median_lengthscale", "unconstrained_density",
    # kernels by random features
    "random_fourier_features",
    # samples in the space of a kernel
    "mean_embedding", "maximum_mean_discrepancy", "two_sample_test", "hsic", "independence_test", "PermutationTest",
    # files
    "save", "load",
]  # fmt: skip
