"""Any convex loss, the LASSO and the perceptron: against other programs, brute force, and the
losses themselves.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from conftest import (
    DTYPE,
    TOLERANCE,
    X64,
    check_derivatives,
    marked,
    needs_x32,
    needs_x64,
    untyped,
)
from sklearn.linear_model import Lasso

import kernax
from kernax.core.losses.loss_functions import AbstractSmoothLoss, slopes_far_out
from kernax.errors import MaxStepsError

RBF = kernax.RBF(0.9)
FINE = kernax.solvers.SMO(rtol=1e-9)
SMOOTH = [
    kernax.losses.Squared(),
    kernax.losses.Huber(0.3),
    kernax.losses.Logistic(),
    kernax.losses.SquaredHinge(),
    kernax.losses.Poisson(),
]
KINKED = [
    kernax.losses.Absolute(),
    kernax.losses.Pinball(0.3),
    kernax.losses.Hinge(),
    kernax.losses.EpsilonInsensitive(0.2),
]
name = lambda loss: type(loss).__name__
fine = lambda loss: None if isinstance(loss, AbstractSmoothLoss) else FINE


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)).astype(DTYPE)
    return (
        X,
        (np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=40)).astype(DTYPE),
        rng.uniform(0.5, 2, 40).astype(DTYPE),
    )


def targets(loss, y):
    if isinstance(loss, (kernax.losses.Logistic, kernax.losses.SquaredHinge, kernax.losses.Hinge)):
        return np.sign(y)
    return np.round(np.exp(y)) if isinstance(loss, kernax.losses.Poisson) else y


@pytest.mark.parametrize("loss", SMOOTH + KINKED, ids=name)
def test_a_loss_is_convex_and_its_derivatives_are_its_own(loss):
    f = jnp.linspace(-3.05, 2.95, 121).astype(DTYPE)
    for y in (1.0, -1.0) if not isinstance(loss, kernax.losses.Poisson) else (0.0, 3.0):
        y = jnp.full_like(f, y)
        values = loss(y, f)
        assert jnp.all(values >= 0)
        assert jnp.all(values[:-2] + values[2:] >= 2 * values[1:-1] - 1e-4)
        slope = jax.vmap(jax.grad(lambda f, y: loss(y, f)))
        np.testing.assert_allclose(loss.derivative(y, f), slope(f, y), atol=TOLERANCE["value"])
        if isinstance(loss, AbstractSmoothLoss):
            second = jax.vmap(jax.grad(lambda f, y: loss.derivative(y, f)))
            np.testing.assert_allclose(
                loss.curvature(y, f), second(f, y), rtol=TOLERANCE["solve"], atol=1e-6
            )
        else:  # the box is the dual: c L = max of b (t - f) - epsilon |b|, at an end or at zero
            t, low, high, epsilon = loss.box(y, jnp.full_like(f, 1.7))
            best = jnp.max(
                jnp.stack(
                    [b * (t - f) - epsilon * abs(b) for b in (low * jnp.ones_like(f), 0 * f, high)]
                ),
                0,
            )
            np.testing.assert_allclose(best, 1.7 * values, atol=10 * TOLERANCE["value"])


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("bias", [pytest.param(False, marks=pytest.mark.nightly), True])
@pytest.mark.parametrize(
    "loss",
    [
        kernax.losses.Huber(0.3),
        kernax.losses.SquaredHinge(),
        kernax.losses.Poisson(),
        kernax.losses.Pinball(0.3),
    ],
    ids=name,
)
def test_the_fit_is_the_minimum_that_scipy_finds(data, loss, bias):
    """A smooth loss by BFGS; a kinked one as a quadratic programme, slacks and all, by SLSQP."""
    X, y, weights = data
    X, y, weights = X[:25], targets(loss, y[:25]), weights[:25]
    K = np.asarray(kernax.gram(RBF, X))
    solution = kernax.regularised_risk(
        RBF, X, y, 0.3, loss=loss, weights=weights, bias=bias, solver=fine(loss)
    )

    def objective(x, smooth=0.0):
        Ka = K @ x[:25]
        return (
            jnp.sum(weights * loss(jnp.asarray(y), Ka + (x[25] if bias else 0.0)))
            + 0.15 * x[:25] @ Ka
        )

    ours = objective(np.append(solution.value.coefficients, solution.value.bias))
    if isinstance(loss, AbstractSmoothLoss):
        both = jax.jit(jax.value_and_grad(objective))
        theirs = scipy.optimize.minimize(
            both, np.zeros(26), jac=True, method="BFGS", options={"gtol": 1e-9}
        ).fun
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)
        np.testing.assert_allclose(solution.stats["objective"], ours, rtol=1e-10)
    else:
        # The dual is written for the objective over the ridge.
        scaled = solution.stats["primal"] * 0.3
        np.testing.assert_allclose(ours, scaled, rtol=1e-9)
        np.testing.assert_allclose(
            ours, least_pinball_risk(K, y, weights, 0.3, 0.3, bias), rtol=1e-7
        )


def least_pinball_risk(K, y, weights, tau, ridge, bias):
    """By SLSQP in x = (a, b, s): `y - f = r - s` with r, s >= 0, of which the loss is `tau r + (1 -
    tau) s`.
    """
    n = len(y)
    of_f = np.hstack([K, np.full((n, 1), float(bias)), np.zeros((n, n))])
    of_s = np.hstack([np.zeros((n, n + 1)), np.eye(n)])
    of_r = of_s - of_f  # and y, which is constant
    slope = tau * weights @ of_r + (1 - tau) * weights @ of_s

    def risk(x):
        Ka = K @ x[:n]
        return slope @ x + tau * weights @ y + ridge / 2 * x[:n] @ Ka, slope + ridge * np.append(
            Ka, np.zeros(n + 1)
        )

    constraints = {"type": "ineq", "fun": lambda x: of_r @ x + y, "jac": lambda _: of_r}
    bounds = [(None, None)] * (n + 1) + [(0, None)] * n
    start = np.append(np.zeros(n + 1), np.maximum(-y, 0))
    options = {"ftol": 1e-13, "maxiter": 500}
    return scipy.optimize.minimize(
        risk,
        start,
        jac=True,
        method="SLSQP",
        bounds=bounds,
        constraints=constraints,
        options=options,
    ).fun


@pytest.mark.parametrize(
    "bias", [pytest.param(bias, marks=[pytest.mark.slow] * X64) for bias in (False, True)]
)
def test_smooth_fits_scale_with_their_targets(data, bias):
    """From 1e-30 to 1e30, where squares leave the range of float32: zeros called a success, and
    infinite risks, once.
    """
    X, y, weights = data

    def coefficients(c, delta):
        squared = kernax.regularised_risk(
            RBF,
            X,
            c * y,
            0.3,
            loss=kernax.losses.Squared(),
            weights=weights,
            bias=bias,
            throw=False,
        )
        huber = kernax.regularised_risk(
            RBF,
            X,
            c * y,
            0.3,
            loss=kernax.losses.Huber(delta),
            weights=weights,
            bias=bias,
            throw=False,
        )
        return [
            (fit.value.coefficients / c, fit.value.bias / c, fit.result) for fit in (squared, huber)
        ]

    fits = jax.jit(coefficients)
    expected = fits(jnp.ones((), DTYPE), jnp.full((), 0.3, DTYPE))
    for c in (1e-30, 1e-21, 1e20, 1e30) if not X64 else (1e-200, 1e-155, 1e-30, 1e160):
        for (a, b, result), (a_one, b_one, _) in zip(
            fits(jnp.full((), c, DTYPE), jnp.full((), 0.3 * c, DTYPE)), expected
        ):
            assert result == kernax.RESULTS.successful
            np.testing.assert_allclose(a, a_one, atol=TOLERANCE["solve"])
            np.testing.assert_allclose(b, b_one, atol=TOLERANCE["solve"])


@needs_x32
@pytest.mark.parametrize("scale", [1e17, 1e28])
def test_the_objective_of_hubers_loss_is_right_where_squares_are_no_floats(data, scale):
    X, y, weights = data
    y = (scale * y).astype(np.float32)
    fit = kernax.regularised_risk(RBF, X, y, 0.3, loss=kernax.losses.Huber(0.3), weights=weights)
    K = np.asarray(kernax.gram(RBF, X), float)
    a = np.asarray(fit.value.coefficients, float)
    r = np.abs(y.astype(float) - K @ a)
    losses = np.where(r < 0.3, r**2 / 2, 0.3 * (r - 0.15))
    np.testing.assert_allclose(fit.stats["objective"], weights @ losses + 0.15 * a @ K @ a, 1e-5)


@needs_x32
def test_an_objective_beyond_the_largest_float_is_inf_where_coefficients_are_right(data):
    X, y, weights = data
    loss = kernax.losses.Squared()
    of_one = kernax.regularised_risk(RBF, X, y, 0.3, loss=loss, weights=weights)
    far = kernax.regularised_risk(RBF, X, 1e20 * y, 0.3, loss=loss, weights=weights)
    assert far.result == kernax.RESULTS.successful
    assert jnp.isposinf(far.stats["objective"])
    np.testing.assert_allclose(
        far.value.coefficients / 1e20, of_one.value.coefficients, atol=TOLERANCE["solve"]
    )


@pytest.mark.slow
@needs_x64
def test_squares_are_ridge(data):
    X, y, weights = data
    ours = kernax.regularised_risk(
        RBF, X, y, 0.3, loss=kernax.losses.Squared(), weights=weights, bias=True
    )
    np.testing.assert_allclose(
        ours.value.coefficients,
        kernax.kernel_ridge(RBF, X, y, 0.3, weights=weights, bias=True).value.coefficients,
        atol=1e-10,
    )


@pytest.mark.slow  # the quick tier has the hinge with weights in test_logistic
@needs_x64
def test_hinges_are_machines(data):
    X, y, _ = data
    label = np.sign(y)
    ours = kernax.regularised_risk(
        RBF, X, label, 0.5, loss=kernax.losses.Hinge(), bias=True, solver=FINE
    )
    machine = kernax.svm(RBF, X, label, 2.0, solver=FINE)
    np.testing.assert_allclose(ours.value.coefficients, machine.value.coefficients, atol=1e-6)


@needs_x64
def test_a_quantile_has_its_share_of_points_below(data):
    X, y = data[0][:25], data[1][:25]  # of the test before the last, and its program
    f = kernax.regularised_risk(
        RBF, X, y, 0.3, loss=kernax.losses.Pinball(0.3), bias=True, solver=FINE
    ).value
    below = np.asarray(jax.vmap(f)(X)) - y
    assert np.sum(below > 1e-5) <= 0.3 * 25 <= np.sum(below > -1e-5)


@pytest.mark.nightly
@needs_x64
def test_gradients_at_the_default_tolerance_are_those_at_a_fine_one(data):
    """Of numbers in a tube, and of the LASSO."""
    X, y, _ = data
    P = np.random.default_rng(1).normal(size=(40, 7))
    b = P[:, 0] - 2 * P[:, 3]

    def value(at, solver):
        f = kernax.regularised_risk(
            kernax.RBF(at),
            X,
            y,
            0.3,
            loss=kernax.losses.EpsilonInsensitive(0.2),
            solver=solver,
            throw=False,
        ).value
        return (
            jnp.sum(jnp.sin(jax.vmap(f)(X[:5] + 0.1)))
            + kernax.lasso(P, b, 20 * at, solver=solver, throw=False).value[0][3]
        )

    default, fine = (
        jax.jit(jax.grad(lambda at, solver=solver: value(at, solver)))(0.9)
        for solver in (None, kernax.solvers.SMO(1e-12))
    )
    np.testing.assert_allclose(default, fine, rtol=2e-5)


@needs_x64
def test_bad_risks_are_refused_by_name(data):
    X, y, _ = data
    with pytest.raises(ValueError, match="y must hold counts >= 0 for Poisson"):
        kernax.regularised_risk(RBF, X, y, 0.1, loss=kernax.losses.Poisson())
    with pytest.raises(ValueError, match=r"Huber.delta must be in \(0, inf\)"):
        kernax.losses.Huber(-1.0)
    with pytest.raises(ValueError, match=r"Pinball.tau must be in \(0, 1\)"):
        kernax.losses.Pinball(1.5)
    for kind in (kernax.losses.Huber, kernax.losses.Pinball, kernax.losses.EpsilonInsensitive):
        with pytest.raises(ValueError, match=r"one number, but has the shape \(2,\): fit several"):
            untyped(kind)(np.array([0.1, 0.9]))
    with pytest.raises(ValueError, match=r"y must hold -1 and \+1"):
        kernax.regularised_risk(RBF, X, y, 0.1, loss=kernax.losses.SquaredHinge())
    with pytest.raises(ValueError, match=r"ridge must be in \(0, inf\), but is 0"):
        kernax.regularised_risk(RBF, X, np.sign(y), 0.0, loss=kernax.losses.Hinge())


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "bias", marked(pytest.mark.nightly, [False, pytest.param(True, marks=pytest.mark.slow)], "True")
)
def test_the_lasso_is_scikit_learns(bias):
    """With alpha = penalty / 2n; zero above the largest useful penalty; a KKT residual of zero; its
    derivative.
    """
    rng = np.random.default_rng(1)
    P = rng.normal(size=(40, 7))
    y = P[:, 0] - 2 * P[:, 3] + 0.1 * rng.normal(size=40) + 3 * bias

    def third(penalty):
        fit = kernax.lasso(
            P, y, penalty, bias=bias, solver=kernax.solvers.SMO(rtol=1e-12), throw=False
        ).value
        return fit[0][3], fit

    sloped = jax.jit(jax.value_and_grad(third, has_aux=True))
    fit = lambda penalty: sloped(penalty)[0][1]
    for penalty in (1.0, 20.0):
        (c, b), theirs = (
            fit(penalty),
            Lasso(alpha=penalty / 80, fit_intercept=bias, tol=1e-12).fit(P, y),
        )
        np.testing.assert_allclose(c, theirs.coef_, atol=1e-8)
        np.testing.assert_allclose(b, theirs.intercept_, atol=1e-8)
        np.testing.assert_array_equal(np.asarray(c) == 0, theirs.coef_ == 0)
    Q, z = P - P.mean(0) * bias, y - y.mean() * bias
    largest = 2 * abs(Q.T @ z).max()
    assert jnp.all(fit(1.0001 * largest)[0] == 0)
    assert jnp.sum(fit(0.99 * largest)[0] != 0) == 1
    difference = (fit(20.0 + 1e-3)[0][3] - fit(20.0 - 1e-3)[0][3]) / 2e-3
    np.testing.assert_allclose(sloped(20.0)[1], difference, rtol=1e-6)


@needs_x64
@pytest.mark.parametrize("averaged", [False, True])
def test_derivatives_of_the_kernel_perceptron_hold_its_mistakes_fixed(averaged, data):
    """The one in the rate raised an error of JAX in reverse mode, and was said to be zero."""
    X, y, *_ = data

    def values(rate, threshold, lengthscale):
        fit = kernax.kernel_perceptron(
            kernax.RBF(lengthscale),
            X,
            jnp.sign(y),
            rate=rate,
            threshold=threshold,
            averaged=averaged,
            max_epochs=3,
            throw=False,
        )
        return fit.value.values(X[:5])

    check_derivatives(values, (1.1, 0.05, 0.8), rtol=1e-6, atol=1e-7)


@pytest.mark.slow
@needs_x64
def test_the_kernel_perceptron_is_the_primal_one_step_by_step(data):
    """On explicit features, thresholds and rates included; the bound of Novikoff; what no line
    separates hits the cap.
    """
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.5, 1.5, size=(60, 2))
    X = X[abs((X**2).sum(1) - 1) > 0.15].astype(DTYPE)
    y = np.where((X**2).sum(1) <= 1, 1.0, -1.0)
    quadratic = kernax.Polynomial(degree=2, offset=1.0)
    features = np.c_[
        X**2, np.sqrt(2) * X[:, :1] * X[:, 1:], np.sqrt(2) * X, np.ones(len(X))
    ].astype(float)
    for rate, threshold in ((1.0, 0.0), (0.5, 0.2)):
        solution = kernax.kernel_perceptron(
            quadratic, X, y, rate=rate, threshold=threshold, max_epochs=1000
        )
        w, mistakes = np.zeros(6), -1
        total = 0
        while mistakes:
            mistakes = 0
            for phi, label in zip(features, y):
                if label * (w @ phi - threshold) <= 0:
                    w, mistakes = w + rate * label * phi, mistakes + 1
            total += mistakes
        assert solution.stats["mistakes"] == total
        np.testing.assert_allclose(
            jax.vmap(solution.value)(X), features @ w - threshold, atol=1e-9 if X64 else 1e-3
        )
    hard = kernax.svm(quadratic, X, y, jnp.inf, bias=False, throw=False).value
    first = kernax.kernel_perceptron(quadratic, X, y, max_epochs=1000)
    assert (
        int(first.stats["mistakes"])
        <= 1.01 * features.dot(features.T).diagonal().max() * hard.norm**2
    )
    with pytest.raises(MaxStepsError, match="may not separate"):
        kernax.kernel_perceptron(kernax.Linear(), X, y, max_epochs=20)


def test_the_averaged_perceptron_is_the_mean_of_the_functions_after_every_step(data):
    """And not the last one, from which it is far on points that no line separates."""
    X, y, _ = data
    y = np.sign(y)
    w, total = np.zeros(2), np.zeros(2)
    for x, label in [*zip(X.astype(float), y)] * 3:
        w = w + label * x * (label * (w @ x - 0.1) <= 0)
        total += w
    fit = kernax.kernel_perceptron(
        kernax.Linear(), X, y, threshold=0.1, max_epochs=3, averaged=True, throw=False
    )
    assert fit.result == kernax.RESULTS.max_steps_reached
    mean = X @ total / (3 * len(y)) - 0.1
    np.testing.assert_allclose(jax.vmap(fit.value)(X), mean, atol=TOLERANCE["solve"])
    assert np.max(abs(mean - (X @ w - 0.1))) > 0.1


@needs_x64
def test_numbers_far_from_zero_are_reached_though_hubers_loss_has_no_curvature_there(data):
    """From f = 0 every residual is beyond delta, and no Newton step could move the bias."""
    X, y, _ = data
    far, near = (
        kernax.regularised_risk(RBF, X, y + offset, 1.0, loss=kernax.losses.Huber(0.3), bias=True)
        for offset in (100, 0)
    )
    assert far.stats["residual"] < (1e-9 if X64 else 1e-3)
    np.testing.assert_allclose(
        far.stats["objective"], near.stats["objective"], rtol=1e-6 if X64 else 1e-3
    )


@needs_x64
def test_a_perceptron_of_nan_says_so(data):
    X, y, _ = data
    broken = kernax.Custom(lambda _, x, z: jnp.sum(x * z) * jnp.nan)
    with pytest.raises(kernax.errors.NonFiniteError):
        kernax.kernel_perceptron(broken, X, np.sign(y))


def test_a_threshold_that_is_no_number_is_no_success_while_tracing():
    """Next to NaN no value is a mistake: one pass would end with f = 0, and with success."""
    X = np.eye(2, dtype=DTYPE)
    y = np.array([1, -1], DTYPE)

    @jax.jit
    def result(threshold):
        fit = kernax.kernel_perceptron(kernax.RBF(), X, y, threshold=threshold, throw=False)
        return fit.result

    assert result(np.inf) == kernax.RESULTS.nonfinite


@needs_x64
def test_options_of_the_other_kind_of_loss_are_refused(data):
    X, y = data[:2]
    with pytest.raises(
        ValueError, match="solver is not used for a smooth loss such as Huber: leave it out"
    ):
        kernax.regularised_risk(
            kernax.RBF(), X, y, 1.0, loss=kernax.losses.Huber(), solver=kernax.solvers.SMO()
        )
    with pytest.raises(
        ValueError, match="rtol is not used for a piecewise linear loss such as Pinball"
    ):
        kernax.regularised_risk(kernax.RBF(), X, y, 1.0, loss=kernax.losses.Pinball(0.5), rtol=1e-3)
    for fit in (
        lambda solver: untyped(kernax.regularised_risk)(
            kernax.RBF(), X, y, 1.0, loss=kernax.losses.Pinball(0.5), solver=solver
        ),
        lambda solver: untyped(kernax.lasso)(np.asarray(X), y, 1.0, solver=solver),
    ):
        with pytest.raises(
            ValueError,
            match=r"kernax\.solvers\.SMO\(\) or ProjectedGradient\(\), but is the class",
        ):
            fit(kernax.solvers.SMO)


class Exponential(AbstractSmoothLoss):
    """`exp(-y f)`, that of boosting: a user's own, which falls for ever."""

    targets = "signs"

    def __call__(self, y, f):
        return jnp.exp(-y * f)

    def derivative(self, y, f):
        return -y * jnp.exp(-y * f)

    def curvature(self, y, f):
        return jnp.exp(-y * f)

    def response(self, f):
        return jnp.sign(f)


