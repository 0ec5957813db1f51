"""Calls of the functions that store matrices of all points, one for each `Footprint`: of points,
labels -1 and +1, which are numbers as well, and weights. `test_memory.py` measures what they
allocate, and `test_refusals.py` how they are refused.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import kernax

RBF = kernax.RBF()
PRIOR = kernax.GaussianProcess(RBF)
KEY = jax.random.key(0)
APPROXIMATIONS = (kernax.laplace, kernax.expectation_propagation, kernax.variational)


def log_density(x):
    return -jnp.sum(x**2) / 2


def approximated(function):
    likelihood = kernax.likelihoods.Bernoulli()
    return lambda X, y, w: function(PRIOR, X, y, likelihood, weights=w, throw=False)


def growing_noise(X, y, w):
    likelihood = kernax.likelihoods.HeteroscedasticGaussian(PRIOR)
    return kernax.variational(PRIOR, X, y, likelihood, weights=w, throw=False)


def aligned_sum(number):
    kernels = [kernax.RBF(1.0 + i) for i in range(number)]
    return lambda X, y, w: kernax.selection.aligned_sum(kernels, X, y, weights=w)


def svgp(optimiser):
    given = {"optimiser": optimiser, "n_steps": 3, "batch_size": 64, "key": KEY, "throw": False}
    return lambda X, y, Z: kernax.svgp(PRIOR, X, y, kernax.likelihoods.Bernoulli(), Z, **given)


def svgp_bound(X, y, Z):
    q = kernax.types.InducingNormal.prior(len(Z))
    return kernax.svgp_bound(PRIOR, X[:64], y[:64], kernax.likelihoods.Bernoulli(), Z, q)


CALLS = {
    "gram": lambda X, y, w: kernax.gram(RBF, X),
    "alignment": lambda X, y, w: kernax.selection.alignment(RBF, X, y, weights=w),
    "kernel_perceptron": lambda X, y, w: kernax.kernel_perceptron(RBF, X, y, throw=False),
    "svm": lambda X, y, w: kernax.svm(RBF, X, y, 1.0, weights=w, throw=False),
    "support_vector_regression": lambda X, y, w: kernax.support_vector_regression(
        RBF, X, y, 1.0, 0.1, weights=w, throw=False
    ),
    "nu_svm": lambda X, y, w: kernax.nu_svm(RBF, X, y, 0.3, weights=w, throw=False),
    "nu_support_vector_regression": lambda X, y, w: kernax.nu_support_vector_regression(
        RBF, X, y, 1.0, 0.3, weights=w, throw=False
    ),
    "one_class_svm": lambda X, y, w: kernax.one_class_svm(RBF, X, 0.1, weights=w, throw=False),
    "regularised_risk of a piecewise linear loss": lambda X, y, w: kernax.regularised_risk(
        RBF, X, y, 0.1, loss=kernax.losses.Absolute(), weights=w, throw=False
    ),
    "kernel_ridge": lambda X, y, w: kernax.kernel_ridge(RBF, X, y, 0.1, weights=w, throw=False),
    "kernel_logistic": lambda X, y, w: kernax.kernel_logistic(
        RBF, X, y, 0.1, weights=w, throw=False
    ),
    "import_vector_machine": lambda X, y, w: kernax.import_vector_machine(
        RBF, X, y, 0.1, weights=w, max_vectors=8, throw=False
    ),
    "regularised_risk": lambda X, y, w: kernax.regularised_risk(
        RBF, X, y, 0.1, loss=kernax.losses.Huber(), weights=w, throw=False
    ),
    "variational of HeteroscedasticGaussian": growing_noise,
    "log_marginal_likelihood": lambda X, y, w: kernax.log_marginal_likelihood(
        RBF, X, y, 0.1, weights=w
    ),
    "leave_one_out": lambda X, y, w: kernax.leave_one_out(RBF, X, y, 0.1, weights=w, bias=True),
    "leave_one_out_predictions": lambda X, y, w: kernax.leave_one_out_predictions(
        PRIOR, X, y, 0.1, weights=w
    ),
    "jackknife_plus": lambda X, y, w: kernax.conformal.jackknife_plus(PRIOR, X, y, 0.1, X[:4]),
    "svm_leave_one_out": lambda X, y, w: kernax.calibration.svm_leave_one_out(
        RBF, X, y, 1.0, weights=w, throw=False
    ),
    "ridge_path": lambda X, y, w: kernax.selection.ridge_path(
        RBF, X, y, np.ones(4), weights=w, bias=True, throw=False
    ),
    "recursive_feature_machine": lambda X, y, w: kernax.recursive_feature_machine(
        RBF, X, y, 0.1, weights=w, bias=True, throw=False
    ),
    "leave_one_out_path": lambda X, y, w: kernax.selection.leave_one_out_path(
        RBF, X, y, np.ones(4), weights=w, bias=True
    ),
    "generalised_cross_validation": lambda X, y, w: kernax.selection.generalised_cross_validation(
        RBF, X, y, 0.1, weights=w, bias=True
    ),
    "herding": lambda X, y, w: kernax.samples.herding(RBF, X, 50, weights=w, throw=False),
    "stein_thin": lambda X, y, w: kernax.samples.stein_thin(RBF, X, log_density, 50, throw=False),
    "thin": lambda X, y, w: kernax.samples.thin(RBF, X, 3, key=KEY, throw=False),
    "eigenpairs": lambda X, y, w: kernax.bases.eigenpairs(RBF, X, 5),
    "empirical_features": lambda X, y, w: kernax.bases.empirical_features(RBF, X),
    "isotonic": lambda X, y, w: kernax.calibration.isotonic(y, jnp.sign(y), weights=w),
    "sample": lambda X, y, w: PRIOR.sample(X, key=KEY, throw=False),
    "condition": lambda X, y, w: kernax.condition(PRIOR, X, y, 0.1, weights=w, throw=False),
    "relevance_vector_machine": lambda X, y, w: kernax.relevance_vector_machine(
        RBF, X, y, weights=w, throw=False
    ),
    "kernel_pca": lambda X, y, w: kernax.kernel_pca(RBF, X, 3, weights=w, throw=False),
    "kernel_cca": lambda X, y, w: kernax.kernel_cca(
        RBF, RBF, X, X[::-1], 3, 0.1, weights=w, throw=False
    ),
    "kernel_discriminant": lambda X, y, w: kernax.kernel_discriminant(
        RBF, X, y, 0.1, weights=w, throw=False
    ),
    "kernel_kmeans": lambda X, y, w: kernax.kernel_kmeans(
        RBF, X, 3, key=KEY, weights=w, throw=False
    ),
    "spectral_clustering": lambda X, y, w: kernax.spectral_clustering(
        RBF, X, 3, key=KEY, weights=w, throw=False
    ),
} | {function.__name__: approximated(function) for function in APPROXIMATIONS}
# The same of points, labels and centres or inducing points: these store matrices of both,
INDUCING = {
    "sgpr": lambda X, y, Z: kernax.sgpr(PRIOR, X, y, 0.1, Z, throw=False),
    "sgpr_bound": lambda X, y, Z: kernax.sgpr_bound(RBF, X, y, 0.1, Z),
    "inducing_points": lambda X, y, Z: kernax.inducing_points(RBF, X, len(Z)),
}
# and these matrices of the latter alone.
CENTRES = {
    "nystrom": lambda X, y, Z: kernax.nystrom(RBF, X, Z),
    "falkon": lambda X, y, Z: kernax.falkon(RBF, X, y, 0.1, Z, throw=False),
}
AMONG_INDUCING = {
    "svgp": svgp(None),
    "svgp with an optimiser": svgp(optax.adam(0.01)),
    "svgp_bound": svgp_bound,
}
