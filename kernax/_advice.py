"""The advice that learners give if their dense matrices do not fit into memory, or a kernel lacks
the features that they need, and the counterparts of names of other libraries.

These are the only texts that name public functions above the package that says them. Users call
learners directly, so nothing above a learner could hand the advice down to it.
"""

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
_OF_OTHER_LIBRARIES = {
    "kernax": {
        "ConstantKernel": "use kernax.Constant",
        "ExpSineSquared": "use kernax.Periodic",
        "GP": "use kernax.GaussianProcess",
        "GaussianProcessClassifier": "use kernax.laplace or that of kernax.sklearn",
        "GaussianProcessRegressor": "use kernax.condition or that of kernax.sklearn",
        "KernelPCA": "use kernax.kernel_pca or kernax.sklearn.KernelPCA",
        "KernelRidge": "use kernax.kernel_ridge or kernax.sklearn.KernelRidge",
        "NuSVC": "use kernax.nu_svm or kernax.sklearn.NuSVC",
        "NuSVR": "use kernax.nu_support_vector_regression or kernax.sklearn.NuSVR",
        "OneClassSVM": "use kernax.one_class_svm or kernax.sklearn.OneClassSVM",
        "SVC": "use kernax.svm or kernax.sklearn.SVC",
        "SVR": "use kernax.support_vector_regression or kernax.sklearn.SVR",
        "SquaredExponential": "use kernax.RBF",
        "White": _NOISE,
        "WhiteKernel": _NOISE,
        "WhiteNoise": _NOISE,
        "minimize": "use kernax.minimise",
        "sklearn": "it is a module of its own: import kernax.sklearn",
    },
    "kernax.kernels": {"White": _NOISE, "WhiteKernel": _NOISE, "WhiteNoise": _NOISE},
    "kernax.metrics": {
        "accuracy_score": "use kernax.metrics.accuracy",
        "auc": "use kernax.metrics.area_under_curve",
        "nlpd": "use kernax.metrics.negative_log_predictive_density",
        "rmse": "use kernax.metrics.root_mean_square_error",
        "roc_auc_score": "use kernax.metrics.area_under_curve",
        "root_mean_squared_error": "use kernax.metrics.root_mean_square_error",
    },
    "kernax.selection": {
        "cross_validate": "use kernax.cross_validate",
        "grid_search": "use kernax.grid_search",
        "k_folds": "use kernax.k_folds",
        "minimise": "use kernax.minimise",
        "multi_start": "use kernax.multi_start",
    },
}


def no_attribute(module: str, name: str) -> AttributeError:
    """The error for a name that a module lacks, with advice for names of other libraries."""
    advice = _OF_OTHER_LIBRARIES.get(module, {}).get(name)
    came = f"module {module!r} has no attribute {name!r}"
    return AttributeError(f"{came}: {advice}" if advice else came)
