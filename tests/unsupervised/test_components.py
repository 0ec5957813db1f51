"""Kernel principal components, canonical correlations and discriminants against dense references,
with their derivatives where eigenvalues coincide and where a weight is zero.
"""

import contextlib

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg
from conftest import (
    DTYPE,
    TOLERANCE,
    assert_close,
    check_derivatives,
    needs_x64,
    real_data,
    untyped,
)
from sklearn.cross_decomposition import CCA
from sklearn.decomposition import PCA, KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import kernax
from kernax.errors import ConditionWarning, NonFiniteError, NotPSDError

EPS = float(np.finfo(DTYPE).eps)
rng = np.random.default_rng(0)
N = 12
X = rng.normal(size=(N, 2)).astype(DTYPE)
Z = np.concatenate([X[:, :1] ** 2, rng.normal(size=(N, 1))], 1).astype(DTYPE)
W = rng.uniform(0.3, 2.0, N).astype(DTYPE)
CLASSES = np.eye(3, dtype=DTYPE)[np.arange(N) % 3]
PROBES = rng.normal(size=(N, 2)).astype(DTYPE)
SCALE = jnp.asarray(1.5, DTYPE)
RIDGE = jnp.asarray(0.3, DTYPE)


def gram(kernel, X):
    return np.asarray(kernax.gram(kernel, X), np.float64)


def features(kernel, X, weights=None):
    """Rows whose products are K, centred at the weighted mean."""
    values, vectors = np.linalg.eigh(gram(kernel, X))
    kept = values > 1e-12 * values[-1]
    F = vectors[:, kept] * np.sqrt(values[kept])
    return F if weights is None else F - np.average(F, axis=0, weights=weights)


def up_to_sign(A, B, tolerance=TOLERANCE["solve"]):
    assert_close(np.abs(A), np.abs(B), tolerance)


# Principal components.


def pca(scale, X, weights, components=2, **options):
    kernel = kernax.RBF(scale)
    return kernax.kernel_pca(kernel, X, components, weights=weights, throw=False, **options).value


@pytest.mark.slow
def test_components_are_those_of_scikit_learn():
    points = np.random.default_rng(1).normal(size=(500, 3)).astype(DTYPE)
    found = kernax.kernel_pca(kernax.RBF(2.0), points, 6).value
    peer = KernelPCA(6, kernel="rbf", gamma=1 / 8, eigen_solver="dense").fit(points)
    assert_close(500 * found.variances, peer.eigenvalues_, TOLERANCE["solve"])
    up_to_sign(found.function.values(points), peer.transform(points))
    up_to_sign(found.function.values(points[:9] + 1), peer.transform(points[:9] + 1))


@needs_x64
def test_components_of_a_linear_kernel_are_linear_ones_and_whitening_divides_by_deviations():
    for whiten in (False, True):
        found = kernax.kernel_pca(kernax.Linear(), X, 2, whiten=whiten).value
        peer = PCA(2, whiten=whiten).fit(X)
        scale = np.sqrt((N - 1) / N) if whiten else 1.0  # variances over n - 1 there
        up_to_sign(np.asarray(found.function.values(X)) * scale, peer.transform(X))
        assert_close(found.explained, peer.explained_variance_ratio_)


def test_functions_have_norm_one_are_orthogonal_and_of_mean_zero():
    f = kernax.kernel_pca(kernax.RBF(), X, 3, weights=W).value.function
    A = np.asarray(f.coefficients, np.float64)
    assert_close(A.T @ gram(kernax.RBF(), X) @ A, np.eye(3), TOLERANCE["solve"])
    mean = np.average(np.asarray(f.values(X)), axis=0, weights=W)
    np.testing.assert_allclose(mean, 0, atol=TOLERANCE["solve"])


def test_components_do_not_depend_on_a_common_factor_of_the_weights():
    """From 2^900 on (2^100 in float32) the squares of the norms were inf."""
    points = np.random.default_rng(0).normal(size=(12, 2)).astype(DTYPE)
    weights = np.arange(1, 13).astype(DTYPE)

    @jax.jit
    def components(weights):
        value = kernax.kernel_pca(kernax.RBF(), points, 2, weights=weights, whiten=True).value
        return value.function.coefficients, value.variances, value.total_variance

    highest = int(np.finfo(DTYPE).maxexp) - 5
    for exponent in (highest, -highest):
        for found, expected in zip(components(np.ldexp(weights, exponent)), components(weights)):
            assert_close(found, expected, 10 * EPS)


