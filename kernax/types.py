"""The classes of the results of functions, for annotations and `isinstance`, and `Invariance`,
which kernels declare.

You need not construct any of them, except an `InducingNormal` as a start for `svgp_bound`.
`Solution` and `KernelExpansion` are names of `kernax` itself.
"""

from kernax.core.kernel.kernel import Invariance
from kernax.gp.approximation import ApproximatePosterior
from kernax.gp.held_out import HeldOut
from kernax.gp.heteroscedastic import HeteroscedasticPosterior
from kernax.gp.inducing_normal import InducingNormal
from kernax.gp.laplace_classes import CategoricalPosterior
from kernax.gp.paths import SamplePaths
from kernax.gp.posterior_parts import WeightSpace
from kernax.online.adagrad import AdagradState
from kernax.online.dual import DualState
from kernax.online.dual_adagrad import DualAdagradState
from kernax.online.multiplicative import MultiplicativeState
from kernax.online.primal import PrimalState
from kernax.online.recursive import RecursiveState
from kernax.preparation.predictors import ClassPredictor, CountRegressor, Regressor
from kernax.scale.recommendation import Recommendation, Route
from kernax.selection.choose.bootstrap import Bootstrap
from kernax.selection.choose.comparison import Selection
from kernax.selection.choose.cross_validation import CrossValidation
from kernax.selection.choose.datasets import Datasets
from kernax.selection.choose.folds import Folds
from kernax.selection.choose.results_table import Table
from kernax.selection.compose.composition import Composition
from kernax.sparse.import_vectors import ImportVectors
from kernax.sparse.relevance_vectors import RelevanceVectors
from kernax.supervised.error_bound import ErrorBound
from kernax.supervised.ridge.discriminant import Discriminant
from kernax.unsupervised.canonical_correlations import CanonicalPairs
from kernax.unsupervised.kernel_kmeans import KernelClusters
from kernax.unsupervised.principal_components import PrincipalComponents
from kernax.unsupervised.spectral_clustering import SpectralClusters

__all__ = [
    "AdagradState",
    "ApproximatePosterior",
    "Bootstrap",
    "CanonicalPairs",
    "CategoricalPosterior",
    "ClassPredictor",
    "Composition",
    "CountRegressor",
    "CrossValidation",
    "Datasets",
    "Discriminant",
    "DualAdagradState",
    "DualState",
    "ErrorBound",
    "Folds",
    "HeldOut",
    "HeteroscedasticPosterior",
    "ImportVectors",
    "InducingNormal",
    "Invariance",
    "KernelClusters",
    "MultiplicativeState",
    "PrimalState",
    "PrincipalComponents",
    "Recommendation",
    "RecursiveState",
    "Regressor",
    "RelevanceVectors",
    "Route",
    "SamplePaths",
    "Selection",
    "SpectralClusters",
    "Table",
    "WeightSpace",
]
