"""Kernel logistic regression for two and several classes: SciPy's values, gradients, jit, vmap,
weights, traces, bad input.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
from conftest import DTYPE, TOLERANCE, X64, needs_x32, needs_x64, real_data

import kernax
from kernax.core.base.labels import signs
from kernax.core.losses.loss_functions import Logistic
from kernax.core.losses.softmax_mode import _SoftmaxRisk
from kernax.core.operators.operators import DenseGram
from kernax.errors import MaxStepsError

RBF = kernax.RBF(0.9)
CLOSE = {"atol": 1e-7 if X64 else 3e-3}


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)).astype(DTYPE)
    y = np.sign(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=40))
    kinds = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
    return X, y, np.asarray(kernax.one_hot(kinds)[0]), rng.integers(0, 3, size=40).astype(float)


def minimum(objective, size):
    """What SciPy finds of a value and a gradient in NumPy, to ten digits."""
    options = {"gtol": 1e-7, "maxiter": 10_000}
    return scipy.optimize.minimize(
        objective, np.zeros(size), jac=True, method="BFGS", options=options
    ).fun


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("bias", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_objective_is_the_minimum_that_scipy_finds(data, bias):
    X, y, Y, weights = data
    K = np.asarray(kernax.gram(RBF, X))
    L = np.linalg.cholesky(K + 1e-12 * np.eye(40))  # f = L u, of norm |u|: well conditioned

    def binary(x):
        margin = y * (L @ x[:40] + bias * x[40])
        slope = -weights * y * scipy.special.expit(-margin)
        value = np.sum(weights * np.logaddexp(0, -margin)) + 0.1 * x[:40] @ x[:40]
        return value, np.append(L.T @ slope + 0.2 * x[:40], bias * np.sum(slope))

    def several(x):
        u, b = x[:120].reshape(40, 3), x[120:]
        logs = scipy.special.log_softmax(L @ u + bias * b, axis=1)
        slope = weights[:, None] * (np.exp(logs) - Y)
        value = -np.sum(weights[:, None] * Y * logs) + 0.1 * np.sum(u**2)
        return value, np.append(L.T @ slope + 0.2 * u, bias * np.sum(slope, 0))

    expected = minimum(binary, 41), minimum(several, 123)
    ours = kernax.kernel_logistic(RBF, X, y, 0.2, weights=weights, bias=bias)
    np.testing.assert_allclose(ours.stats["objective"], expected[0], rtol=1e-9)
    assert ours.stats["steps"] < 15
    ours = kernax.kernel_softmax(RBF, X, Y, 0.2, weights=weights, bias=bias)
    np.testing.assert_allclose(ours.stats["objective"], expected[1], rtol=1e-9)


@pytest.mark.slow
@needs_x64
def test_two_classes_are_one_machine_with_half_the_ridge(data):
    X, y, _, _ = data
    two = kernax.kernel_softmax(RBF, X, kernax.one_hot(y)[0], 0.2)
    one = kernax.kernel_logistic(RBF, X, y, 0.1)
    difference = two.value.coefficients[:, 1] - two.value.coefficients[:, 0]
    np.testing.assert_allclose(difference, one.value.coefficients, **CLOSE)
    np.testing.assert_allclose(two.value.bias[1] - two.value.bias[0], one.value.bias, **CLOSE)


@pytest.mark.slow
def test_where_a_kernel_is_zero_the_biases_say_the_shares_of_the_classes():
    kernel = kernax.Precomputed(jnp.zeros((4, 4)))
    labels = jnp.asarray(np.eye(3)[[0, 0, 1, 2]], DTYPE)
    solution = kernax.kernel_softmax(kernel, jnp.arange(4), labels, 0.1)
    expected = np.log([1 / 2, 1 / 4, 1 / 4])
    np.testing.assert_allclose(solution.value.bias, expected - np.mean(expected), **CLOSE)


@pytest.mark.nightly
def test_derivatives_of_several_classes_are_right_where_their_sum_is_nearly_singular():
    """In float32 the slope of a lengthscale was 36 instead of 1.3, beside a successful fit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3)).astype(DTYPE)
    y = np.sign(X[:, 0] - X[:, 1]).astype(DTYPE)
    rows = np.arange(30).astype(DTYPE)

    def of_two(kernel):
        f = kernax.kernel_softmax(kernel, X, kernax.one_hot(y)[0], 1e-4, throw=False).value.values(
            X
        )
        return jnp.tanh((f[:, 1] - f[:, 0]) / 100) @ rows

    def of_one(kernel):
        return (
            jnp.tanh(
                kernax.kernel_logistic(kernel, X, y, 0.5e-4, throw=False).value.values(X) / 100
            )
            @ rows
        )

    slopes = [
        eqx.filter_jit(jax.grad(function))(kernax.RBF(3.0)).lengthscale
        for function in (of_two, of_one)
    ]
    assert np.all(np.isfinite(slopes))
    np.testing.assert_allclose(*slopes, rtol=1e-6 if X64 else 1e-3)