def test_constant_points_have_no_components():
    """U01."""
    found = kernax.kernel_pca(kernax.RBF(), np.ones((5, 2), DTYPE), 2)
    assert found.result == kernax.RESULTS.successful
    assert found.stats["rank"] == 0
    np.testing.assert_array_equal(found.value.variances, 0)
    np.testing.assert_array_equal(found.value.function.values(X), 0)
    np.testing.assert_array_equal(found.value.explained, 0)


def test_components_beyond_the_rank_are_zero_and_signs_are_fixed():
    """U03."""
    twice = np.concatenate([np.eye(2), np.eye(2)]).astype(DTYPE)
    found = kernax.kernel_pca(kernax.RBF(), twice, 3)
    assert_close(4 * found.value.variances, [1.2642411176571153, 0, 0], TOLERANCE["solve"])
    assert found.stats["rank"] == 1
    A = np.asarray(found.value.function.coefficients)
    assert A[0, 0] > 0
    np.testing.assert_array_equal(A[:, 1:], 0)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("options", [{"truncated": True}, {"block_size": 16}])
def test_leading_components_by_products_are_those_of_all(options):
    points = np.random.default_rng(2).normal(size=(60, 2))
    exact = kernax.kernel_pca(kernax.RBF(), points, 3)
    found = kernax.kernel_pca(kernax.RBF(), points, 3, **options)
    assert found.stats["steps"] > 0
    assert exact.stats["steps"] == 0
    np.testing.assert_allclose(found.value.variances, exact.value.variances, rtol=1e-9)
    np.testing.assert_allclose(
        found.value.function.values(points), exact.value.function.values(points), atol=1e-6
    )


@needs_x64
def test_a_truncated_computation_that_is_cut_short_says_so():
    points = np.random.default_rng(2).normal(size=(300, 2))
    found = kernax.kernel_pca(
        kernax.Matern12(0.05), points, 3, truncated=True, max_steps=1, throw=False
    )
    assert found.result == kernax.RESULTS.max_steps_reached
    assert found.stats["residual"] > 1e-8


@needs_x64
def test_derivatives_of_whitened_components_with_a_point_of_weight_zero():
    weights = jnp.asarray(W).at[4].set(0.0)

    def figures(scale, X, heavy):
        found = pca(scale, X, weights * heavy, whiten=True)
        values = jax.vmap(found.function)(X)
        return jnp.sum(PROBES * values), found.variances, found.total_variance

    check_derivatives(figures, (SCALE, jnp.asarray(X), jnp.ones(N)), rtol=1e-6, atol=1e-7)


@pytest.mark.slow
@needs_x64
def test_derivatives_by_products_are_those_by_all_vectors():
    points = jnp.asarray(np.random.default_rng(3).normal(size=(22, 2)))

    def total(scale, points, **options):
        found = kernax.kernel_pca(kernax.RBF(scale), points, 2, throw=False, **options).value
        return jnp.sum(jax.vmap(found.function)(points) ** 3) + jnp.sum(found.variances)

    exact, truncated = (
        jax.jit(jax.grad(lambda s, p, o=options: total(s, p, **o), (0, 1)))(SCALE, points)
        for options in ({}, {"truncated": True})
    )
    assert_close(truncated[0], exact[0], 1e-6)
    assert_close(truncated[1], exact[1], 1e-6)


@needs_x64
@pytest.mark.parametrize("whiten", [False, True])
def test_what_depends_on_the_space_of_equal_components_has_its_derivative(whiten):
    """Corners of a square: two components of equal variance, which a change of the points splits.

    Whitened, both directions are rescaled as well.
    """
    corners = jnp.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    direction = jnp.asarray(np.random.default_rng(5).normal(size=(4, 2)))

    def invariants(t):
        found = kernax.kernel_pca(
            kernax.RBF(1.5), corners + t * direction, 2, whiten=whiten, throw=False
        ).value
        P = jax.vmap(found.function)(corners + t * direction)
        return P @ P.T, jnp.sum(found.variances)

    slope = jax.jit(jax.jacfwd(invariants))(0.0)
    compiled = jax.jit(invariants)
    h = 1e-5
    for exact, ahead, behind in zip(slope, compiled(h), compiled(-h)):
        np.testing.assert_allclose(exact, (ahead - behind) / (2 * h), atol=1e-8)


