"""Explicit features: primal and dual are one fit, and the cheaper is taken (K10, S1, S7)."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, FUSED, TOLERANCE, marked, needs_x64

import kernax

rng = np.random.default_rng(0)
X, CENTRES = rng.normal(size=(40, 2)).astype(DTYPE), rng.normal(size=(6, 2)).astype(DTYPE)
y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]
WEIGHTS = np.where(np.arange(40) % 7 == 0, 0, 1 + np.arange(40) % 3).astype(DTYPE)
MAP = kernax.FeatureMap(kernax.bases.GaussianBasis(CENTRES, 0.8))
# The same kernel, whose features no one sees.
DUAL = kernax.Custom(lambda phi, x, z: kernax.FeatureMap(phi)(x, z), MAP.phi)


def values(solution):
    return jax.vmap(solution.value)(X)


@pytest.mark.parametrize(
    ("weights", "bias"),
    [
        pytest.param(None, False, marks=needs_x64),
        (WEIGHTS, True),
        pytest.param(None, True, marks=[needs_x64, pytest.mark.slow]),
        pytest.param(WEIGHTS, False, marks=[needs_x64, pytest.mark.slow]),
    ],
)
def test_ridge_in_features_is_ridge(weights, bias):
    primal, dual = (
        kernax.kernel_ridge(kernel, X, y, 0.1, weights=weights, bias=bias) for kernel in (MAP, DUAL)
    )
    assert primal.stats["features"] == 6
    assert "features" not in dual.stats
    np.testing.assert_allclose(values(primal), values(dual), atol=20 * TOLERANCE["value"])
    np.testing.assert_allclose(
        primal.value.coefficients, dual.value.coefficients, atol=100 * TOLERANCE["value"]
    )


@pytest.mark.slow
@needs_x64
def test_logistic_regression_in_features_is_logistic_regression():
    primal, dual = (
        kernax.kernel_logistic(kernel, X, np.sign(y), 0.1, weights=WEIGHTS)
        for kernel in (MAP, DUAL)
    )
    assert primal.stats["features"] == 6
    np.testing.assert_allclose(values(primal), values(dual), atol=100 * TOLERANCE["value"])


SIGNS = np.sign(y)
MACHINES = {
    "svm": lambda kernel: kernax.svm(kernel, X, SIGNS, 2.0, weights=WEIGHTS),
    "svr": lambda kernel: kernax.support_vector_regression(kernel, X, y, 2.0, 0.1),
    "one class": lambda kernel: kernax.one_class_svm(kernel, X, 0.3),
    "nu-svm": lambda kernel: kernax.nu_svm(kernel, X, SIGNS, 0.3, weights=WEIGHTS),
    "nu-svr": lambda kernel: kernax.nu_support_vector_regression(kernel, X, y, 2.0, 0.3),
    "hinge": lambda kernel: kernax.regularised_risk(
        kernel, X, SIGNS, 0.5, loss=kernax.losses.Hinge(), bias=True
    ),
    "huber": lambda kernel: kernax.regularised_risk(
        kernel, X, y, 0.5, loss=kernax.losses.Huber(0.3)
    ),
}


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "name", marked(pytest.mark.nightly, MACHINES, "svm", "svr", "nu-svr", "huber", "nu-svm")
)
def test_machines_and_risks_in_features_are_the_same_functions(name):
    """Machines to their tolerance, of 1e-3."""
    primal, dual = (MACHINES[name](kernel) for kernel in (MAP, DUAL))
    assert primal.stats["features"] == 6
    assert "features" not in dual.stats
    atol = 100 * TOLERANCE["value"] if name == "huber" else 5e-3
    np.testing.assert_allclose(values(primal), values(dual), atol=atol)


@pytest.mark.nightly
@needs_x64
def test_the_gradient_of_a_machine_in_features_is_that_of_the_machine():
    def total(kernel, C):
        return jnp.sum(jax.vmap(kernax.svm(kernel, X, SIGNS, C, throw=False).value)(X) ** 2)

    slope = jax.jit(jax.grad(total, 1))
    primal, dual = (slope(kernel, 0.5) for kernel in (MAP, DUAL))
    np.testing.assert_allclose(primal, dual, rtol=1e-6)


CLASSES = np.digitize(y, [-0.7, 0.7])


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    ("weights", "bias"),
    marked(
        pytest.mark.nightly,
        [(WEIGHTS, True), pytest.param(None, False, marks=pytest.mark.slow)],
        "ndarray-True",
    ),
)
def test_softmax_in_features_is_softmax(weights, bias):
    one_hot = np.eye(3)[CLASSES]
    primal, dual = (
        kernax.kernel_softmax(kernel, X, one_hot, 0.1, weights=weights, bias=bias)
        for kernel in (MAP, DUAL)
    )
    assert primal.stats["features"] == 6
    assert "features" not in dual.stats
    np.testing.assert_allclose(values(primal), values(dual), atol=100 * TOLERANCE["value"])


@pytest.mark.nightly
@needs_x64
def test_the_gradient_of_softmax_in_features_is_that_of_softmax():
    def size(kernel, ridge, weights):
        solution = kernax.kernel_softmax(
            kernel, X, np.eye(3)[CLASSES], ridge, weights=weights, throw=False
        )
        return jnp.sum(solution.value.coefficients**2)

    (ridge, weights), expected = (
        jax.jit(jax.grad(size, (1, 2)))(kernel, 0.1, WEIGHTS) for kernel in (MAP, DUAL)
    )
    np.testing.assert_allclose(ridge, expected[0], rtol=1e-6)
    np.testing.assert_allclose(weights, expected[1], atol=1e-6)


@pytest.mark.nightly
def test_softmax_of_many_features_times_classes_is_solved_by_points():
    solution = kernax.kernel_softmax(MAP, X[:8], np.eye(3, dtype=DTYPE)[np.arange(8) % 3], 1.0)
    assert "features" not in solution.stats


@needs_x64
def test_principal_components_by_products_with_features_are_principal_components():
    few = kernax.FeatureMap(kernax.bases.GaussianBasis(CENTRES, 0.8))
    primal = kernax.kernel_pca(few, X, 2, truncated=True)
    dual = kernax.kernel_pca(DUAL, X, 2, truncated=False)
    np.testing.assert_allclose(primal.value.variances, dual.value.variances, rtol=1e-8)
    np.testing.assert_allclose(values(primal), values(dual), atol=1e-6)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("name", marked(pytest.mark.nightly, ["svm", "huber", "kernel_pca"], "svm"))
def test_in_features_no_program_holds_the_gram_matrix(name):
    n = 3500
    many = jnp.asarray(np.random.default_rng(1).normal(size=(n, 2)))
    signs = np.where(np.arange(n) % 2, 1.0, -1.0)
    solver = kernax.solvers.SMO(working_set=100)
    fits = {
        "svm": lambda X: kernax.svm(MAP, X, signs, 1.0, solver=solver, throw=False),
        "huber": lambda X: kernax.regularised_risk(
            MAP, X, signs, 1.0, loss=kernax.losses.Huber(1.0), throw=False
        ),
        "kernel_pca": lambda X: kernax.kernel_pca(MAP, X, 2, throw=False),
    }
    fit = lambda X: jax.tree.leaves(fits[name](X).value)
    program = jax.jit(fit).lower(many).compile(FUSED)
    # Measured: 1 to 11 MB; K alone would be 98.
    assert program.memory_analysis().temp_size_in_bytes < n * n * 8 / 4


@needs_x64
def test_the_perceptron_in_features_makes_the_same_mistakes():
    primal, dual = (
        kernax.kernel_perceptron(kernel, X, np.sign(y), throw=False) for kernel in (MAP, DUAL)
    )
    assert primal.stats["features"] == 6
    assert primal.stats["mistakes"] == dual.stats["mistakes"]
    np.testing.assert_allclose(primal.value.coefficients, dual.value.coefficients)


@pytest.mark.slow
@needs_x64
def test_more_features_than_points_a_zero_ridge_or_a_solver_of_yours_stay_dual():
    assert "features" not in kernax.kernel_ridge(MAP, X[:6], y[:6], 0.1).stats
    assert (
        "features"
        not in kernax.kernel_ridge(MAP, X, y, 0.1, solver=kernax.solvers.JitteredCholesky()).stats
    )
    with pytest.warns(kernax.errors.ConditionWarning):  # six features of forty points: singular
        assert "features" not in kernax.kernel_ridge(MAP, X, y, 0.0).stats


def test_two_hundred_thousand_points_need_no_matrix():
    many = jax.random.normal(jax.random.key(0), (200_000, 2), jnp.float32)
    features = kernax.FeatureMap(kernax.bases.GaussianBasis(CENTRES.astype(np.float32), 0.8))
    solution = kernax.kernel_ridge(features, many, many[:, 0], 1.0)
    assert solution.stats["features"] == 6
    assert solution.stats["residual"] < 1e-3


@needs_x64
def test_a_constant_feature_may_be_a_number():
    K = kernax.gram(kernax.FeatureMap(lambda x: (x, 1.0, 2)), X)
    np.testing.assert_allclose(
        K, kernax.gram(kernax.Linear() + 5.0, X), rtol=TOLERANCE["value"], atol=TOLERANCE["value"]
    )
    assert K.dtype == DTYPE


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("kind", [bool, np.uint8, int])
def test_features_that_are_no_floats_are_counted_as_floats(kind):
    """Not in their own arithmetic, in which booleans saturate and bytes wrap around."""
    points = np.full((5, 3), 200, DTYPE)
    count = kernax.FeatureMap(lambda x: {"over": (x > 0).astype(kind), "size": x.astype(kind)})
    same = kernax.FeatureMap(
        lambda x: {"over": (x > 0).astype(x.dtype), "size": x.astype(kind).astype(x.dtype)}
    )
    np.testing.assert_array_equal(kernax.gram(count, points), kernax.gram(same, points))
    assert kernax.gram(count, points).dtype == DTYPE
    both = [
        kernax.kernel_ridge(kernel, points, np.ones(5), 1.0).value(points[0])
        for kernel in (count, same)
    ]
    np.testing.assert_array_equal(*both)


@needs_x64
def test_a_process_in_features_factorises_its_points_once():
    """Catches a second QR of all points, for the covariance."""

    def conditioned(X):
        solution = kernax.condition(kernax.GaussianProcess(MAP), X, y, 0.1, throw=False)
        return eqx.filter(solution.value, eqx.is_array)

    program = jax.jit(conditioned).lower(X).as_text()
    rows = [int(n) for n in re.findall(r"call @qr\w*\(%\w+\) : \(tensor<(\d+)x", program)]
    assert rows.count(len(X)) == 1
    assert max(rows) == len(X)