SIGNS = [-1.0, 1.0]
FALLING = {
    "signs": (kernax.losses.Logistic(), SIGNS),
    "counts": (kernax.losses.Poisson(), [0.0, 3.0]),
    "own": (Exponential(), SIGNS),
}


@pytest.mark.parametrize("name", FALLING)
@pytest.mark.parametrize("max_steps", [100, 2000])
def test_without_a_ridge_a_loss_that_falls_for_ever_has_no_solution(name, max_steps):
    """After a hundred steps in float32, seven hundred in float64, its derivative underflows to
    zero: no gradient was left.
    """
    loss, y = FALLING[name]
    points = jnp.asarray([[-1.0], [1.0]], DTYPE)
    fit = lambda ridge: kernax.regularised_risk(
        RBF, points, np.array(y), ridge, loss=loss, max_steps=max_steps, throw=False
    )
    assert fit(0.0).result == kernax.RESULTS.diverged
    assert fit(0.1).result == kernax.RESULTS.successful


@pytest.mark.parametrize(
    "loss",
    [
        kernax.losses.Squared(),
        kernax.losses.Huber(0.5),
        kernax.losses.SquaredHinge(),
        kernax.losses.Poisson(),
    ],
    ids=name,
)
def test_a_loss_that_has_a_minimum_is_seen_to_have_one(loss):
    y = jnp.asarray(
        {"numbers": [-3.0, 1e6], "signs": [-1.0, 1.0], "counts": [1.0, 1e6]}[loss.targets], DTYPE
    )
    down, up = slopes_far_out(loss, y)
    assert jnp.all(down <= 0)
    assert jnp.all(up >= 0)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("several", [False, True])