FAR = 1e150 if X64 else 1e20


@pytest.mark.nightly
def test_several_classes_have_the_same_function_and_slope_in_any_unit():
    """A residual measured by a square that overflows: no step was taken, and the slope lost its
    implicit part in silence.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2)).astype(DTYPE)
    Y = kernax.one_hot(np.arange(12) % 3)[0]
    rows = np.sin(np.arange(36)).reshape(12, 3).astype(DTYPE)
    ones = np.ones(12, DTYPE)

    @jax.jit
    @jax.value_and_grad
    def loss(scale, of_K, of_weights):
        kernel, ridge = of_K * kernax.RBF(scale), 0.2 * of_K * of_weights
        solution = kernax.kernel_softmax(
            kernel, X, Y, ridge, weights=of_weights * ones, throw=False
        )
        return jnp.sum(jnp.sin(solution.value.values(X)) * rows)

    one = loss(*jnp.ones(3, DTYPE))
    assert abs(one[1]) > 0.1
    for of_K, of_weights in ((FAR, 1.0), (1 / FAR, 1.0), (1.0, FAR), (1.0, 1 / FAR)):
        far = loss(*jnp.asarray([1.0, of_K, of_weights], DTYPE))
        np.testing.assert_allclose(
            far, one, rtol=1e-6 if X64 else 1e-3, err_msg=f"K {of_K:g}, weights {of_weights:g}"
        )


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(("ridge", "value"), [(1e-2, 3.344656286), (1e-8, 15.65162067)])
def test_separable_data_stay_finite_for_a_positive_ridge(ridge, value):
    """C01."""
    solution = kernax.kernel_logistic(
        kernax.RBF(np.sqrt(0.5)), [[-1.0], [1.0]], np.array([-1.0, 1.0]), ridge
    )
    np.testing.assert_allclose(solution.value(jnp.array([1.0])), value, rtol=1e-6)
    assert solution.stats["steps"] <= 60


def test_the_loss_saturates_without_overflow():
    """C03."""
    y, f = jnp.array([1.0, -1.0, 1.0, -1.0]), jnp.array([-1000.0, 1000.0, 1000.0, -1000.0])
    np.testing.assert_array_equal(Logistic()(y, f), [1000, 1000, 0, 0])
    np.testing.assert_array_equal(Logistic().derivative(y, f), [-1, 1, 0, 0])
    np.testing.assert_array_equal(
        jax.vmap(jax.grad(lambda f, y: Logistic()(y, f)))(f, y), [-1, 1, 0, 0]
    )
    np.testing.assert_array_equal(Logistic().curvature(y, f), 0)


@needs_x32
def test_points_far_from_the_boundary_have_weight_zero_and_do_no_harm():
    """C03: curvatures that underflow."""
    X = jnp.linspace(-1, 1, 12)[:, None].astype(DTYPE)
    solution = kernax.kernel_logistic(1e6 * kernax.Linear(), X, jnp.sign(X[:, 0]), 1e-3)
    assert jnp.all(jnp.isfinite(solution.value.coefficients))
    assert jnp.all(jax.vmap(solution.value)(X) * X[:, 0] > 0)


@needs_x64
def test_labels_of_any_kind_give_identical_decisions(data):
    """C04."""
    _, y, _, _ = data
    words = np.where(y > 0, "b", "a")
    for labels in (
        y,
        (y > 0).astype(int),
        y > 0,
        (y > 0).astype(int).astype(object),
        words,
        words.astype(object),
        np.array([*(y > 0)], object),
        words.astype(np.dtypes.StringDType()),
    ):
        encoded, classes = signs(labels)
        np.testing.assert_array_equal(encoded, y)
        assert not encoded.weak_type  # with which a function of one's own would compile again
        assert classes[0] < classes[1]
    Y, classes = kernax.one_hot(np.array([3, 1, 2, 1]))
    assert classes == (1, 2, 3)
    assert not Y.weak_type
    np.testing.assert_array_equal(Y, [[0, 0, 1], [1, 0, 0], [0, 1, 0], [1, 0, 0]])


@needs_x64
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.array([0.5, 1.3]), "labels must be classes, but hold fractions"),
        (np.array([1, 1]), "1 class: 1$"),
        (np.array([], int), "labels hold no class$"),
        (np.array(["a", "b", "c"]), "3 classes: 'a', 'b', 'c': one_hot takes any number"),
        (np.ones((2, 2)), r"labels must have shape \(n,\)"),
        (np.array([1, "a"], object), "labels must be all of one kind"),
        ([1, "a"], "labels must be all of one kind"),
    ],
)
def test_labels_that_are_not_two_classes_are_refused_by_name(labels, words):
    """C04."""
    with pytest.raises(ValueError, match=words):
        signs(labels)


@pytest.mark.slow
@needs_x64
def test_bad_input_is_refused_by_name(data):
    X, y, Y, _ = data
    with pytest.raises(ValueError, match=r"y must hold -1 and \+1, but holds 2 classes: 0.0, 1.0"):
        kernax.kernel_logistic(RBF, X, (y + 1) / 2, 0.1)
    with pytest.raises(ValueError, match="kernel_softmax takes several"):
        kernax.kernel_logistic(RBF, X, 2 * Y - 1, 0.1)
    with pytest.raises(ValueError, match="each row of Y must hold one 1"):
        kernax.kernel_softmax(RBF, X, Y + Y, 0.1)
    with pytest.raises(ValueError, match=r"Y must have shape \(40, classes\)"):
        kernax.kernel_softmax(RBF, X, y, 0.1)
    with pytest.raises(ValueError, match=r"ridge must be in \(0, inf\), but is 0"):
        kernax.kernel_softmax(RBF, X, Y, 0.0)
    assert (
        kernax.kernel_logistic(RBF, jnp.asarray(X).at[0].set(1e30), y, 0.1, throw=False).value
        is not None
    )


@pytest.mark.slow
@needs_x64
def test_ripley_is_classified_about_as_well_as_can_be():
    """The Bayes error is about 8 %."""
    data = real_data("ripley")
    y = 2.0 * data["y_train"].ravel() - 1
    f = kernax.kernel_logistic(kernax.RBF(0.4), data["X_train"], y, 0.1).value
    wrong = np.mean((np.asarray(jax.vmap(f)(data["X_test"])) > 0) != (data["y_test"].ravel() > 0))
    assert wrong <= 0.1


@needs_x32
def test_several_classes_take_few_steps_in_either_precision():
    """With `(r - D K r) / ridge`, which cancels, float32 took a hundred steps at ridge 0.01, and
    then gave up.
    """
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 2)).astype(DTYPE), np.eye(3, dtype=DTYPE)[rng.integers(0, 3, 60)]
    assert kernax.kernel_softmax(kernax.RBF(), X, Y, 0.01).stats["steps"] <= 10


@pytest.mark.slow
@needs_x64
def test_the_bias_of_a_class_without_points_is_refused(data):
    X = data[0]
    Y = np.eye(3)[np.arange(len(X)) % 2]
    with pytest.raises(
        ValueError, match="no point of positive weight in column 2, whose bias would be -inf"
    ):
        kernax.kernel_softmax(RBF, X, Y, 1.0)
    f = kernax.kernel_softmax(
        RBF, X, Y, 1.0, bias=False
    ).value  # finite: at least as unlikely as the others anywhere it can be
    assert np.all(np.isfinite(f.values(X)))


@pytest.mark.parametrize("ridge", [1e-6, 1e-3])
def test_contradictory_points_are_solved_and_not_called_stagnant(ridge):
    """Two coincident points of opposite labels: f is zero, the coefficients are their slopes there,
    1/2, over the ridge.
    """
    solution = kernax.kernel_logistic(kernax.RBF(), np.zeros((2, 1)), np.array([1.0, -1.0]), ridge)
    np.testing.assert_allclose(
        solution.value.coefficients, [0.5 / ridge, -0.5 / ridge], rtol=1e-10 if X64 else 1e-4
    )
    assert solution.stats["residual"] < (1e-14 if X64 else 1e-6)


@needs_x64
def test_a_cap_of_one_step_is_said_in_our_own_words(data):
    X, y = data[:2]
    with pytest.raises(MaxStepsError, match="max_steps") as error:
        kernax.kernel_logistic(RBF, X, y, 1e-3, max_steps=1)
    assert "linear solve" not in str(error.value)


@pytest.mark.slow
@needs_x32
def test_a_success_leaves_no_gradient_that_numpy_can_see(data):
    """Scales of K over thirty orders of magnitude in one batch: `ridge a = w y s(-y f)` to what
    rounding of f allows.
    """
    X, y, _, weights = data
    scales = np.logspace(-20, 10, 7)
    K = np.asarray(kernax.gram(RBF, X), float)
    fit = jax.jit(
        jax.vmap(
            lambda c: kernax.kernel_logistic(
                c * RBF, X, y, 1.0, weights=weights, bias=False, throw=False
            )
        )
    )
    solutions = fit(jnp.asarray(scales))
    assert jnp.all(solutions.result == kernax.RESULTS.successful)
    eps = np.finfo(DTYPE).eps
    for scale, a in zip(scales, np.asarray(solutions.value.coefficients, float)):
        margin = -y * (scale * K @ a)
        g = -weights * y * np.exp(-np.logaddexp(0, -margin))
        known = abs(g) * scale * np.sum(abs(a))  # what rounding of f may change, over eps
        assert np.max(abs(a + g)) <= 2 * eps**0.5 * np.max(abs(g)) + 16 * eps * np.max(known)


@pytest.mark.slow
@needs_x64
def test_coefficients_of_classes_are_balanced_before_they_are_judged(data):
    """Beside long double. Rounding is common to all classes after many steps: here it is 1e-6 of
    the coefficients, and a K of 1e13 makes values of it.
    """
    X, _, Y, weights = data
    K = 1e13 * np.asarray(kernax.gram(RBF, X))
    nothing = jnp.zeros_like(Y)
    ridge = jnp.ones(())
    risk = _SoftmaxRisk(
        DenseGram(jnp.asarray(K)), jnp.asarray(Y), nothing, ridge, jnp.asarray(weights), False
    )
    a = 1e-13 * np.random.default_rng(0).normal(size=Y.shape)
    a -= a.mean(1, keepdims=True)
    point = risk.at(jnp.append(jnp.asarray(a + 1e-19), nothing[:1], 0))
    balanced = np.asarray(point.x[:-1], np.longdouble)
    assert np.max(abs(balanced.sum(1))) <= 1e-15 * np.max(abs(balanced))
    f = K.astype(np.longdouble) @ balanced
    np.testing.assert_allclose(point.values, f, rtol=0, atol=1e-13 * np.max(abs(f)))
    left = balanced + weights[:, None] * (scipy.special.softmax(f, 1) - Y)
    np.testing.assert_allclose(risk.stationarity(point).left, [np.max(abs(left))], rtol=1e-12)


@pytest.mark.nightly
@needs_x64
def test_biases_of_classes_sum_to_zero_and_so_do_coefficients(data):
    X, _, Y, weights = data
    value = kernax.kernel_softmax(RBF, X, Y, 0.2, weights=weights).value
    largest = float(jnp.max(abs(value.coefficients)))
    np.testing.assert_allclose(jnp.sum(value.bias), 0, atol=TOLERANCE["value"])
    assert float(jnp.max(abs(value.bias))) > 0.1  # of which each is not zero
    np.testing.assert_allclose(
        jnp.sum(value.coefficients, 1), 0, atol=10 * TOLERANCE["value"] * largest
    )


# Near the least positive floats, and near the largest ones.
LEAST, LARGEST = (1e-300, 1e300) if X64 else (2e-38, 1e36)


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["logistic", "softmax", "Huber", "Poisson"])
def test_weights_near_the_ends_of_the_range_of_floats_are_weights_as_others_are(data, learner):
    """In units of the weights the ridge is that of weights of one; a far larger one leaves nothing
    but the bias, which is known in closed form.
    """
    X, y, Y, _ = data
    counts = np.arange(40.0).astype(DTYPE) % 5
    risk = kernax.regularised_risk
    fits = {
        "logistic": lambda ridge, **given: kernax.kernel_logistic(RBF, X, y, ridge, **given),
        "softmax": lambda ridge, **given: kernax.kernel_softmax(RBF, X, Y, ridge, **given),
        "Huber": lambda ridge, **given: risk(
            RBF, X, X[:, 1], ridge, loss=kernax.losses.Huber(0.3), bias=True, **given
        ),
        "Poisson": lambda ridge, **given: risk(
            RBF, X, counts, ridge, loss=kernax.losses.Poisson(), bias=True, **given
        ),
    }
    shares = np.log(np.mean(Y, 0))
    biases = {
        "logistic": np.log(np.sum(y > 0) / np.sum(y < 0)),
        "softmax": shares - np.mean(shares),
        "Poisson": np.log(np.mean(counts)),
    }
    fit = fits[learner]
    plain = fit(2.0, weights=np.ones(40))
    for weight in (LEAST, LARGEST):
        found = fit(2 * weight, weights=np.full(40, weight))
        np.testing.assert_allclose(found.value.values(X), plain.value.values(X), **CLOSE)
        objective = found.stats["objective"] / weight
        np.testing.assert_allclose(objective, plain.stats["objective"], rtol=1e-5)
    if learner in biases:
        flat = fit(1.0 if X64 else 1e-32, weights=np.full(40, LEAST)).value
        expected = np.broadcast_to(biases[learner], flat.values(X).shape)
        np.testing.assert_allclose(flat.values(X), expected, **CLOSE)


@pytest.mark.slow
@needs_x64
def test_a_class_without_weight_is_not_called_a_cap_when_it_is_traced(data):
    X, _, Y, _ = data
    weights = jnp.asarray(1 - Y[:, 0])
    traced = jax.jit(
        lambda weights: kernax.kernel_softmax(RBF, X, Y, 1.0, weights=weights, throw=False)
    )(weights)
    assert traced.result == kernax.RESULTS.nonfinite
    assert jnp.all(jnp.isnan(traced.value.coefficients))
