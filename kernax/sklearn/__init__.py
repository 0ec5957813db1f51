"""scikit-learn estimators of kernax, with scikit-learn's names, arguments and attributes.

Change `from sklearn.svm import SVC` into `from kernax.sklearn import SVC` and keep the rest of a
pipeline. This module needs scikit-learn, and `import kernax` does not import it.

Differences: a row of weight two counts as two rows everywhere, except in gamma="scale", which
ignores weights, as in scikit-learn; bounds of scikit-learn's kernels apply if the evidence is
maximised, and otherwise a learned parameter beyond them raises a warning; rows on the boundary of a
`OneClassSVM` are inside; several classes of a process share one kernel. The page "Coming from
another library" of the documentation has the whole list.
"""

# May import: kernax.core, kernax.kernels, kernax.supervised, kernax.gp, kernax.sparse,
# kernax.unsupervised, kernax.online, kernax.scale, kernax.selection, kernax.metrics,
# kernax.preparation.

from kernax.sklearn.clusters import KernelKMeans, SpectralClustering
from kernax.sklearn.kernel_approximation import Nystroem, RandomFourierFeatures
from kernax.sklearn.kernel_pca import KernelPCA
from kernax.sklearn.kernel_ridge import KernelRidge
from kernax.sklearn.logistic_classifiers import ImportVectorClassifier, KernelLogisticClassifier
from kernax.sklearn.machines import SVR, NuSVR, OneClassSVM
from kernax.sklearn.perceptron_classifier import KernelPerceptron
from kernax.sklearn.process_classes import GaussianProcessClassifier
from kernax.sklearn.processes import GaussianProcessRegressor
from kernax.sklearn.relevance_machines import RelevanceVectorClassifier, RelevanceVectorRegressor
from kernax.sklearn.svc import SVC, NuSVC

__all__ = [
    "KernelRidge",
    "SVR",
    "NuSVR",
    "GaussianProcessRegressor",
    "RelevanceVectorRegressor",
    "SVC",
    "NuSVC",
    "KernelLogisticClassifier",
    "GaussianProcessClassifier",
    "RelevanceVectorClassifier",
    "ImportVectorClassifier",
    "KernelPerceptron",
    "OneClassSVM",
    "KernelPCA",
    "Nystroem",
    "RandomFourierFeatures",
    "KernelKMeans",
    "SpectralClustering",
]


def __dir__() -> list[str]:
    return __all__