@needs_x64
def test_second_derivatives_of_components_are_refused():
    total = lambda scale: jnp.sum(pca(scale, X, None).variances)
    with pytest.raises(ValueError, match="eigenvectors have no second derivatives"):
        jax.hessian(total)(SCALE)


@needs_x64
def test_components_refuse_what_makes_no_sense():
    with pytest.raises(ValueError, match="n_components must be at most 12, the number of points"):
        kernax.kernel_pca(kernax.RBF(), X, 13)
    with pytest.raises(ValueError, match="components must be a positive integer"):
        untyped(kernax.kernel_pca)(kernax.RBF(), X, 0)
    with pytest.raises(ValueError, match="truncated=True needs 3 \\(components \\+ 4\\) < n"):
        kernax.kernel_pca(kernax.RBF(), X, 3, truncated=True)
    indefinite = kernax.Precomputed(np.array([[1.0, 2.0, 0], [2.0, 1.0, 0], [0, 0, 1]]))
    with pytest.raises(NotPSDError, match="smallest eigenvalue"):
        kernax.kernel_pca(indefinite, np.arange(3), 1)
    failed = kernax.kernel_pca(indefinite, np.arange(3), 1, throw=False)
    assert np.isnan(failed.value.variances).all()
    assert np.isnan(failed.value.function.coefficients).all()


# Canonical correlations.


def cca(scale, X, Z, ridge, weights, components=2):
    kernels = (kernax.RBF(scale), kernax.RBF(2 * scale))
    return kernax.kernel_cca(
        kernels[0], kernels[1], X, Z, components, ridge, weights=weights, throw=False
    ).value


def test_correlations_are_those_of_the_generalised_eigenproblem_in_features():
    found = cca(SCALE, X, Z, RIDGE, W)
    F = features(kernax.RBF(SCALE), X, W)
    G = features(kernax.RBF(2 * SCALE), Z, W)
    ridge = float(RIDGE)
    within = [A.T @ (W[:, None] * A) + ridge * np.eye(A.shape[1]) for A in (F, G)]
    across = F.T @ (W[:, None] * G)
    A = np.block([[np.zeros_like(within[0]), across], [across.T, np.zeros_like(within[1])]])
    values, vectors = scipy.linalg.eigh(A, scipy.linalg.block_diag(*within))
    leading = vectors[:, ::-1][:, :2] * np.sqrt(2)
    assert_close(found.correlations, values[::-1][:2], TOLERANCE["solve"])
    f = np.asarray(found.first.values(X), np.float64)
    g = np.asarray(found.second.values(Z), np.float64)
    up_to_sign(f, F @ leading[: F.shape[1]], 10 * TOLERANCE["solve"])
    up_to_sign(g, G @ leading[F.shape[1] :], 10 * TOLERANCE["solve"])
    assert_close(f.T @ (W[:, None] * g), np.diag(found.correlations), 10 * TOLERANCE["solve"])


@pytest.mark.slow
@needs_x64
def test_correlations_of_linear_kernels_with_a_small_ridge_are_the_classical_ones():
    points = np.random.default_rng(4).normal(size=(200, 4))
    partner = points @ np.random.default_rng(5).normal(size=(4, 3))
    partner += 0.5 * np.random.default_rng(6).normal(size=partner.shape)
    found = kernax.kernel_cca(kernax.Linear(), kernax.Linear(), points, partner, 2, 1e-5).value
    peer = CCA(2, scale=False, max_iter=20000, tol=1e-14).fit(points, partner)
    first, second = peer.transform(points, partner)
    expected = [np.corrcoef(first[:, j], second[:, j])[0, 1] for j in range(2)]
    np.testing.assert_allclose(found.correlations, expected, atol=1e-7)


