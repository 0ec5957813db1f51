"""The public names of kernax, and the module that each comes from."""

from collections.abc import Callable
from typing import Any

from kernax import (
    bases,
    calibration,
    conformal,
    errors,
    fields,
    files,
    functionals,
    kernels,
    likelihoods,
    losses,
    metrics,
    nn,
    online,
    plot,
    preparation,
    priors,
    samples,
    scale,
    selection,
    solvers,
    strings,
    testing,
    trees,
    types,
)
from kernax.core.base.labels import one_hot, signs
from kernax.core.base.parameters import unconstrain
from kernax.core.base.solution import RESULTS, Solution
from kernax.core.checkpoint.checkpoint import Checkpoint
from kernax.core.kernel.description import describe
from kernax.core.kernel.kernel import AbstractKernel, AbstractStationary
from kernax.core.kernel.model import Model
from kernax.core.learner.expansion import KernelExpansion, kernel_distance
from kernax.core.learner.padding import pad
from kernax.core.linalg.pivots import inducing_points
from kernax.core.operators.gram import gram, gram_diagonal, gram_operator
from kernax.files.container import load, save
from kernax.gp.expectation_propagation import expectation_propagation
from kernax.gp.held_out import leave_one_out_predictions
from kernax.gp.laplace import laplace
from kernax.gp.means import ConstantMean, LinearMean
from kernax.gp.paths import pathwise_sample
from kernax.gp.posterior_parts import component
from kernax.gp.process import GaussianProcess
from kernax.gp.regression import condition, log_marginal_likelihood
from kernax.gp.sparse_regression import sgpr, sgpr_bound
from kernax.gp.sparse_variational import svgp, svgp_bound
from kernax.gp.variational import variational
from kernax.kernels import (
    RBF,
    ChangePoint,
    Constant,
    Custom,
    FeatureMap,
    Linear,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Normalised,
    On,
    Periodic,
    Polynomial,
    Precomputed,
    RationalQuadratic,
    SpectralMixture,
    Spectrum,
    Subsequence,
    SubsetTree,
    Warped,
)
from kernax.online.perceptron import kernel_perceptron
from kernax.scale.centres.choice import choose_centres
from kernax.scale.centres.falkon import falkon
from kernax.scale.features.nystrom import nystrom
from kernax.scale.features.random_features import random_fourier_features
from kernax.scale.recommendation import recommend
from kernax.selection.choose.cross_validation import cross_validate
from kernax.selection.choose.folds import k_folds
from kernax.selection.choose.search import grid_search
from kernax.selection.optimise.batches import batched
from kernax.selection.optimise.minimise import minimise
from kernax.selection.optimise.multi_start import multi_start
from kernax.sparse.import_vectors import import_vector_machine
from kernax.sparse.relevance import relevance_vector_machine
from kernax.supervised.machines.lasso import lasso
from kernax.supervised.machines.regularised_risk import regularised_risk
from kernax.supervised.machines.svm import (
    nu_support_vector_regression,
    nu_svm,
    one_class_svm,
    support_vector_regression,
    svm,
)
from kernax.supervised.ridge.discriminant import kernel_discriminant
from kernax.supervised.ridge.feature_machine import (
    average_gradient_outer_product,
    recursive_feature_machine,
)
from kernax.supervised.ridge.ridge import kernel_ridge, leave_one_out
from kernax.supervised.smooth.logistic import kernel_logistic
from kernax.supervised.smooth.softmax import kernel_softmax
from kernax.unsupervised.canonical_correlations import kernel_cca
from kernax.unsupervised.kernel_kmeans import kernel_kmeans
from kernax.unsupervised.pre_image import pre_image
from kernax.unsupervised.principal_components import kernel_pca
from kernax.unsupervised.spectral_clustering import spectral_clustering

__version__: str

def _lazy(
    package: str, init: str, otherwise: Callable[[str], Any] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]: ...

__all__ = [
    # kernel base classes
    "AbstractKernel", "AbstractStationary",
    # kernels: the rest of them is in kernax.kernels
    "RBF", "Matern12", "Matern32", "Matern52", "Matern", "RationalQuadratic", "Periodic",
    "SpectralMixture", "Linear", "Polynomial", "Constant", "ChangePoint", "Precomputed",
    "Spectrum", "Subsequence", "SubsetTree", "On", "Normalised", "Warped", "FeatureMap", "Custom",
    # Gram matrices
    "gram", "gram_diagonal", "gram_operator", "kernel_distance",
    # many points: random features and centres
    "random_fourier_features", "choose_centres", "nystrom", "falkon", "recommend",
    # solutions and fitted functions
    "KernelExpansion", "Solution", "RESULTS",
    # learners
    "kernel_ridge", "leave_one_out", "kernel_logistic", "kernel_softmax", "svm",
    "support_vector_regression", "nu_svm", "nu_support_vector_regression", "one_class_svm",
    "regularised_risk", "lasso", "kernel_perceptron", "recursive_feature_machine",
    "average_gradient_outer_product", "signs", "one_hot",
    # sparse learners
    "relevance_vector_machine", "import_vector_machine",
    # components and clusters
    "kernel_pca", "pre_image", "kernel_cca", "kernel_discriminant", "kernel_kmeans",
    "spectral_clustering",
    # Gaussian processes
    "GaussianProcess", "ConstantMean", "LinearMean", "condition", "log_marginal_likelihood",
    "laplace", "expectation_propagation", "variational", "leave_one_out_predictions", "component",
    "pathwise_sample", "inducing_points", "sgpr", "sgpr_bound", "svgp", "svgp_bound",
    # learning parameters
    "Model", "minimise", "multi_start", "batched", "pad", "unconstrain", "describe",
    "Checkpoint",
    # model selection: the rest is in kernax.selection
    "cross_validate", "k_folds", "grid_search",
    # files
    "save", "load",
    # modules
    "bases", "calibration", "conformal", "errors", "fields", "files", "functionals", "kernels",
    "likelihoods", "losses", "metrics", "nn", "online", "plot", "preparation", "priors", "samples",
    "scale", "selection", "solvers", "strings", "testing", "trees", "types",
]  # fmt: skip
