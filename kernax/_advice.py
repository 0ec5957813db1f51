"""The advice that learners give if their dense matrices do not fit into memory, or a kernel lacks
the features that they need, and the counterparts of names of other libraries.

These are the only texts that name public functions above the package that says them. Users call
learners directly, so nothing above a learner could hand the advice down to it.
"""

import difflib
import sys

IN_FEATURES = "kernax.nystrom(kernel, X, m, key=key) as the kernel, for a fit in m features"
WITH_FEATURES = "FeatureMap(kernax.bases.empirical_features(kernel, Z))"
OF_STATIONARY = "random_fourier_features(kernel, ...), which approximates stationary kernels"
COMPARED = "; kernax.recommend(kernel, n, d) compares these"
CONFORMANCE = "kernax.testing.check_conformance(kernel, X) tests a kernel of your own."
OF_NUMBERS = "is this a regression? kernax.kernel_ridge and kernax.condition learn numbers"
WITH_BATCHES = (
    "k(x, z) compares two points; kernax.gram(k, X, Z) compares all points of batches X (n, d) and "
    "Z (m, d)"
)
OVER_A_MESH = "kernax.scale.rows_over(mesh, X, y, weights)"
IN_BLOCKS = "block_size=... (a number of rows) for a fit that holds blocks"


def over_centres(more: str = "") -> str:
    """A fit over centres, by some more arguments."""
    return f"kernax.falkon(kernel, X, y, ridge, m, key=key{more}) for a fit over m centres"


_NOISE = "noise is an argument of the learner, as in kernax.condition(kernel, X, y, noise)"
_KERNELS = {
    "ConstantKernel": "use kernax.Constant",
    "DotProduct": "use kernax.Linear, and kernax.Linear() + kernax.Constant(c) with an offset",
    "ExpSineSquared": "use kernax.Periodic",
    "ExpSquared": "use kernax.RBF",
    "SquaredExponential": "use kernax.RBF",
    "White": _NOISE,
    "WhiteKernel": _NOISE,
    "WhiteNoise": _NOISE,
}
_CROSS_VALIDATION = "use kernax.cross_validate"
_OF_OTHER_LIBRARIES = {
    "kernax": _KERNELS
    | {
        "Dataset": "functions take arrays, as in kernax.condition(kernel, X, y, noise)",
        "GP": "use kernax.GaussianProcess",
        "GaussianProcessClassifier": "use kernax.laplace or that of kernax.sklearn",
        "GaussianProcessRegressor": "use kernax.condition or that of kernax.sklearn",
        "KernelPCA": "use kernax.kernel_pca or kernax.sklearn.KernelPCA",
        "KernelRidge": "use kernax.kernel_ridge or kernax.sklearn.KernelRidge",
        "NuSVC": "use kernax.nu_svm or kernax.sklearn.NuSVC",
        "NuSVR": "use kernax.nu_support_vector_regression or kernax.sklearn.NuSVR",
        "OneClassSVM": "use kernax.one_class_svm or kernax.sklearn.OneClassSVM",
        "Posterior": "use kernax.condition(kernel, X, y, noise).value",
        "Prior": "use kernax.GaussianProcess",
        "SVC": "use kernax.svm or kernax.sklearn.SVC",
        "SVR": "use kernax.support_vector_regression or kernax.sklearn.SVR",
        "StudentT": "use kernax.likelihoods.StudentT",
        "cross_val_score": _CROSS_VALIDATION,
        "minimize": "use kernax.minimise",
        "optimise": "use kernax.minimise",
        "optimize": "use kernax.minimise",
        "sklearn": "it is a module of its own: import kernax.sklearn",
    },
    "kernax.kernels": _KERNELS,
    "kernax.metrics": {
        "accuracy_score": "use kernax.metrics.accuracy",
        "auc": "use kernax.metrics.area_under_curve",
        "mean_squared_error": "use the square of kernax.metrics.root_mean_square_error",
        "nlpd": "use kernax.metrics.negative_log_predictive_density",
        "rmse": "use kernax.metrics.root_mean_square_error",
        "roc_auc_score": "use kernax.metrics.area_under_curve",
        "root_mean_squared_error": "use kernax.metrics.root_mean_square_error",
    },
    "kernax.selection": {
        "cross_val_score": _CROSS_VALIDATION,
        "cross_validate": _CROSS_VALIDATION,
        "expected_improvement": "use kernax.selection.log_expected_improvement",
        "grid_search": "use kernax.grid_search",
        "k_folds": "use kernax.k_folds",
        "minimise": "use kernax.minimise",
        "multi_start": "use kernax.multi_start",
    },
    "kernax.solvers": {"Cholesky": "use kernax.solvers.JitteredCholesky"},
}


def no_attribute(module: str, name: str) -> AttributeError:
    """The error for a name that a module lacks, with advice for names of other libraries, and for
    names that are nearly those of the module.
    """
    came = f"module {module!r} has no attribute {name!r}"
    advice = _OF_OTHER_LIBRARIES.get(module, {}).get(name)
    if advice is None and not name.startswith("_"):
        near = {one.lower(): one for one in dir(sys.modules[module])}
        similar = difflib.get_close_matches(name.lower(), near, n=1, cutoff=0.75)
        advice = f"did you mean {near[similar[0]]}?" if similar else None
    # With the name in the error, Python adds no suggestion of its own.
    return (
        AttributeError(came) if advice is None else AttributeError(f"{came}: {advice}", name=name)
    )
