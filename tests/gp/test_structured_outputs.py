"""Several outputs, the terms of a sum, the weights of features, and kernels of gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64, check_derivatives, marked, needs_x64, untyped

import kernax
from kernax.core.operators.pairs import _sizes

EXACT = {"rtol": 1e-9, "atol": 1e-9} if X64 else {"rtol": 2e-3, "atol": 2e-3}
draw = np.random.default_rng(0)
X = draw.uniform(-2, 2, (8, 2)).astype(DTYPE)
Z = draw.uniform(-2, 2, (5, 2)).astype(DTYPE)
Y = draw.normal(size=(8, 2)).astype(DTYPE)
y = Y[:, 0]
WEIGHTS = np.array([1.0, 2, 0, 1, 0.5, 1, 1, 1], DTYPE)


def values(f, X=Z):
    return np.asarray(jax.vmap(f)(X), float)


# Several outputs: a function of a point and a task.


def tasks(factor, diagonal):
    by_task = kernax.kernels.Coregionalisation(
        jnp.asarray(factor, DTYPE), jnp.asarray(diagonal, DTYPE)
    )
    return kernax.On(kernax.RBF(0.7), 0) * kernax.On(by_task, 1)


def both_tasks(X):
    """Every point with task 0, and then with task 1."""
    return np.tile(X, (2, 1)), np.repeat(np.arange(2), len(X))


@pytest.mark.slow
def test_identity_tasks_are_independent_processes():
    """The bar: two outputs that share a kernel, which `condition` takes as columns."""
    independent = kernax.condition(kernax.GaussianProcess(kernax.RBF(0.7)), X, Y, 0.1).value
    process = kernax.GaussianProcess(tasks(np.zeros((2, 1)), np.ones(2)))
    together = kernax.condition(process, both_tasks(X), Y.T.ravel(), 0.1).value
    expected = values(independent.mean).T.ravel()
    np.testing.assert_allclose(values(together.mean, both_tasks(Z)), expected, **EXACT)
    spread = values(independent.variance)
    np.testing.assert_allclose(
        values(together.variance, both_tasks(Z)), np.tile(spread, 2), **EXACT
    )


@needs_x64
@pytest.mark.slow
def test_a_coregionalised_gram_matrix_is_a_kronecker_product_and_is_learned():
    factor, diagonal = np.array([[1.0, 0.2], [-0.5, 0.3]]), np.array([0.1, 0.4])
    B = factor @ factor.T + np.diag(diagonal)
    K = kernax.gram(tasks(factor, diagonal), both_tasks(X))
    np.testing.assert_allclose(K, np.kron(B, kernax.gram(kernax.RBF(0.7), X)), **EXACT)

    def evidence(factor, diagonal):
        kernel = tasks(factor, diagonal)
        return kernax.log_marginal_likelihood(kernel, both_tasks(X), Y.T.ravel(), 0.1)

    check_derivatives(evidence, (jnp.asarray(factor), jnp.asarray(diagonal)), rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("strange", marked(pytest.mark.nightly, [2, -1], "2"))
def test_functions_of_a_task_that_does_not_exist_raise_or_are_unknown_under_vmap(strange):
    """Never the number of another task, and never the label of a class or a cluster."""
    kernel = tasks(np.full((2, 1), 0.5), np.ones(2))
    stack = both_tasks(X)
    signs = np.sign(Y.T.ravel())
    process = kernax.condition(kernax.GaussianProcess(kernel), stack, Y.T.ravel(), 0.1).value
    ridge = kernax.kernel_ridge(kernel, stack, Y.T.ravel(), 0.1).value
    numbers = (process.mean, process.variance, ridge)
    discriminant = kernax.kernel_discriminant(kernel, stack, signs, 0.1).value
    clusters = kernax.kernel_kmeans(kernel, stack, 2, key=jax.random.key(0)).value
    spectral = kernax.spectral_clustering(kernel, stack, 2, key=jax.random.key(0)).value
    labels = (discriminant.classify, clusters.assign, spectral.assign)
    points = (jnp.asarray(X[:2]), jnp.asarray([strange, 0]))
    for function in (*numbers, *labels):
        with pytest.raises(ValueError, match=f"one of 0, ..., 1.*one is {strange}"):
            function((X[0], jnp.asarray(strange)))
    for function in numbers:
        found = jax.vmap(function)(points)
        assert np.isnan(found[0])
        assert np.isfinite(found[1])
    for function in labels:
        assert list(jax.vmap(function)(points) >= 0) == [False, True]
    np.testing.assert_array_equal(np.isnan(jax.vmap(clusters.membership)(points)[0]), True)
    for function in (process.mean, ridge):
        with pytest.raises(ValueError, match=f"one is {strange}"):
            function.values(points)


@needs_x64
def test_tasks_out_of_range_are_refused_by_name():
    kernel = tasks(np.zeros((2, 1)), np.ones(2))
    for strange in (2, -1):
        with pytest.raises(ValueError, match=f"one of 0, ..., 1.*one is {strange}"):
            kernax.gram(kernel + kernel, (X[:2], np.array([0, strange])))
    with pytest.raises(ValueError, match="one is 7"):
        kernel((X[0], jnp.asarray(7)), (X[0], jnp.asarray(0)))
    with pytest.raises(ValueError, match="compares integers"):
        kernax.gram(kernel, (X[:2], np.array([0.0, 1.0])))
    with pytest.raises(ValueError, match=r"factor .T, r. and diagonal .T,."):
        untyped(kernax.kernels.Coregionalisation)(np.zeros((2, 1)), np.ones(3))
    known = kernax.condition(kernax.GaussianProcess(kernel), (X, np.zeros(8, int)), y, 0.1).value
    for place in (jnp.asarray(5), 5, np.int64(-1)):
        for question in (known.mean, known.variance, kernax.GaussianProcess(kernel).variance):
            with pytest.raises(ValueError, match=r"a task must be one of 0, ..., 1"):
                question((X[0], place))
    at_task = jax.vmap(lambda task: known.mean((X[0], task)))
    assert np.isnan(at_task(jnp.asarray([0, 5]))).tolist() == [False, True]


# The terms of a sum.

TERMS = (kernax.RBF(0.7), kernax.Linear(), kernax.Matern52(jnp.array([0.5, 2.0], DTYPE)))
SUM = TERMS[0] + 2.0 * TERMS[1] + TERMS[2]


def given_once():
    prior = kernax.GaussianProcess(SUM, 0.5)
    return kernax.condition(prior, X, y, 0.1, weights=WEIGHTS).value


def given_twice():
    first = kernax.condition(kernax.GaussianProcess(SUM, 0.5), X[:4], y[:4], 0.1).value
    return kernax.condition(first, X[4:], y[4:], 0.1, weights=WEIGHTS[4:]).value


def given_signs():
    prior = kernax.GaussianProcess(SUM, kernax.LinearMean(jnp.ones(2, DTYPE)))
    return kernax.laplace(prior, X, np.sign(y), kernax.likelihoods.Probit()).value.process


@pytest.mark.nightly
@pytest.mark.parametrize(
    "given",
    marked(
        pytest.mark.nightly,
        [
            given_once,
            pytest.param(given_twice, marks=pytest.mark.slow),
            pytest.param(given_signs, marks=pytest.mark.slow),
        ],
        "given_once",
        "given_twice",
    ),
)
def test_the_terms_of_a_sum_add_up_to_the_whole(given):
    """The bar: means, and the covariance of all terms together."""
    process = given()
    parts = [kernax.component(process, i) for i in range(3)]
    mean = (lambda x: x[0] + x[1]) if given is given_signs else lambda x: 0.5
    total = sum(values(part.mean) for part in parts) + np.array([mean(x) for x in Z])
    np.testing.assert_allclose(total, values(process.mean), **EXACT)
    whole = kernax.component(process, range(3)).covariance
    K = kernax.gram(whole, Z)
    np.testing.assert_allclose(K, kernax.gram(process.covariance, Z), **EXACT)


@pytest.mark.slow
@needs_x64
def test_a_term_is_that_of_the_normal_distribution_of_all_values():
    """Independent: the covariance of (f_1(Z), y), conditioned by NumPy; one point twice, and one
    not.
    """
    rows = np.repeat(np.arange(8), [1, 2, 0, 1, 1, 1, 1, 1])
    noise = np.where(rows == 4, 0.2, 0.1)  # half a weight is twice the noise
    C = np.asarray(kernax.gram(SUM, X[rows])) + np.diag(noise)
    cross = 2 * Z @ X[rows].T
    term = kernax.component(given_once(), 1)
    np.testing.assert_allclose(
        values(term.mean), cross @ np.linalg.solve(C, y[rows] - 0.5), **EXACT
    )
    expected = 2 * Z @ Z.T - cross @ np.linalg.solve(C, cross.T)
    np.testing.assert_allclose(kernax.gram(term.covariance, Z), expected, **EXACT)
    np.testing.assert_allclose(values(term.variance), np.diag(expected), **EXACT)
    assert isinstance(term.mean, kernax.KernelExpansion)
    assert term.sample(Z[:2], key=jax.random.key(0)).shape == (2,)


@needs_x64
@pytest.mark.nightly
def test_a_term_is_differentiable_and_goes_through_a_file(tmp_path):
    def deviation(lengthscale, y):
        prior = kernax.GaussianProcess(kernax.RBF(lengthscale) + kernax.Linear())
        process = kernax.condition(prior, X, y, 0.1, throw=False).value
        term = kernax.component(process, -1)
        return jnp.sum(jax.vmap(term.mean)(Z) - jax.vmap(term.variance)(Z))

    check_derivatives(deviation, (jnp.asarray(0.7), jnp.asarray(y)), rtol=1e-6, atol=1e-8)
    for given in (given_once, given_twice):
        term = kernax.component(given(), (0, 2))
        kernax.save(tmp_path / "term.kernax", term)
        again = kernax.load(tmp_path / "term.kernax")
        np.testing.assert_array_equal(values(again.mean), values(term.mean))
        np.testing.assert_array_equal(values(again.variance), values(term.variance))


@needs_x64
def test_what_has_no_terms_is_refused():
    prior = kernax.GaussianProcess(SUM)
    process = given_once()
    single = kernax.condition(kernax.GaussianProcess(kernax.RBF()), X, y, 0.1).value
    other = kernax.GaussianProcess(process.covariance, jnp.sum)
    for call, message in [
        (lambda: kernax.component(prior, 0), "is a prior"),
        (lambda: kernax.component(single, 0), "the prior is a RBF"),
        (lambda: kernax.component(other, 0), "the mean that condition gave"),
        (lambda: kernax.component(kernax.component(process, (0, 1)), 0), "ComponentKernel apart"),
        (lambda: kernax.component(process, 3), "from 0 to 2"),
        (lambda: untyped(kernax.component)(process, "trend"), "from 0 to 2"),
        (lambda: untyped(kernax.component)(process, np.arange(2)), "or several indices"),
        (lambda: kernax.component(process, ()), "or several indices"),
        (lambda: untyped(kernax.component)(SUM, 0), "must be a GaussianProcess"),
        (lambda: kernax.bases.weight_space(prior), "is a prior"),
        (lambda: kernax.bases.weight_space(single), "RBF has none"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


# Weight space.

ALPHA, BETA = 2.0, 10.0
BASIS = kernax.FeatureMap(kernax.bases.PolynomialBasis(2)) / ALPHA


def bayesian_regression(weights=1.0):
    """Bishop 2006, eqs. 3.53 and 3.54, in NumPy, with the features at Z."""
    phi = lambda X: np.concatenate(
        [np.ones((len(X), 1)), X[:, :1], X[:, :1] ** 2, X[:, 1:], X[:, 1:] ** 2], 1
    )
    F = phi(X)
    S = np.linalg.inv(ALPHA * np.eye(5) + BETA * F.T @ np.diag(weights * np.ones(8)) @ F)
    return S, BETA * S @ F.T @ (weights * y), phi(Z)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("weights", marked(pytest.mark.nightly, [None, WEIGHTS], "None"))
def test_weight_space_is_bayesian_linear_regression_and_equals_function_space(weights):
    """G1: the weights by Bishop's formulas, predictions by both, and by the dense process."""
    S, mean, phi = bayesian_regression(1.0 if weights is None else weights)
    solution = kernax.condition(kernax.GaussianProcess(BASIS), X, y, 1 / BETA, weights=weights)
    assert solution.stats["features"] == 5
    process = solution.value
    space = kernax.bases.weight_space(process)
    np.testing.assert_allclose(space.mean / np.sqrt(ALPHA), mean, **EXACT)
    np.testing.assert_allclose(space.covariance / ALPHA, S, **EXACT)
    np.testing.assert_allclose(values(space.features) * np.sqrt(ALPHA), phi, **EXACT)
    of_targets = 1 / BETA + np.einsum("ij,jk,ik->i", phi, S, phi)
    np.testing.assert_allclose(values(process.variance) + 1 / BETA, of_targets, **EXACT)
    np.testing.assert_allclose(values(process.mean), phi @ mean, **EXACT)
    dense = kernax.GaussianProcess(kernax.Custom(_same_kernel))
    for given in (X, X[:3]):  # with fewer points than features the process is a dense one
        function = kernax.condition(dense, given, y[: len(given)], 1 / BETA).value
        explicit = kernax.condition(kernax.GaussianProcess(BASIS), given, y[: len(given)], 1 / BETA)
        by_weights = kernax.bases.weight_space(explicit.value)
        phi = values(by_weights.features)
        np.testing.assert_allclose(phi @ by_weights.mean, values(function.mean), **EXACT)
        spread = np.einsum("ij,jk,ik->i", phi, by_weights.covariance, phi)
        np.testing.assert_allclose(spread, values(function.variance), **EXACT)