@needs_x64
def test_correlations_refuse_stacks_of_different_length_and_no_ridge():
    with pytest.raises(ValueError, match="in pairs, but hold 12 and 11"):
        kernax.kernel_cca(kernax.RBF(), kernax.RBF(), X, Z[:11], 1, 0.1)
    with pytest.raises(ValueError, match="ridge"):
        kernax.kernel_cca(kernax.RBF(), kernax.RBF(), X, Z, 1, 0.0)
    with pytest.raises(ValueError, match="n_components must be at most 12"):
        kernax.kernel_cca(kernax.RBF(), kernax.RBF(), X, Z, 13, 0.1)
    with pytest.raises(ValueError, match="Y holds NaN"):
        kernax.kernel_cca(kernax.RBF(), kernax.RBF(), X, Z * np.nan, 1, 0.1)


# Discriminants.


def discriminant(scale, X, ridge, weights, Y=CLASSES):
    return kernax.kernel_discriminant(
        kernax.RBF(scale), X, Y, ridge, weights=weights, throw=False
    ).value


def test_discriminants_are_those_of_the_generalised_eigenproblem_in_features():
    found = discriminant(SCALE, X, RIDGE, W)
    F = features(kernax.RBF(SCALE), X, W)
    means = [np.average(F, axis=0, weights=W * CLASSES[:, c]) for c in range(3)]
    heavy = [(W * CLASSES[:, c]).sum() for c in range(3)]
    between = sum(w * np.outer(m, m) for w, m in zip(heavy, means))
    within = F.T @ (W[:, None] * F) - between + float(RIDGE) * np.eye(F.shape[1])
    values, vectors = scipy.linalg.eigh(between, within)
    assert_close(found.separations, values[::-1][:2], TOLERANCE["solve"])
    expected = F @ vectors[:, ::-1][:, :2]
    up_to_sign(found.function.values(X), expected, 10 * TOLERANCE["solve"])
    f = np.asarray(found.function.values(X), np.float64)
    of_classes = [np.average(f, axis=0, weights=W * CLASSES[:, c]) for c in range(3)]
    assert_close(found.class_means, of_classes, 10 * TOLERANCE["solve"])


def largest_separation(K, Y, weights, ridge):
    """The largest eigenvalue of `(N K + ridge)^-1 B K` from its definition, in sixty digits."""
    exact = lambda A: mpmath.matrix(np.asarray(A, float).tolist())
    n = len(K)
    with mpmath.workdps(60):
        total = mpmath.fsum(map(float, weights))
        mean = exact(weights) / total
        between = mpmath.zeros(n)
        within = mpmath.diag(list(exact(weights)))
        for column in Y.T:
            inside = exact(weights * column)
            weight = mpmath.fsum(inside)
            of_class = inside / weight
            between += weight * (of_class - mean) * (of_class - mean).T
            within -= weight * of_class * of_class.T
        A = within * exact(K) + mpmath.mpf(float(ridge)) * mpmath.eye(n)
        values = mpmath.eig(mpmath.inverse(A) * between * exact(K), left=False, right=False)
        return float(max(mpmath.re(value) for value in values))


@pytest.mark.parametrize("seed", range(4))
def test_separations_are_right_for_weights_of_sixteen_orders_of_magnitude(seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(9, 2)).astype(DTYPE)
    Y = np.eye(3, dtype=DTYPE)[np.arange(9) % 3]
    weights = (10 ** rng.uniform(-8, 8, 9)).astype(DTYPE)
    ridge = np.asarray(10 ** rng.uniform(-4, 2), DTYPE)
    found = kernax.kernel_discriminant(kernax.RBF(), points, Y, ridge, weights=weights).value
    expected = largest_separation(kernax.gram(kernax.RBF(), points), Y, weights, ridge)
    # 2e-6 seen in float32.
    np.testing.assert_allclose(found.separations[0], expected, rtol=100 * EPS)


@needs_x64
def test_with_a_linear_kernel_and_a_small_ridge_classes_are_those_of_linear_discriminants():
    labels = np.arange(90) % 3
    points = np.random.default_rng(7).normal(size=(90, 2)) + 1.5 * np.eye(3)[labels][:, :2]
    Y, _ = kernax.one_hot(labels)
    found = kernax.kernel_discriminant(kernax.Linear(), points, Y, 1e-5).value
    peer = LinearDiscriminantAnalysis(priors=np.ones(3) / 3).fit(points, labels)
    np.testing.assert_array_equal(jax.vmap(found.classify)(points), peer.predict(points))