def test_a_matrix_that_is_not_finite_is_seen_where_the_fit_ends_at_its_start(several):
    """The gradient is zero there, so that nothing is ever multiplied by K."""
    broken = kernax.Custom(lambda _, x, z: jnp.where(jnp.all(x == z), 1.0, jnp.nan), None)
    X = jnp.arange(4.0)[:, None]
    if several:
        Y = jnp.eye(2)[jnp.array([0, 1, 0, 1])]
        solution = kernax.kernel_softmax(broken, X, Y, 1.0, rtol=2.0, throw=False)
    else:
        solution = kernax.regularised_risk(
            broken, X, np.full(4, 3.0), 0.1, loss=kernax.losses.Squared(), bias=True, throw=False
        )
    assert solution.result == kernax.RESULTS.nonfinite
    assert jnp.all(jnp.isnan(solution.value.coefficients))


@pytest.mark.slow
def test_counts_of_zero_alone_leave_nothing_to_hold_the_bias(data):
    """It fell until its exponential underflowed, 88 steps later, and that was a success."""
    X = data[0]
    fit = lambda y, bias: (
        kernax.regularised_risk(
            RBF, X, y, 0.3, loss=kernax.losses.Poisson(), bias=bias, throw=False
        ).result
    )
    one = np.zeros(len(X)) + (np.arange(len(X)) == 3)
    assert fit(np.zeros(len(X)), True) == kernax.RESULTS.diverged
    assert fit(np.zeros(len(X)), False) == kernax.RESULTS.successful
    assert fit(one, True) == kernax.RESULTS.successful


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "fit",
    [
        lambda X, y, bad: kernax.regularised_risk(
            RBF, X, y, 0.3, loss=kernax.losses.Huber(-bad), throw=False
        ),
        lambda X, y, bad: kernax.regularised_risk(
            RBF, X, y, 0.3, loss=kernax.losses.Pinball(1 + bad), throw=False
        ),
        lambda X, y, bad: kernax.regularised_risk(
            RBF, X, jnp.round(y) - bad, 1.0, loss=kernax.losses.Poisson(), throw=False
        ),
    ],
    ids=["delta", "tau", "counts"],
)
def test_what_is_refused_eagerly_is_no_success_while_tracing(data, fit):
    """Each of these was a success under jit, with finite values."""
    X, y = data[:2]
    with pytest.raises(ValueError, match="must"):
        fit(X, y, 1.0)
    solution = jax.jit(lambda bad: fit(X, y, bad))(1.0)
    assert solution.result == kernax.RESULTS.nonfinite
    assert jnp.all(jnp.isnan(solution.value.coefficients))