def _same_kernel(_, x, z):
    return BASIS(x, z)


@needs_x64
@pytest.mark.nightly
def test_weights_given_twice_are_weights_given_everything():
    S, mean, _ = bayesian_regression()
    first = kernax.condition(kernax.GaussianProcess(BASIS), X[:6], y[:6], 1 / BETA).value
    second = kernax.condition(first, X[6:], y[6:], 1 / BETA).value
    space = kernax.bases.weight_space(second)
    np.testing.assert_allclose(space.mean / np.sqrt(ALPHA), mean, **EXACT)
    np.testing.assert_allclose(space.covariance / ALPHA, S, **EXACT)


@pytest.mark.slow
def test_weight_space_never_holds_a_number_for_each_pair_of_points():
    """O(n D): no intermediate result of 4000 points and 5 features, its gradient included, is
    larger than some columns.
    """
    n = 4000
    many = jnp.asarray(np.random.default_rng(1).normal(size=(n, 2)), DTYPE)

    def figure(X, y):
        solution = kernax.condition(kernax.GaussianProcess(BASIS), X, y, 0.1, throw=False)
        space = kernax.bases.weight_space(solution.value)
        return jnp.sum(space.mean) + jnp.sum(space.covariance) + solution.stats["log_evidence"]

    trace = jax.make_jaxpr(jax.grad(figure, (0, 1)))(many, many[:, 0])
    assert max(_sizes(trace.jaxpr)) <= 6 * n  # 5.01 n: the features


