"""The public names of kernax.sklearn, and the module that each comes from."""

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