@needs_x64
def test_two_classes_are_signs_and_one_function():
    y = np.where(np.arange(N) % 2, 1.0, -1.0)
    columns = np.stack([y < 0, y > 0], 1).astype(float)
    by_signs = discriminant(SCALE, X, RIDGE, W, y)
    by_columns = discriminant(SCALE, X, RIDGE, W, columns)
    assert by_signs.separations.shape == (1,)
    assert_close(by_signs.function.coefficients, by_columns.function.coefficients)


@needs_x64
def test_a_class_that_a_fold_leaves_out_is_never_the_nearest():
    weights = 1 - CLASSES[:, 1]
    batch = jax.jit(jax.vmap(lambda w: discriminant(SCALE, X, RIDGE, w)))(
        jnp.stack([jnp.ones(N), jnp.asarray(weights)])
    )
    assert np.isinf(batch.class_means[1, 1]).all()
    alone = discriminant(SCALE, X, RIDGE, weights)
    assert 1 not in np.asarray(jax.vmap(alone.classify)(X))
    assert_close(batch.separations[1], alone.separations)


@needs_x64
def test_discriminants_refuse_one_class_and_no_ridge():
    with pytest.raises(ValueError, match="one class"):
        kernax.kernel_discriminant(kernax.RBF(), X, np.ones(N), 0.1)
    with pytest.raises(ValueError, match="Y holds one class only"):
        kernax.kernel_discriminant(kernax.RBF(), X, np.eye(3)[np.zeros(N, int)], 0.1)
    with pytest.raises(ValueError, match="ridge"):
        kernax.kernel_discriminant(kernax.RBF(), X, CLASSES, 0.0)
    with pytest.raises(ValueError, match=r"holds 3 different numbers: Y, classes = one_hot"):
        kernax.kernel_discriminant(kernax.RBF(), X, np.arange(N) % 3.0, 0.1)


@needs_x64
def test_classes_that_coincide_have_no_separation():
    for X in (np.ones((6, 2)), np.repeat([[0.0, 1.0]], 6, 0)):
        found = kernax.kernel_discriminant(kernax.RBF(), X, np.array([1.0, -1] * 3), 0.1)
        assert found.value.separations == 0
        assert found.stats["rank"] == 0


@pytest.mark.parametrize("columns", [1, 5])
def test_products_find_the_components_of_few_distinct_points(columns, rng):
    """The Krylov space is exhausted before its basis is full."""
    X = np.eye(6, dtype=DTYPE)[rng.integers(0, 6, 150)][:, :columns]
    by_products = kernax.kernel_pca(kernax.RBF(), X, 2, truncated=True)
    by_all = kernax.kernel_pca(kernax.RBF(), X, 2, truncated=False)
    np.testing.assert_allclose(
        by_products.value.variances, by_all.value.variances, rtol=1e-4, atol=1e-6
    )


@pytest.mark.slow
@needs_x64
def test_points_whose_kernel_overflows_are_refused_by_all_three():
    wide = np.full((3, 1), 1e200) * np.arange(1, 4)[:, None]
    y = np.array([1.0, -1.0, 1.0])
    for function in (
        lambda: kernax.kernel_pca(kernax.Linear(), wide, 1),
        lambda: kernax.kernel_cca(kernax.Linear(), kernax.Linear(), wide, wide, 1, 1.0),
        lambda: kernax.kernel_discriminant(kernax.Linear(), wide, y, 1.0),
    ):
        with pytest.raises(NonFiniteError):
            function()


@pytest.mark.slow
@needs_x64
def test_a_discriminant_tells_the_bananas_apart():
    """Raetsch's first split; published 10.8 %, with a kernel and penalty chosen by
    cross-validation.
    """
    data = real_data("banana")
    train, test = data["train_idx"][0], data["test_idx"][0]
    kernel = kernax.RBF(0.7)
    found = kernax.kernel_discriminant(kernel, data["X"][train], data["y"][train], 0.5).value
    classes = jax.jit(jax.vmap(found.classify))(data["X"][test])
    error = np.mean(np.asarray(classes) != (data["y"][test] > 0))
    assert error < 0.13


