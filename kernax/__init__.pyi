"""The public names of kernax, and the module that each comes from."""

from kernax import (
    bases,
    calibration,
    conformal,
    errors,
    fields,
    files,
    functionals,
    likelihoods,
    losses,
    metrics,
    online,
    plot,
    preparation,
    priors,
    samples,
    scale,
    solvers,
    strings,
    testing,
    trees,
    types,
)
from kernax import (
    kernels as kernels,
)
from kernax.core.base.labels import one_hot, signs
from kernax.core.base.parameters import unconstrain
from kernax.core.base.solution import RESULTS, Solution
from kernax.core.checkpoint.checkpoint import Checkpoint
from kernax.core.kernel.description import describe
from kernax.core.kernel.kernel import AbstractKernel, AbstractStationary
from kernax.core.kernel.model import Model
from kernax.core.kernel.spectral_densities import AbstractSpectral
from kernax.core.learner.expansion import KernelExpansion, kernel_distance
from kernax.core.linalg.pivots import inducing_points
from kernax.core.linalg.weighted_solve import solve
from kernax.core.operators.gram import gram, gram_diagonal, gram_operator
from kernax.files import load, save
from kernax.gp.expectation_propagation import expectation_propagation
from kernax.gp.held_out import leave_one_out_predictions
from kernax.gp.laplace import laplace
from kernax.gp.means import ConstantMean, LinearMean
from kernax.gp.paths import pathwise_sample
from kernax.gp.posterior_parts import component, weight_space
from kernax.gp.process import GaussianProcess
from kernax.gp.regression import condition, log_marginal_likelihood
from kernax.gp.sparse_regression import sgpr, sgpr_bound
from kernax.gp.sparse_variational import svgp, svgp_bound
from kernax.gp.variational import variational
from kernax.kernels import *
from kernax.online.perceptron import kernel_perceptron
from kernax.scale.centres.choice import choose_centres
from kernax.scale.centres.falkon import falkon
from kernax.scale.features.nystrom import nystrom
from kernax.scale.features.random_features import random_fourier_features
from kernax.scale.recommend import recommend
from kernax.selection.choose.alignment import aligned_sum, alignment
from kernax.selection.choose.bootstrap import bootstrap
from kernax.selection.choose.comparison import select
from kernax.selection.choose.cross_validation import (
    CrossValidatedLoss,
    cross_validate,
)
from kernax.selection.choose.datasets import stack_datasets
from kernax.selection.choose.folds import k_folds, time_folds
from kernax.selection.choose.heuristics import median_lengthscale
from kernax.selection.choose.regularisation_path import regularisation_path
from kernax.selection.choose.search import grid_search, random_search
from kernax.selection.compose.composition import compositional_search
from kernax.selection.optimise.batches import batched
from kernax.selection.optimise.callbacks import Callback
from kernax.selection.optimise.minimise import minimise
from kernax.selection.optimise.multi_start import multi_start, random_starts, unconstrained_density
from kernax.selection.optimise.validation import Validation
from kernax.sparse.import_vectors import import_vector_machine
from kernax.sparse.relevance import relevance_vector_machine
from kernax.supervised.machines.decision_calibration import svm_leave_one_out
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
from kernax.supervised.ridge.ridge import generalised_cross_validation, kernel_ridge, leave_one_out
from kernax.supervised.ridge.ridge_path import leave_one_out_path, ridge_path
from kernax.supervised.smooth.logistic import kernel_logistic
from kernax.supervised.smooth.softmax import kernel_softmax
from kernax.unsupervised.canonical_correlations import kernel_cca
from kernax.unsupervised.kernel_kmeans import kernel_kmeans
from kernax.unsupervised.mercer import eigenpairs, empirical_features
from kernax.unsupervised.pre_image import pre_image
from kernax.unsupervised.principal_components import kernel_pca
from kernax.unsupervised.spectral_clustering import spectral_clustering

__version__: str

__all__ = [
    # what a kernel is
    "AbstractKernel", "AbstractStationary", "AbstractSpectral",
    # Gram matrices
    "gram", "gram_diagonal", "gram_operator", "solve",
    # features from data, and random ones
    "empirical_features", "eigenpairs", "random_fourier_features",
    # centres that stand for many points
    "choose_centres", "nystrom", "falkon", "recommend",
    # solutions and fitted functions
    "KernelExpansion", "kernel_distance", "Solution", "RESULTS",
    # learners
    "kernel_ridge", "leave_one_out", "generalised_cross_validation", "ridge_path",
    "leave_one_out_path", "kernel_logistic", "kernel_softmax", "svm",
    "support_vector_regression", "nu_svm", "nu_support_vector_regression", "one_class_svm",
    "svm_leave_one_out", "regularised_risk", "lasso",
    "kernel_perceptron", "signs", "one_hot",
    # learners of few vectors
    "relevance_vector_machine", "import_vector_machine",
    # components and clusters
    "kernel_pca", "pre_image", "kernel_cca",
    "kernel_discriminant", "kernel_kmeans",
    "spectral_clustering",
    # Gaussian processes
    "GaussianProcess", "ConstantMean", "LinearMean", "condition", "log_marginal_likelihood",
    "laplace", "expectation_propagation", "variational",
    "leave_one_out_predictions", "component", "weight_space",
    "pathwise_sample", "inducing_points", "sgpr", "sgpr_bound",
    "svgp", "svgp_bound",
    # learning parameters
    "Model", "minimise", "multi_start", "random_starts", "median_lengthscale",
    "unconstrained_density", "unconstrain", "describe", "Validation", "Callback", "Checkpoint",
    # many fits at once
    "batched", "stack_datasets",
    # choosing
    "cross_validate", "CrossValidatedLoss", "k_folds", "time_folds",
    "grid_search", "random_search", "select", "bootstrap",
    "regularisation_path", "alignment", "aligned_sum",
    "compositional_search",
    # files
    "save", "load",
    # rooms
    "bases", "calibration", "conformal", "errors", "fields", "files", "functionals", "likelihoods",
    "losses", "metrics", "online", "plot", "preparation", "priors", "samples", "scale", "solvers",
    "strings", "testing", "trees", "types",
]  # fmt: skip
__all__ += kernels.__all__
