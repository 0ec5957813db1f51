"""Numeric Mercer eigenpairs and the features of a Gram matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from conftest import DTYPE, TOLERANCE, X64, assert_close, needs_x64

import kernax
from kernax.errors import NotPSDError

X = np.random.default_rng(2).normal(size=(6, 2)).astype(DTYPE)
TWICE = X[[0, 1, 2, 3, 0, 1]]  # K of rank 4
Z = np.random.default_rng(4).normal(size=(3, 2)).astype(DTYPE)


def at(f, X):
    return np.asarray(jax.vmap(f)(jnp.asarray(X)), np.float64)


def test_eigenpairs_are_those_of_the_matrix_over_n_with_mean_square_one():
    values, functions = kernax.bases.eigenpairs(kernax.RBF(), X, 4)
    K = np.asarray(kernax.gram(kernax.RBF(), X), np.float64)
    assert_close(values, np.linalg.eigvalsh(K)[::-1][:4] / 6)
    F = at(functions, X)
    assert_close(F.T @ F / 6, np.eye(4), 10 * TOLERANCE["value"])
    assert_close(K @ F / 6, F * np.asarray(values), 10 * TOLERANCE["value"])
    assert_close(
        at(functions, Z) * np.asarray(values),
        np.asarray(kernax.gram(kernax.RBF(), Z, X)) @ F / 6,
        10 * TOLERANCE["value"],
    )
    C = np.asarray(functions.coefficients)
    assert (C[np.argmax(np.abs(C), 0), np.arange(4)] > 0).all()


@pytest.mark.slow
def test_the_full_series_is_the_kernel_on_the_points_and_its_expansion_reproduces_it():
    values, functions = kernax.bases.eigenpairs(kernax.Matern12(), X, 6)
    F = at(functions, X)
    assert_close(
        (F * np.asarray(values)) @ F.T, kernax.gram(kernax.Matern12(), X), TOLERANCE["solve"]
    )
    assert_close(functions.norm**2, 1 / np.asarray(values), TOLERANCE["solve"])


@pytest.mark.slow
@needs_x64
def test_numeric_eigenpairs_of_brownian_motion_approach_those_in_closed_form():
    """K20: midpoints of n cells; the error falls as 1/n^2."""
    errors = []
    for n in (20, 40):
        grid = ((np.arange(n) + 0.5) / n)[:, None].astype(DTYPE)
        values, functions = kernax.bases.eigenpairs(kernax.kernels.Brownian(), grid, 3)
        exact, sines = kernax.kernels.Brownian().eigenpairs(3)
        errors.append(np.max(np.abs(values / exact - 1)))
        F, S = at(functions, grid), at(sines, grid)
        assert np.max(np.abs(F * np.sign(np.sum(F * S, 0)) - S)) < 20 / n**2
    assert errors[0] < 0.02
    assert 3 < errors[0] / errors[1] < 5


def test_signs_do_not_hang_on_rounding_where_entries_tie():
    grid = np.array([[-2.0], [-1.0], [1.0], [2.0]], DTYPE)  # every odd function ties
    _, functions = kernax.bases.eigenpairs(kernax.RBF(), grid, 4)
    C = np.asarray(functions.coefficients)
    size = np.abs(C)
    first = np.argmax(size > size.max(0) * (1 - 1e-3), 0)
    assert (C[first, np.arange(4)] > 0).all()


@needs_x64
def test_eigenpairs_refuse_more_than_the_rank_and_what_is_no_count():
    for count, words in (
        (0, "be a positive integer"),
        (True, "be a positive integer"),
        (7, "be at most 6"),
    ):
        with pytest.raises(ValueError, match=f"n_pairs must {words}"):
            kernax.bases.eigenpairs(kernax.RBF(), X, count)
    with pytest.raises(ValueError, match="n_pairs is 5, but K has only 4 eigenvalues"):
        kernax.bases.eigenpairs(kernax.RBF(), TWICE, 5)
    assert np.isfinite(kernax.bases.eigenpairs(kernax.RBF(), TWICE, 4).values).all()


@needs_x64
@pytest.mark.parametrize(
    "function", [lambda k, X: kernax.bases.eigenpairs(k, X, 1), kernax.bases.empirical_features]
)
def test_an_indefinite_matrix_is_refused(function):
    indefinite = kernax.Precomputed(np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(NotPSDError, match="Precomputed on these points has a negative eigenvalue"):
        function(indefinite, np.arange(2))


@needs_x64
def test_traced_failures_are_nan():
    values = jax.jit(lambda X: kernax.bases.eigenpairs(kernax.RBF(), X, 5).values)(
        jnp.asarray(TWICE)
    )
    assert np.isfinite(values).tolist() == [True] * 4 + [False]
    K = jnp.array([[1.0, 2.0], [2.0, 1.0]])
    root = jax.jit(
        lambda K: kernax.bases.empirical_features(kernax.Precomputed(K), jnp.arange(2)).coefficients
    )(K)
    assert np.isnan(root).all()


@needs_x64
@pytest.mark.parametrize("points", [X, TWICE], ids=["regular", "singular"])
@pytest.mark.parametrize("kernel", [kernax.RBF(), kernax.Linear()], ids=["gaussian", "linear"])
def test_empirical_features_reproduce_the_matrix(kernel, points):
    """K19: singular K included."""
    phi = kernax.bases.empirical_features(kernel, points)
    K = np.asarray(kernax.gram(kernel, points), np.float64)
    F = at(phi, points)
    assert_close(F @ F.T, K, 10 * TOLERANCE["value"])
    assert_close(
        np.asarray(kernax.gram(kernax.FeatureMap(phi), points, Z)),
        kernax.gram(kernel, points, Z),
        TOLERANCE["solve"],
    )
    root = np.asarray(phi.coefficients, np.float64)
    assert_close(
        root @ root @ K @ K,
        K @ np.linalg.pinv(K, 1e-5) @ np.linalg.pinv(K, 1e-5) @ K @ K,
        TOLERANCE["solve"],
    )


@needs_x64
def test_learners_give_the_same_function_from_empirical_features():
    """K19."""
    y = np.sin(X[:, 0]).astype(DTYPE)
    phi = kernax.bases.empirical_features(kernax.RBF(), X)
    f, g = (kernax.kernel_ridge(k, X, y, 0.1).value for k in (kernax.RBF(), kernax.FeatureMap(phi)))
    assert_close(at(g, X), at(f, X), TOLERANCE["solve"])


def slope(function, argument, direction, h=1e-5):
    return (function(argument + h * direction) - function(argument - h * direction)) / (2 * h)


@pytest.mark.slow
@needs_x64
def test_gradients_in_kernel_and_points_match_finite_differences():
    """Along changes that keep the rank: of the lengthscale, and of the points moved together."""
    Q = np.random.default_rng(6).normal(size=(6, 6))

    def total(t, points):
        kernel, moved = (
            kernax.Matern32(jnp.exp(t[0])),
            points * jnp.stack([t[1], jnp.ones_like(t[1])])[None],
        )
        values, functions = kernax.bases.eigenpairs(kernel, moved, 3)
        root = kernax.bases.empirical_features(kernel, moved).coefficients
        return jnp.stack(
            [
                values @ jnp.array([1.0, 2.0, 3.0]),
                jnp.sum(functions(jnp.asarray(Z[0])) ** 3),
                jnp.sum(Q * root),
            ]
        )

    total, forward, reverse = map(jax.jit, (total, jax.jacfwd(total), jax.jacrev(total)))
    t = jnp.array([0.2, 1.1])
    for points in (X, TWICE):
        differences = np.stack([slope(lambda t, X=points: total(t, X), t, e) for e in np.eye(2)], 1)
        assert_close(forward(t, points), reverse(t, points), 1e-9)
        assert_close(forward(t, points), differences, 1e-6)  # 7e-10 measured


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_derivative_of_empirical_features_does_not_know_the_unit_of_the_kernel(sign):
    """Powers of the roots of its eigenvalues left the range of floats: it was NaN, or half."""
    X = np.random.default_rng(3).normal(size=(9, 2)).astype(DTYPE)
    x = jnp.asarray([0.2, -0.3], DTYPE)

    def value(lengthscale, unit):
        kernel = unit * kernax.RBF(lengthscale)
        return jnp.sum(kernax.bases.empirical_features(kernel, X)(x)) / jnp.sqrt(unit)

    slope = jax.grad(value)
    unit = 10.0 ** (sign * (200 if X64 else 20))
    np.testing.assert_allclose(slope(1.1, unit), slope(1.1, 1.0), rtol=1e-9 if X64 else 1e-3)


@needs_x64
def test_the_root_is_differentiable_where_eigenvalues_coincide_and_only_once():
    """Of (I + t D)^(-1/2) the derivative at t = 0 is -D / 2, whatever the basis of eigenvectors."""
    D = np.array([[0.3, 1.0, 0.2], [1.0, -0.4, 0.5], [0.2, 0.5, 0.1]])
    root = jax.jit(
        lambda t: (
            kernax.bases.empirical_features(
                kernax.Precomputed(jnp.eye(3) + t * D), jnp.arange(3)
            ).coefficients
        )
    )
    assert_close(jax.jacfwd(root)(0.0), -D / 2, 1e-12)
    with pytest.raises(ValueError, match="no second derivatives"):
        jax.jacfwd(jax.jacfwd(root))(0.0)


@needs_x64
def test_the_root_of_a_singular_matrix_whose_range_turns_is_differentiated():
    """Catches the rule between an eigenvalue that is zero and one that is not, which no copies of
    points reach.
    """
    rng = np.random.default_rng(8)
    F, D = rng.normal(size=(2, 4, 2))
    at = jnp.arange(4)

    def root(t):
        features = F + t * D
        return kernax.bases.empirical_features(
            kernax.Precomputed(features @ features.T), at
        ).coefficients

    exact = jax.jit(jax.jacfwd(root))(0.0)
    ahead, behind = (
        np.linalg.pinv(scipy.linalg.sqrtm((F + t * D) @ (F + t * D).T).real, 1e-6)  # pyright: ignore[reportAttributeAccessIssue]
        for t in (1e-5, -1e-5)
    )
    assert_close(exact, (ahead - behind) / 2e-5, 1e-5)
