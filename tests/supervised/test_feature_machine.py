"""Recursive feature machines, the metric that they learn, and the root of a matrix."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, check_derivatives, needs_x64, untyped

import kernax
from kernax.core.kernel.kernel import with_slopes_by_products
from kernax.core.linalg.solves import square_root

LAPLACE = kernax.Matern12(2.0)
CLOSE = 1e-9 if X64 else 2e-3


@pytest.fixture
def data(rng):
    X = rng.normal(size=(40, 3))
    y = np.sin(1.5 * X[:, 0] + X[:, 1]) + 0.1 * rng.normal(size=40)
    return X.astype(DTYPE), y.astype(DTYPE)


def metric(f):
    assert isinstance(f.kernel, kernax.kernels.Mahalanobis)
    return f.kernel.metric


def in_numpy(X, y, ridge, lengthscale, rounds, weights, *, diagonal=False):
    """The fit of the last round with a Laplace kernel, all by its formulas: predictions, metric and
    the mean squared leave-one-out residuals, these by leaving points out.
    """
    share = weights / weights.sum()
    centred = X - share @ X
    M = np.eye(X.shape[1])
    errors = []
    for number in range(rounds):
        difference = X[:, None] - X[None]
        r = np.sqrt(np.maximum(np.einsum("ijk,kl,ijl->ij", difference, M, difference), 0))
        K = np.exp(-r / lengthscale)
        a = np.linalg.solve(weights[:, None] * K + ridge * np.eye(len(X)), weights * y)
        left_out = []
        for i in range(len(X)):
            others = np.where(np.arange(len(X)) == i, 0, weights)
            without = np.linalg.solve(others[:, None] * K + ridge * np.eye(len(X)), others * y)
            left_out.append(y[i] - K[i] @ without)
        errors.append(share @ np.square(left_out))
        if number == rounds - 1:
            return K @ a, M, errors
        # grad_x exp(-r / l) = -exp(-r / l) M (x - z) / (l r).
        slopes = np.where(r > 0, -K / (lengthscale * np.where(r > 0, r, 1)), 0)
        gradients = np.einsum("ij,j,ijk->ik", slopes, a, difference) @ M
        M = np.einsum("i,ij,ik->jk", share, gradients, gradients)
        M = np.diag(np.diag(M)) if diagonal else M
        spread = np.einsum("i,ij,ij", share, centred, centred)
        M = M * spread / np.einsum("i,ij,jk,ik", share, centred, M, centred)
    raise AssertionError("at least one round")


@pytest.mark.parametrize("diagonal", [False, True])
def test_rounds_are_those_of_the_formulas(diagonal, data, rng):
    X, y = data
    weights = rng.integers(0, 3, size=40).astype(DTYPE)
    solution = kernax.recursive_feature_machine(
        LAPLACE, X, y, 0.1, weights=weights, max_rounds=3, rtol=0.0, diagonal=diagonal
    )
    given = (np.asarray(a, np.float64) for a in (X, y))
    values, M, errors = in_numpy(*given, 0.1, 2.0, 3, weights.astype(float), diagonal=diagonal)
    assert errors[2] < errors[1] < errors[0]
    assert int(solution.stats["round"]) == 2
    np.testing.assert_allclose(solution.stats["leave_one_out"], errors, rtol=CLOSE)
    np.testing.assert_allclose(metric(solution.value), M, atol=CLOSE * np.max(abs(M)))
    np.testing.assert_allclose(solution.value.values(X), values, atol=CLOSE)


@pytest.mark.slow
def test_the_first_round_is_kernel_ridge_and_constants_keep_its_metric(data):
    X, y = data
    one = kernax.recursive_feature_machine(LAPLACE, X, y, 0.1, max_rounds=1, bias=True)
    ridge = kernax.kernel_ridge(LAPLACE, X, y, 0.1, bias=True)
    np.testing.assert_allclose(one.value.values(X), ridge.value.values(X), atol=CLOSE)
    constant = kernax.recursive_feature_machine(LAPLACE, X, 0 * y, 0.1)
    np.testing.assert_array_equal(metric(constant.value), np.eye(3))


def test_rounds_end_where_the_error_hardly_falls(data):
    X, y = data
    every = kernax.recursive_feature_machine(LAPLACE, X, y, 0.1, rtol=0.0).stats
    errors = np.asarray(every["leave_one_out"])
    falls = 1 - errors[1:] / errors[:-1]
    assert falls[0] > falls[1] + 0.1
    between = (falls[0] + falls[1]) / 2
    some = kernax.recursive_feature_machine(LAPLACE, X, y, 0.1, rtol=between).stats
    np.testing.assert_array_equal(np.isnan(some["leave_one_out"]), [False] * 3 + [True] * 3)
    np.testing.assert_allclose(some["leave_one_out"][:3], errors[:3], rtol=CLOSE)
    assert int(some["round"]) == 2


def test_a_metric_that_makes_errors_larger_is_not_returned():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 3)).astype(DTYPE)
    noise = rng.normal(size=(2, 40))[1]
    y = (np.linalg.norm(X, axis=1) + 0.2 * noise).astype(DTYPE)  # no direction is better
    every = kernax.recursive_feature_machine(LAPLACE, X, y, 0.1)
    errors = every.stats["leave_one_out"]
    assert errors[3] > errors[2]
    assert int(every.stats["round"]) == 2
    three = kernax.recursive_feature_machine(LAPLACE, X, y, 0.1, max_rounds=3)
    np.testing.assert_allclose(every.value.values(X), three.value.values(X), atol=CLOSE)


@needs_x64
def test_directions_without_effect_are_forgotten_and_held_out_errors_fall(rng):
    X = rng.normal(size=(250, 6)).astype(DTYPE)
    y = np.sin(2 * X[:, 0] + X[:, 1])
    solution = kernax.recursive_feature_machine(kernax.RBF(2.0), X[:150], y[:150], 0.01)
    M = np.asarray(metric(solution.value))
    assert np.trace(M[2:, 2:]) < 0.01 * np.trace(M)
    # The direction (2, 1) of the argument of the sine.
    _, vectors = np.linalg.eigh(M)
    assert abs(vectors[:2, -1] @ [2, 1]) / np.sqrt(5) > 0.99
    plain = kernax.kernel_ridge(kernax.RBF(2.0), X[:150], y[:150], 0.01).value
    error = lambda f: np.std(f.values(X[150:]) - y[150:])
    assert error(solution.value) < 0.2 * error(plain)


@pytest.mark.slow
@needs_x64
def test_classes_are_learned_from_one_hot_targets(rng):
    X = rng.normal(size=(120, 4)).astype(DTYPE)
    labels = (X[:, 0] * X[:, 1] > 0).astype(int) + 2 * (X[:, 0] > 1)
    Y, _ = kernax.one_hot(labels)
    f = kernax.recursive_feature_machine(LAPLACE, X[:80], Y[:80], 0.1, bias=True).value
    plain = kernax.kernel_ridge(LAPLACE, X[:80], Y[:80], 0.1, bias=True).value
    right = lambda f: np.mean(np.argmax(f.values(X[80:]), 1) == labels[80:])
    assert right(f) > right(plain)
    assert np.trace(metric(f)[2:, 2:]) < 0.5 * np.trace(metric(f)[:2, :2])


@needs_x64
@pytest.mark.nightly
def test_derivatives_of_a_diagonal_metric_are_those_of_differences_through_the_rounds(data):
    X, y = data
    weights = np.linspace(0.5, 2.0, 40)

    def prediction(lengthscale, X, y, ridge, weights):
        solution = kernax.recursive_feature_machine(
            kernax.RBF(lengthscale), X, y, ridge,
            weights=weights, max_rounds=3, rtol=0.0, diagonal=True, bias=True, throw=False,
        )  # fmt: skip
        return jnp.sum(jnp.sin(solution.value.values(X[:7])))

    arguments = (2.0, X, y, 0.1, weights)
    check_derivatives(prediction, arguments, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("batched", [False, True])
def test_a_round_that_fails_leaves_the_derivatives_of_the_best_one(batched, data):
    X, y = data

    def near(scale, x, z):
        s = jnp.sum((x - z) ** 2) / scale
        return jnp.where(s > 24 / scale, jnp.nan, jnp.exp(-s))

    # The first metric stretches the direction of the sine, so that points are too far apart.
    assert np.max(np.sum((X[:, None] - X[None]) ** 2, -1)) < 24

    def prediction(rounds, scale, X, y, ridge):
        solution = kernax.recursive_feature_machine(
            kernax.Custom(near, scale), X, y, ridge, max_rounds=rounds, rtol=0.0, throw=False
        )
        return jnp.sum(jnp.sin(solution.value.coefficients)), solution.stats["leave_one_out"]

    def slopes(rounds):
        of = lambda *arguments: prediction(rounds, *arguments)
        slope = jax.grad(of, argnums=(0, 1, 2, 3), has_aux=True)
        arguments = (DTYPE(4.0), jnp.asarray(X), jnp.asarray(y), DTYPE(0.1))
        if not batched:
            return slope(*arguments)
        both = jax.tree.map(lambda a: jnp.stack([jnp.asarray(a)] * 2), arguments)
        return jax.tree.map(lambda a: a[0], jax.vmap(slope)(*both))

    wanted, _ = slopes(1)
    given, errors = slopes(3)
    np.testing.assert_array_equal(np.isnan(errors), [False, True, True])
    for a, b in zip(given, wanted):
        np.testing.assert_allclose(a, b, rtol=CLOSE, atol=CLOSE)


@pytest.mark.slow
def test_members_of_a_batch_are_fitted_as_they_are_alone(data):
    X, y = data
    # The rounds of one member end before those of the other.
    Y = np.stack([y, X[:, 2] ** 2])

    @jax.jit
    def fits(Y):
        fit = lambda y: kernax.recursive_feature_machine(LAPLACE, X, y, 0.1, throw=False)
        return jax.vmap(lambda y: (fit(y).value.values(X), fit(y).stats["leave_one_out"]))(Y)

    values, errors = fits(Y)
    for member, y in enumerate(Y):
        alone = kernax.recursive_feature_machine(LAPLACE, X, y, 0.1)
        np.testing.assert_allclose(errors[member], alone.stats["leave_one_out"], rtol=CLOSE)
        np.testing.assert_allclose(values[member], alone.value.values(X), atol=CLOSE)


def test_units_of_targets_and_the_place_of_points_have_no_effect(data):
    X, y = data
    far = 1e4 if X64 else 64.0  # no digit of X is lost
    X = np.round(X * 1024) / 1024
    here = kernax.recursive_feature_machine(LAPLACE, X, y, 0.1).value
    there = kernax.recursive_feature_machine(LAPLACE, X + DTYPE(far), y, 0.1).value
    np.testing.assert_allclose(there.values(X + DTYPE(far)), here.values(X), atol=CLOSE)
    large = kernax.recursive_feature_machine(LAPLACE, X, y * DTYPE(2.0**100), 0.1).value
    np.testing.assert_allclose(large.values(X) / 2.0**100, here.values(X), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1, 1e-150 if X64 else 1e-15])
def test_a_removed_point_has_no_part(scale, data):
    X, y = data
    y = y * DTYPE(scale)
    weights = np.ones(40, DTYPE)
    weights[[3, 17]] = 0
    X_other = np.where(weights[:, None] > 0, X, 3.0).astype(DTYPE)
    # One target is unknown, and the square of the other overflows.
    y_other = y.copy()
    y_other[[3, 17]] = np.nan, 1e200 if X64 else 1e25
    kept = kernax.recursive_feature_machine(LAPLACE, X[weights > 0], y[weights > 0], 0.1)
    removed = kernax.recursive_feature_machine(LAPLACE, X_other, y_other, 0.1, weights=weights)
    assert int(removed.stats["round"]) == int(kept.stats["round"]) > 0
    np.testing.assert_allclose(
        removed.stats["leave_one_out"], kept.stats["leave_one_out"], rtol=CLOSE
    )
    np.testing.assert_allclose(removed.value.values(X), kept.value.values(X), atol=CLOSE * scale)
    assert np.all(removed.value.coefficients[weights == 0] == 0)


def test_bad_arguments_are_refused(data):
    X, y = data
    for rounds in (0, 2.0, True):
        with pytest.raises(ValueError, match="max_rounds must be a positive integer"):
            untyped(kernax.recursive_feature_machine)(LAPLACE, X, y, 0.1, max_rounds=rounds)
    with pytest.raises(ValueError, match="ridge"):
        kernax.recursive_feature_machine(LAPLACE, X, y, -0.1)
    words = kernax.strings.encode(["ab", "ba", "bb"])
    with pytest.raises(ValueError, match=r"X must be an array of shape \(n, d\), but is a Strings"):
        untyped(kernax.recursive_feature_machine)(kernax.Spectrum(1), words, y[:3], 0.1)
    with pytest.raises(ValueError, match=r"must have shape \(n, 1\); pass X\[:, None\]"):
        kernax.average_gradient_outer_product(jnp.sum, y)
    solution = kernax.kernel_ridge(LAPLACE, X, y, 0.1)
    with pytest.raises(ValueError, match=r"f must be a function of a point.*is a Solution: pass"):
        untyped(kernax.average_gradient_outer_product)(solution, X)


def test_outer_products_of_gradients_are_those_of_the_formula(data, rng):
    X, _ = data
    weights = rng.uniform(size=40).astype(DTYPE)
    B = rng.normal(size=(2, 3)).astype(DTYPE)
    outer = kernax.average_gradient_outer_product(lambda x: jnp.sin(B @ x), X, weights=weights)
    gradients = np.cos(X @ B.T)[:, :, None] * B[None]
    expected = np.einsum("i,ioj,iok->jk", weights / weights.sum(), gradients, gradients)
    np.testing.assert_allclose(outer, expected, atol=TOLERANCE["solve"])


def test_outer_products_of_an_expansion_are_those_of_its_gradients(data):
    X, y = data
    f = kernax.kernel_ridge(kernax.RBF(1.5), X, np.stack([y, y**2], 1), 0.1).value
    gradients = np.asarray(jax.vmap(jax.jacobian(f))(jnp.asarray(X[:9])))
    expected = np.einsum("ioj,iok->jk", gradients, gradients) / 9
    outer = kernax.average_gradient_outer_product(f, X[:9])
    np.testing.assert_allclose(outer, expected, rtol=1e-8 if X64 else 1e-3)


def test_the_root_of_a_matrix_has_derivatives_at_equal_and_at_zero_eigenvalues(rng):
    Q, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    Q = jnp.asarray(Q.astype(DTYPE))
    M = (Q * jnp.array([[4.0, 4.0, 1.0, 0.0]], DTYPE)) @ Q.T
    R = square_root(M)
    tolerance = 1e-7 if X64 else 3e-3
    np.testing.assert_allclose(R @ R, M, atol=tolerance)
    direction = (Q * jnp.array([[0.3, -0.2, 0.5, 0.0]], DTYPE)) @ Q.T
    # Along the eigenvectors sqrt(v + t) has the derivatives d / (2 sqrt(v)), -d^2 / (4 v^(3/2)).
    along = lambda t: square_root(M + t * direction)
    first = jax.jvp(along, (DTYPE(0),), (DTYPE(1),))[1]
    expected = (Q * jnp.array([[0.3 / 4, -0.2 / 4, 0.5 / 2, 0.0]], DTYPE)) @ Q.T
    np.testing.assert_allclose(first, expected, atol=tolerance)
    slope = lambda t: jax.jvp(along, (t,), (DTYPE(1),))[1]
    second = jax.jvp(slope, (DTYPE(0),), (DTYPE(1),))[1]
    expected = (Q * jnp.array([[-0.09 / 32, -0.04 / 32, -0.25 / 4, 0.0]], DTYPE)) @ Q.T
    np.testing.assert_allclose(second, expected, atol=tolerance)
    gradient = jax.grad(lambda M: jnp.sum(square_root(M) * direction))(M)
    assert np.all(np.isfinite(gradient))


def test_the_root_of_a_matrix_has_the_derivative_zero_beside_a_root_of_either_sign(rng):
    """The root zero is computed as a number within rounding of it, by which nothing is divided."""
    first = jax.jit(lambda M, direction: jax.jvp(square_root, (M,), (direction,))[1])
    values = np.array([4.0, 4.0, 1.0, 0.0])
    slopes = np.array([0.3, -0.2, 0.5, 0.0])
    for _ in range(20):
        Q, _ = np.linalg.qr(rng.normal(size=(4, 4)))
        M, direction = ((Q * numbers) @ Q.T for numbers in (values, slopes))
        expected = (Q * slopes / (2 * np.sqrt(np.where(values > 0, values, 1)))) @ Q.T
        np.testing.assert_allclose(
            first(M.astype(DTYPE), direction.astype(DTYPE)), expected, atol=1e-6 if X64 else 3e-3
        )


def test_a_metric_far_from_the_origin_keeps_the_digits_of_differences(rng):
    A = rng.normal(size=(2, 3)).astype(DTYPE)
    X = np.round(rng.normal(size=(20, 3)) * 256).astype(DTYPE) / 256
    k = kernax.kernels.Mahalanobis(kernax.RBF(1.0), A)
    near = kernax.gram(k, X)
    np.testing.assert_allclose(kernax.gram(k, X + DTYPE(1024)), near, atol=2e-6)
    difference = (X[:, None] - X[None]) @ A.T
    np.testing.assert_allclose(near, np.exp(-np.sum(difference**2, -1) / 2), atol=2e-6)


def test_a_laplace_kernel_of_the_p_norm_is_the_formula(rng):
    X = rng.normal(size=(6, 12)).astype(DTYPE)
    k = kernax.kernels.LpLaplace(np.linspace(1.0, 3.0, 12), 1.3, 0.7)
    difference = abs(X[:, None] - X[None]) / np.linspace(1.0, 3.0, 12)
    expected = np.exp(-(np.sum(difference**1.3, -1) ** 0.7))
    np.testing.assert_allclose(kernax.gram(k, X), expected, rtol=1e-12 if X64 else 1e-5)
    euclidean = kernax.kernels.LpLaplace(2.0, 2.0, 0.5)
    np.testing.assert_allclose(
        kernax.gram(euclidean, X), kernax.gram(kernax.Matern12(2.0), X), rtol=1e-12 if X64 else 1e-5
    )


@pytest.mark.slow
def test_gradients_of_rough_kernels_are_products_that_keep_the_digits_of_close_points(rng):
    X = rng.normal(size=(60, 12)) + 30
    X[30:] = X[:30] + 1e-3 * rng.normal(size=(30, 12))
    X[7] = X[6]
    X = X.astype(DTYPE)
    a = rng.normal(size=(60, 2)).astype(DTYPE)
    exact = X.astype(np.float64)
    difference = exact[:, None] - exact[None]
    r = np.linalg.norm(difference, axis=2)
    divisor = np.where(r > 0, r, 1)
    both = kernax.Matern12(2.0) + 2.0 * kernax.kernels.GammaExponential(3.0, 1.2)
    slopes = -np.exp(-r / 2) / 2 - 2 * 1.2 * (r / 3) ** 0.2 * np.exp(-((r / 3) ** 1.2)) / 3
    slopes = np.where(r > 0, slopes / divisor, 0)
    gradients = np.einsum("ij,jo,ijk->iok", slopes, a.astype(np.float64), difference)
    expected = np.einsum("ioj,iok->jk", gradients, gradients) / 60
    f = kernax.KernelExpansion(both, X, jnp.asarray(a), jnp.zeros(2, DTYPE))
    outer = kernax.average_gradient_outer_product(f, X)
    # Measured 4e-13 and 5e-5 of the largest entry: r is 3e-3, and points are 3 from their mean.
    np.testing.assert_allclose(outer, expected, atol=(1e-11 if X64 else 5e-4) * np.max(expected))
    in_products = with_slopes_by_products(both)
    np.testing.assert_array_equal(kernax.gram(in_products, X), kernax.gram(both, X))

    def program(kernel):
        pairs = lambda X: jax.vmap(lambda x: jax.vmap(lambda z: kernel(x, z))(X[:9]))(X)
        return str(jax.make_jaxpr(jax.grad(lambda X: jnp.sum(pairs(X) ** 2)))(X))

    assert "scan" in program(both)  # over the coordinates
    assert "scan" not in program(in_products)


def test_the_average_outer_product_of_a_module_is_compiled_once():
    traces = []

    class Scaled(eqx.Module):
        scale: jax.Array

        def __call__(self, x):
            traces.append(1)
            return self.scale * x[0] ** 2

    X = jnp.asarray([[1.0, 0.0], [2.0, 5.0]], DTYPE)
    for scale in (1.0, 2.0, 3.0):
        M = kernax.average_gradient_outer_product(Scaled(jnp.asarray(scale, DTYPE)), X)
        np.testing.assert_allclose(M, [[10 * scale**2, 0], [0, 0]], rtol=1e-6)
    assert len(traces) == 1
