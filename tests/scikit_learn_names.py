"""A plugin of pytest that puts kernax's estimators in the place of scikit-learn's own.

Loaded with `-p scikit_learn_names` before scikit-learn's tests are imported, which then import
kernax's classes by scikit-learn's names. A test that `scikit_learn_differences` lists is expected
to fail, and is an error if it passes.
"""

import importlib

import pytest
from scikit_learn_differences import DIFFERENCES

import kernax.sklearn

# Where scikit-learn has each estimator, and the estimator of kernax.
PLACES = {
    "sklearn.kernel_ridge": {"KernelRidge": kernax.sklearn.KernelRidge},
    "sklearn.svm": {
        "SVC": kernax.sklearn.SVC,
        "SVR": kernax.sklearn.SVR,
        "NuSVC": kernax.sklearn.NuSVC,
        "NuSVR": kernax.sklearn.NuSVR,
        "OneClassSVM": kernax.sklearn.OneClassSVM,
    },
    "sklearn.gaussian_process": {
        "GaussianProcessRegressor": kernax.sklearn.GaussianProcessRegressor,
        "GaussianProcessClassifier": kernax.sklearn.GaussianProcessClassifier,
    },
    "sklearn.decomposition": {"KernelPCA": kernax.sklearn.KernelPCA},
    "sklearn.kernel_approximation": {
        "Nystroem": kernax.sklearn.Nystroem,
        "RBFSampler": kernax.sklearn.RandomFourierFeatures,
    },
    "sklearn.cluster": {"SpectralClustering": kernax.sklearn.SpectralClustering},
}


def pytest_configure(config):
    for place, estimators in PLACES.items():
        module = importlib.import_module(place)
        for name, estimator in estimators.items():
            setattr(module, name, estimator)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    items_of = {name_of(item): item for item in items}
    files = {file_of(name) for name in items_of}
    listed = {name: reason for name, reason in DIFFERENCES.items() if file_of(name) in files}
    gone = sorted(set(listed) - set(items_of))
    if gone and not config.getoption("keyword"):
        raise pytest.UsageError(f"listed, but not among the tests: {gone}")
    for name, reason in listed.items():
        if name in items_of:
            items_of[name].add_marker(pytest.mark.xfail(reason=reason, strict=True))


def name_of(item):
    """The file and the test, as in `test_svm.py::test_libsvm_iris`."""
    return f"{item.path.name}::{item.name}"


def file_of(name):
    """The file of a test."""
    return name.partition("::")[0]