@needs_x64
@pytest.mark.parametrize("ridge", [1e-6, 1e-8, 1e-11])
def test_correlations_of_a_small_ridge_have_the_digits_that_are_said(ridge):
    """Against eigenvalues in fifty digits. A ridge of 1e-11 raised, though six digits are right."""
    x = np.linspace(0, 1, 12)
    z = np.sin(6 * x) + 0.1 * np.random.default_rng(0).normal(size=12)
    kernel = kernax.RBF()
    few = eps_over(ridge) > np.finfo(float).eps ** (1 / 3)
    expected = pytest.warns(ConditionWarning, match="digits of the correlations")
    with expected if few else contextlib.nullcontext():
        found = kernax.kernel_cca(kernel, kernel, x[:, None], z[:, None], 2, ridge)
    np.testing.assert_allclose(found.stats["rounding"], eps_over(ridge), rtol=1e-6)
    exact = squared_correlations(kernel, x, z, ridge)
    error = np.max(abs(np.asarray(found.value.correlations) ** 2 - exact[:2]))
    assert error <= found.stats["rounding"]


@pytest.mark.parametrize("size", [1e-4, 1e-5])
def test_small_correlations_of_a_large_ridge_are_not_zero(size):
    """Against fifty digits. In float32 they were zero, four digits above their rounding."""
    x = np.linspace(0, 1, 12).astype(DTYPE)
    z = np.sin(6 * x) + 0.1 * np.random.default_rng(0).normal(size=12).astype(DTYPE)
    ridge = 0.5 / size
    kernel = kernax.RBF(DTYPE(0.3))
    found = kernax.kernel_cca(kernel, kernel, x[:, None], z[:, None], 2, ridge)
    exact = squared_correlations(kernel, x, z, ridge)[:2]
    np.testing.assert_allclose(np.asarray(found.value.correlations) ** 2, exact, rtol=1e4 * EPS)
    assert np.max(abs(np.asarray(found.value.correlations) ** 2 - exact)) <= 12 * EPS / ridge


def test_separations_that_rounding_hides_are_no_success():
    """In float32 all were zero, and those in float64 are above one: a prediction of one class."""
    single = np.asarray(np.random.default_rng(0).normal(size=(30, 2)), np.float32)
    classes = np.eye(3, dtype=np.float32)[np.arange(30) % 3]
    for ridge in (1e-5, 3e-7):
        found = kernax.kernel_discriminant(kernax.RBF(1.3), single, classes, ridge, throw=False)
        assert found.result == kernax.RESULTS.inaccurate


@needs_x64
def test_the_rounding_of_correlations_counts_the_weights():
    """Against fifty digits: of weights that are equal the ridge counts relative to them."""
    weight, ridge = 2.0**20, 1e-8
    x = np.linspace(0, 1, 12)
    z = np.sin(6 * x) + 0.1 * np.random.default_rng(0).normal(size=12)
    kernel = kernax.RBF()
    found = kernax.kernel_cca(
        kernel, kernel, x[:, None], z[:, None], 2, weight * ridge, weights=np.full(12, weight)
    )
    exact = squared_correlations(kernel, x, z, ridge)
    error = np.max(abs(np.asarray(found.value.correlations) ** 2 - exact[:2]))
    assert error <= found.stats["rounding"]
    np.testing.assert_allclose(found.stats["rounding"], eps_over(ridge), rtol=1e-6)


def eps_over(ridge):
    """The bound for twelve points of a kernel that is one at zero distance."""
    return np.finfo(float).eps * 12 / ridge


def squared_correlations(kernel, x, z, ridge):
    """The eigenvalues of `H_L^(1/2) H_K H_L^(1/2)`, `H = K (K + ridge)^-1`, in descending order."""
    with mpmath.workdps(50):
        n = len(x)
        centring = mpmath.eye(n) - mpmath.ones(n, n) / n

        def smoother(points):
            K = np.asarray(kernax.gram(kernel, points[:, None])).tolist()
            K = centring * mpmath.matrix(K) * centring
            values, vectors = mpmath.eigsy((K + K.T) / 2)
            shrunk = [mpmath.sqrt(max(value, 0) / (max(value, 0) + ridge)) for value in values]
            return vectors * mpmath.diag(shrunk) * vectors.T

        root, other = smoother(z), smoother(x)
        product = root * other * other * root
        values = mpmath.eigsy((product + product.T) / 2, eigvals_only=True)
        return sorted(map(float, values), reverse=True)