# Kernels of models.

NETWORK = eqx.nn.MLP(2, 2, 3, 1, activation=jnp.tanh, key=jax.random.key(0))


@pytest.mark.nightly
@needs_x64
def test_the_tangent_kernel_is_the_product_of_jacobians():
    arrays, rest = eqx.partition(NETWORK, eqx.is_inexact_array)
    J = jax.vmap(lambda x: jax.jacfwd(lambda a: eqx.combine(a, rest)(x))(arrays))(X)
    J = np.concatenate([np.reshape(leaf, (8, 2, -1)) for leaf in jax.tree.leaves(J)], 2)
    kernel = kernax.kernels.TangentKernel(NETWORK)
    K = np.einsum("iop,jop->ij", J, J)
    np.testing.assert_allclose(kernax.gram(kernel, X), K, **EXACT)
    features = values(kernel.explicit_features(), X)
    np.testing.assert_allclose(features @ features.T, K, **EXACT)
    assert "kernel.network.layers[0].weight" in str(kernax.describe(kernax.Model(kernel)))


@pytest.mark.nightly
@needs_x64
def test_the_fisher_kernel_of_a_normal_density_is_that_of_its_moments_in_any_parameters():
    """Of N(m, e^2s) with Fisher's information: `u v + (u^2 - 1)(v^2 - 1) / 2`, u and v
    standardised.
    """

    def log_normal(parameters, x):
        return jax.scipy.stats.norm.logpdf(x[0], parameters[0], jnp.exp(parameters[1]))

    def of_precision(parameters, x):
        return jax.scipy.stats.norm.logpdf(x[0], parameters[0] - 1, parameters[1] ** -0.5)

    density = kernax.Custom(log_normal, jnp.array([0.3, np.log(0.7)]))
    u = (X[:, 0] - 0.3) / 0.7
    expected = np.outer(u, u) + np.outer(u**2 - 1, u**2 - 1) / 2
    information = np.diag([1 / 0.49, 2.0])
    K = kernax.gram(kernax.kernels.FisherKernel(density, information), X)
    np.testing.assert_allclose(K, expected, **EXACT)
    plain = np.outer(u, u) / 0.49 + np.outer(u**2 - 1, u**2 - 1)
    np.testing.assert_allclose(kernax.gram(kernax.kernels.FisherKernel(density), X), plain, **EXACT)
    other = kernax.Custom(of_precision, jnp.array([1.3, 1 / 0.49]))
    one, two = (
        kernax.gram(kernax.kernels.FisherKernel.of_sample(model, X), X)
        for model in (density, other)
    )
    np.testing.assert_allclose(one, two, rtol=1e-7)
    assert np.isclose(np.trace(one), 8 * 2)  # J is the mean of U U^T: n points, p parameters


@needs_x64
def test_models_without_gradients_are_refused():
    density = kernax.Custom(lambda p, x: p @ x, jnp.ones(2))
    several = kernax.Custom(lambda p, x: p * x, jnp.ones(2))
    for call, message in [
        (lambda: kernax.kernels.TangentKernel(jnp.tanh), "network has no parameters"),
        (lambda: kernax.kernels.FisherKernel(jnp.sum), "log_density has no parameters"),
        (lambda: kernax.kernels.FisherKernel(density, np.eye(3)), r"shape \(2, 2\)"),
        (lambda: kernax.kernels.FisherKernel(density, np.diag([1.0, 0.0])), "positive definite"),
        (
            lambda: kernax.kernels.FisherKernel(density, [[1.0, 0.5], [0.0, 2.0]]),
            "differ by up to 0.5",
        ),
        (lambda: kernax.kernels.FisherKernel(density, np.diag([1.0, np.nan])), "must be finite"),
        (lambda: kernax.kernels.FisherKernel.of_sample(density, X[:1]), "more points than"),
        (lambda: kernax.gram(kernax.kernels.FisherKernel(several), X), "a scalar"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
