"""Kernel ridge regression and its leave-one-out residuals: value, gradient, jit, vmap, weights,
traces, bad input.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from conftest import (
    TOLERANCE,
    X64,
    assert_close,
    marked,
    needs_x32,
    needs_x64,
    real_data,
)
from sklearn.kernel_ridge import KernelRidge

import kernax
from kernax.errors import ConditionWarning, MaxStepsError

DTYPE = jnp.result_type(float)
RBF = kernax.RBF(1.3)
GAMMA = 1 / (2 * 1.3**2)
SOLVE = {"rtol": TOLERANCE["solve"], "atol": TOLERANCE["solve"]}


@pytest.fixture
def data(rng):
    X = rng.normal(size=(24, 3)).astype(DTYPE)
    y = (np.sin(X[:, 0]) + 0.1 * rng.normal(size=24)).astype(DTYPE)
    weights = rng.integers(0, 3, size=24).astype(DTYPE)
    weights[1] = 25
    return X, y, weights


def predictions(solution, X):
    return jax.vmap(solution.value)(jnp.asarray(X, DTYPE))


@pytest.mark.parametrize("block_size", [None, 7])
def test_the_fit_is_scikit_learns(block_size, data):
    X, y, weights = data
    for w in (None, weights):
        ours = kernax.kernel_ridge(RBF, X, y, 0.1, weights=w, block_size=block_size)
        theirs = KernelRidge(alpha=0.1, kernel="rbf", gamma=GAMMA).fit(X, y, sample_weight=w)
        np.testing.assert_allclose(predictions(ours, X), theirs.predict(X), **SOLVE)
        assert ours.stats["residual"] < (1e-9 if X64 else 1e-4)


@needs_x64
def test_the_fit_is_scikit_learns_to_ten_digits_on_real_data():
    concrete = real_data("concrete")
    X, y = concrete["X"][:400], concrete["y"][:400]
    X = (X - X.mean(0)) / X.std(0)
    ours = kernax.kernel_ridge(kernax.RBF(2.0), X, y, 0.1)
    theirs = KernelRidge(alpha=0.1, kernel="rbf", gamma=1 / 8).fit(X, y)
    np.testing.assert_allclose(predictions(ours, X), theirs.predict(X), rtol=1e-10)


@needs_x64
def test_primal_and_dual_agree_and_several_outputs_are_several_fits(data, rng):
    X, y, _ = data
    Y = np.stack([y, y**2], 1)
    dual = kernax.kernel_ridge(kernax.Linear(), X, Y, 0.3)
    W = np.linalg.solve(X.T @ X + 0.3 * np.eye(3), X.T @ Y)
    np.testing.assert_allclose(predictions(dual, X), X @ W, rtol=1e-9, atol=1e-10)
    assert dual.value.coefficients.shape == (24, 2)
    for j in range(2):
        single = kernax.kernel_ridge(kernax.Linear(), X, Y[:, j], 0.3)
        np.testing.assert_allclose(
            dual.value.coefficients[:, j], single.value.coefficients, atol=1e-10
        )
    column = kernax.kernel_ridge(RBF, X, y[:, None], 0.3)
    assert predictions(column, X).shape == (24, 1)


@pytest.mark.parametrize("weight", [1e-300, 1e300] if X64 else [1e-30, 1e30])
@pytest.mark.parametrize("fit", ["dense", "bias", "blocks", "features", "path", "process"])
def test_a_common_factor_of_weights_and_ridge_changes_nothing(data, fit, weight):
    """At 1e-300 entries of `S K S` below 2e-8 of the largest are zero, and so are entries of the
    vectors of conjugate gradients.
    """
    X, y, weights = data
    if fit == "blocks" and weight < 1:
        # With JAX 0.12 conjugate gradients have too few digits at 1e-290.
        margin = 1e10 if jax.__version_info__ < (0, 12) else 1e20
        weight *= margin if X64 else 1e4
    process = kernax.GaussianProcess(RBF)
    fits = {
        "dense": partial(kernax.kernel_ridge, RBF),
        "bias": partial(kernax.kernel_ridge, RBF, bias=True),
        "blocks": partial(kernax.kernel_ridge, RBF, block_size=7),
        "features": partial(kernax.kernel_ridge, kernax.Linear()),
        "path": lambda X, y, ridge, **given: kernax.selection.ridge_path(
            RBF, X, y, [ridge], **given
        ),
        "process": lambda *given, **weights: kernax.condition(process, *given, **weights),
    }

    def coefficients(unit):
        value = fits[fit](X, y, 0.1 * unit, weights=unit * weights).value
        return (value.mean if fit == "process" else value).coefficients

    expected = coefficients(1.0)
    tolerance = TOLERANCE["solve"] if weight > 1 else max(1e-6, TOLERANCE["solve"])
    np.testing.assert_allclose(
        coefficients(weight), expected, atol=tolerance * np.max(abs(expected)), rtol=0
    )


@pytest.mark.slow
@needs_x64
def test_derivatives_and_residuals_left_out_are_those_of_weights_of_one(data):
    X, y, weights = data

    @jax.jit
    def both(unit):
        fitted = lambda length: (
            kernax.kernel_ridge(kernax.RBF(length), X, y, 0.1 * unit, weights=unit * weights).value
        )
        slope = jax.jacfwd(lambda length: fitted(length).coefficients)(1.3)
        left_out = kernax.selection.leave_one_out_path(
            RBF, X, y, 0.1 * unit[None], weights=unit * weights
        )
        return slope, left_out

    expected = both(jnp.asarray(1.0))
    for weight in (1e-290, 1e290):
        found = both(jnp.asarray(weight))
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9), found, expected)


@needs_x64
def test_weights_have_the_value_of_the_reference():
    """R03."""
    X, kernel = np.array([[0.0], [1.0]]), kernax.RBF(np.sqrt(0.5))
    fit = kernax.kernel_ridge(
        kernel, X, np.array([1.0, 2.0]), 0.5, weights=np.array([2.0, 1.0])
    ).value
    np.testing.assert_allclose(fit(np.array([0.5])), 1.29662269, rtol=1e-8)


@needs_x64
def test_the_bias_is_unpenalised_and_equals_weighted_centring(data):
    X, y, weights = data
    fit = kernax.kernel_ridge(kernax.Linear(), X, y + 100, 0.3, bias=True, weights=weights).value
    np.testing.assert_allclose(jnp.sum(fit.coefficients), 0, atol=1e-10)
    mean = lambda A: np.average(A, axis=0, weights=weights)
    Xc, yc = X - mean(X), y - mean(y)
    slope = np.linalg.solve(Xc.T @ (weights[:, None] * Xc) + 0.3 * np.eye(3), Xc.T @ (weights * yc))
    np.testing.assert_allclose(jax.vmap(fit)(X), Xc @ slope + mean(y + 100), rtol=1e-10)


@needs_x64
def test_a_ridge_of_zero_interpolates_and_singular_interpolation_is_warned_about():
    """R01."""
    X, y = np.array([[0.0], [0.0], [1.0]]), np.array([0.0, 2.0, 5.0])
    kernel = kernax.RBF(np.sqrt(0.5))
    with pytest.warns(ConditionWarning):
        fit = kernax.kernel_ridge(kernel, X, y, 0.0)
    np.testing.assert_allclose(predictions(fit, X), [1, 1, 5], atol=1e-6)
    assert fit.stats["jitter"] > 0
    exact = kernax.kernel_ridge(kernel, X[1:], y[1:], 0.0)
    np.testing.assert_allclose(predictions(exact, X[1:]), y[1:], rtol=1e-12)
    assert exact.stats["jitter"] == 0
    with pytest.raises(ValueError, match=r"ridge must be in \[0, inf\)"):
        kernax.kernel_ridge(kernel, X, y, -1.0)


@pytest.mark.slow
@needs_x64
def test_blocks_change_no_fit_in_short_lengthscales(rng):
    """Catches matrix-free products whose diagonal is rounded: coefficients were off by a fifth,
    with a residual of 1e-16.
    """
    X, y = rng.normal(size=(20, 20)), rng.normal(size=20)

    def coefficients(lengthscale, block_size):
        return kernax.kernel_ridge(
            kernax.RBF(lengthscale), X, y, 1.0, block_size=block_size
        ).value.coefficients

    for lengthscale in (1e-7, 2.0):
        values = [coefficients(lengthscale, block_size) for block_size in (None, 5)]
        np.testing.assert_allclose(values[1], values[0], rtol=1e-9)


@needs_x64
@pytest.mark.parametrize("bias", [False, True])
def test_leave_one_out_is_what_refitting_without_each_point_gives(bias, data):
    X, y, weights = data
    Y = np.stack([y, y**2], 1)
    residuals = kernax.leave_one_out(RBF, X, Y, 0.2, weights=weights, bias=bias)
    fit = eqx.filter_jit(
        lambda w: kernax.kernel_ridge(RBF, X, Y, 0.2, weights=w, bias=bias, throw=False).value
    )
    for i in range(24):
        without = fit(jnp.asarray(weights).at[i].set(0))
        np.testing.assert_allclose(residuals[i], Y[i] - without(X[i]), rtol=1e-9, atol=1e-10)


def held_out(length, X, y, w):
    process = kernax.GaussianProcess(kernax.RBF(length))
    return kernax.leave_one_out_predictions(process, X, y, 0.2, weights=w)


LEFT_OUT = {
    "residuals": lambda length, *data: kernax.leave_one_out(
        kernax.RBF(length), *data[:2], 0.2, weights=data[2], bias=True
    ),
    "in features": lambda scale, *data: kernax.leave_one_out(
        scale * kernax.Linear(), *data[:2], 0.2, weights=data[2]
    ),
    "of a path": lambda length, *data: kernax.selection.leave_one_out_path(
        kernax.RBF(length), *data[:2], [0.2, 1.0], weights=data[2]
    ),
    "log densities": lambda *given: held_out(*given).log_density,
}


@needs_x64
@pytest.mark.parametrize("name", LEFT_OUT)
def test_unknown_targets_of_weight_zero_are_as_if_their_points_were_away(data, name):
    """Catches targets that are refused, or count, and a gradient of NaN."""
    X, y, weights = data
    kept = weights > 0
    missing = np.where(kept, y, np.nan)

    def loss(length, X, y, w):
        left = LEFT_OUT[name](length, X, y, w)
        known = jnp.isfinite(left)
        return jnp.sum(jnp.where(known, left, 0) ** 2), known

    learned = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)
    (expected, _), slopes = learned(1.3, X[kept], y[kept], weights[kept])
    for run in (learned, jax.jit(learned)):
        (value, known), found = run(1.3, X, missing, weights)
        np.testing.assert_array_equal(known.reshape(len(X), -1).all(1), kept)
        np.testing.assert_allclose(value, expected, rtol=1e-10)
        for ours, theirs in zip(found, slopes):
            mine = ours if ours.ndim == 0 else ours[kept]
            np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-10)
            assert np.all(np.isfinite(ours))


@needs_x64
def test_an_unknown_target_of_weight_zero_is_predicted(data):
    X, y, weights = data
    found = held_out(1.3, X, np.where(weights > 0, y, np.nan), weights)
    expected = held_out(1.3, X, y, weights)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-12)
    np.testing.assert_allclose(found.variance, expected.variance, atol=1e-12)


@needs_x64
def test_leave_one_out_with_a_bias_and_one_weighted_point():
    """The bias alone fits that point: others miss it by their difference in y. It is left out by
    nothing that is defined.
    """
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([3.0, 4.0, 6.0])
    residuals = kernax.leave_one_out(RBF, X, y, 0.2, weights=np.array([0.0, 0.3, 0.0]), bias=True)
    np.testing.assert_allclose(residuals, [-1, np.nan, 2], rtol=1e-12)


@needs_x64
@pytest.mark.parametrize(
    ("ridge", "digits"),
    [(0.0, "no digit"), (1e-14, "about 1 digits"), (1e-12, "about [34] digits")],
)
def test_leave_one_out_of_a_nearly_singular_system_says_how_many_digits_are_left(ridge, digits):
    """Residuals were 6 to 16 per cent wrong without ridge, in silence, and 6e-5 with one of
    1e-12.
    """
    x = np.linspace(0, 1, 20)[:, None]
    with pytest.warns(
        ConditionWarning, match=f"rounding leaves {digits} of the residuals.*leave_one_out"
    ):
        kernax.leave_one_out(kernax.RBF(0.2), x, np.sin(6 * x[:, 0]), ridge)
    kernax.leave_one_out(kernax.RBF(0.2), x, np.sin(6 * x[:, 0]), 1e-8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("block_size", [None, 8])
def test_a_fit_of_scaled_targets_is_the_scaled_fit(block_size, weighted, data):
    """Catches norms whose squares leave the range of floats: conjugate gradients gave zeros, and
    called that a success.
    """
    X, y, weights = data
    w = weights if weighted else None
    fit = lambda y: kernax.kernel_ridge(RBF, X, y, 0.2, weights=w, bias=True, block_size=block_size)
    plain = fit(y)
    for scale in (1e-300, 1e-155, 1e155, 1e300) if X64 else (1e-30, 1e-21, 1e20, 1e30):
        scaled = fit((scale * y.astype(float)).astype(DTYPE))
        assert scaled.stats["residual"] < (1e-9 if X64 else 1e-4)
        np.testing.assert_allclose(
            np.asarray(scaled.value.coefficients) / DTYPE.type(scale),
            plain.value.coefficients,
            **SOLVE,
        )
        np.testing.assert_allclose(
            np.asarray(scaled.value.bias) / DTYPE.type(scale), plain.value.bias, **SOLVE
        )


def test_the_bias_does_not_overflow_where_coefficients_hardly_fit():
    """Catches a sum of coefficients that is infinite and makes the bias zero, with success."""
    tiny = 2 * float(jnp.finfo(DTYPE).tiny)
    X, y = np.zeros((30, 1), DTYPE), np.linspace(0.1, 0.5, 30).astype(DTYPE)
    fit = kernax.kernel_ridge(kernax.Constant(0.0), X, y, tiny, bias=True)
    np.testing.assert_allclose(fit.value.bias, 0.3, rtol=1e-5)


@pytest.mark.slow
@needs_x32
def test_float64_data_without_64_bit_mode_warns_once_in_a_process():
    """P01."""
    import subprocess
    import sys

    program = """
import warnings, numpy as np, kernax
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    X = np.random.default_rng(0).normal(size=(3, 2))
    for _ in range(2):
        fit = kernax.kernel_ridge(kernax.RBF(), X, X[:, 0], 1.0)
    kernax.gram(kernax.RBF(), X)
assert fit.value.coefficients.dtype == "float32"
assert [w.category.__name__ for w in caught] == ["PrecisionWarning"], caught
assert "jax_enable_x64" in str(caught[0].message)
assert caught[0].filename == "<string>"  # this program's line, not one of ours
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@needs_x64
def test_a_failed_solve_is_a_status_or_an_exception_and_inside_jit_a_runtime_error(data):
    X, y, _ = data
    arguments = {"block_size": 8, "solver": kernax.solvers.ConjugateGradient(max_steps=2)}
    solution = kernax.kernel_ridge(RBF, X, y, 1e-3, **arguments, throw=False)
    assert solution.result == kernax.RESULTS.max_steps_reached
    assert jnp.all(jnp.isfinite(solution.value.coefficients))
    with pytest.raises(MaxStepsError, match=r"kernel_ridge with RBF.*residual"):
        kernax.kernel_ridge(RBF, X, y, 1e-3, **arguments)
    inside = jax.jit(lambda y: kernax.kernel_ridge(RBF, X, y, 1e-3, **arguments).value.coefficients)
    with pytest.raises(Exception, match="maximum number of solver steps"):
        jax.block_until_ready(inside(y))


@needs_x64
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"block_size": 4, "solver": kernax.solvers.JitteredCholesky()},
            "JitteredCholesky needs the whole matrix",
        ),
        ({"block_size": 4, "solver": lx.LU()}, "LU needs the whole matrix: leave out block_size"),
    ],
)
def test_bad_input_is_refused_by_name(change, words, data):
    X, y, _ = data
    arguments = {"kernel": RBF, "X": X, "y": y, "ridge": 1.0} | change
    with pytest.raises(ValueError, match=words):
        kernax.kernel_ridge(**arguments)


@needs_x64
def test_leave_one_out_refuses_a_bias_for_a_single_point():
    with pytest.raises(ValueError, match="at least two points"):
        kernax.leave_one_out(RBF, np.ones((1, 2)), np.ones(1), 1.0, bias=True)


@needs_x64
def test_a_bias_is_not_known_without_the_only_point_that_has_a_weight(data):
    X, y = data[:2]
    weights = np.zeros(len(X)).astype(X.dtype)
    weights[3] = 2.0
    residuals = np.asarray(
        kernax.leave_one_out(kernax.RBF(), X, y, 0.1, weights=weights, bias=True)
    )
    assert np.flatnonzero(np.isnan(residuals)).tolist() == [3]
    # The bias is its value.
    np.testing.assert_allclose(np.delete(residuals, 3), np.delete(y - y[3], 3), rtol=1e-4)


@pytest.mark.slow
@needs_x64
def test_a_success_with_a_bias_is_one_of_the_fit_and_not_of_the_two_columns_solved_for(rng):
    X = rng.normal(size=(16, 3)).astype(DTYPE)
    y = rng.normal(size=16).astype(DTYPE)
    kernel, solver = 300 * kernax.RBF(30.0), kernax.solvers.ConjugateGradient()

    def fit(ridge):
        return kernax.kernel_ridge(
            kernel, X, y, ridge, bias=True, solver=solver, block_size=5, throw=False
        )

    ridges = jnp.logspace(-4, -1, 20)
    solution = jax.jit(jax.vmap(fit))(ridges)
    K, a = (
        np.asarray(kernax.gram(kernel, X), np.longdouble),
        np.asarray(solution.value.coefficients, np.longdouble),
    )
    off = y - np.asarray(solution.value.bias)[:, None] - a @ K - np.asarray(ridges)[:, None] * a
    residual = np.linalg.norm(off.astype(float), axis=1) / np.linalg.norm(y)
    succeeded = np.asarray(solution.result == kernax.RESULTS.successful)
    assert succeeded.any()
    assert np.all(residual[succeeded] < 5 * solver.tolerance(DTYPE))
    np.testing.assert_allclose(
        solution.stats["residual"], residual, rtol=0.5, atol=solver.tolerance(DTYPE) / 4
    )


def test_a_residual_in_features_is_the_true_one_where_coefficients_cancel(rng):
    features = (rng.normal(size=(24, 5)) + 1e6).astype(DTYPE)
    y = rng.normal(size=24).astype(DTYPE)
    ridge = 1e-14 if X64 else 1.0
    solution = kernax.kernel_ridge(kernax.FeatureMap(lambda x: x), features, y, ridge, throw=False)
    F, a = features.astype(np.longdouble), np.asarray(solution.value.coefficients, np.longdouble)
    true = float(
        np.sqrt(np.sum((y - F @ (F.T @ a) - ridge * a) ** 2) / np.sum(y.astype(np.longdouble) ** 2))
    )
    np.testing.assert_allclose(solution.stats["residual"], true, rtol=0.1)


@pytest.mark.parametrize("units", [1e-200, 1e200] if X64 else [1e-25, 1e25])
def test_leave_one_out_depends_on_no_units_of_the_kernel_or_the_targets(units, data):
    X, y, weights = data
    with_bias = partial(kernax.leave_one_out, weights=weights, bias=True)
    expected = with_bias(RBF, X, y, 0.1)
    np.testing.assert_allclose(with_bias(units * RBF, X, y, 0.1 * units), expected, **SOLVE)
    small = 1e-100 if X64 else 1e-12
    np.testing.assert_allclose(
        with_bias(units * RBF, X, y * small, 0.1 * units) / small, expected, **SOLVE
    )


@needs_x64
@pytest.mark.slow
@pytest.mark.parametrize(
    "learner",
    marked(pytest.mark.nightly, ["ridge", "svm", "process"], "svm"),
)
def test_a_weight_of_zero_removes_a_point_whose_target_is_not_known(learner):
    X = jnp.linspace(0.0, 1.0, 12)[:, None]
    known = jnp.sin(5 * X[:, 0])
    kernel = kernax.RBF(0.3)

    def fit(X, y, weights):
        if learner == "ridge":
            return kernax.kernel_ridge(kernel, X, y, 0.1, weights=weights).value(X[0])
        if learner == "svm":
            signs = jnp.where(jnp.isnan(y), jnp.nan, jnp.sign(y + 1e-3))
            given = {"weights": weights, "solver": kernax.solvers.SMO(1e-9)}
            return kernax.svm(kernel, X, signs, 1.0, **given).value(X[0])
        return kernax.log_marginal_likelihood(kernel, X, y, 0.1, weights=weights)

    y = known.at[jnp.array([3, 7])].set(jnp.nan)
    kept = ~jnp.isnan(y)
    expected = fit(X[kept], known[kept], None)
    assert_close(fit(X, y, kept), expected, 1e-6)
    assert_close(jax.jit(fit)(X, y, kept.astype(X.dtype)), expected, 1e-6)
    if learner != "svm":
        gradient = jax.grad(lambda y: fit(X, y, kept))(y)
        assert_close(gradient[kept], jax.grad(lambda y: fit(X[kept], y, None))(known[kept]), 1e-5)
        assert jnp.all(gradient[~kept] == 0)


@needs_x64
def test_an_unknown_target_that_has_a_weight_is_refused():
    X = jnp.linspace(0.0, 1.0, 6)[:, None]
    y = jnp.zeros(6).at[2].set(jnp.nan)
    with pytest.raises(ValueError, match=r"first in row 2: weights=np.isfinite\(y\) removes"):
        kernax.kernel_ridge(kernax.RBF(), X, y, 0.1)
    with pytest.raises(ValueError, match="first in row 2: weights"):
        kernax.kernel_ridge(kernax.RBF(), X, y, 0.1, weights=jnp.arange(6.0))
    with pytest.raises(ValueError, match="first in row 2: weights"):
        kernax.leave_one_out(kernax.RBF(), X, y, 0.1)


@needs_x64
def test_generalised_cross_validation_of_weights_is_its_formula_with_their_sum():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(9, 2))
    y = rng.normal(size=9)
    w = rng.uniform(0.5, 3, 9)
    K = np.asarray(kernax.gram(kernax.RBF(1.0), X))
    H = K @ np.linalg.solve(w[:, None] * K + 0.3 * np.eye(9), np.diag(w))
    expected = w.sum() * (w @ (y - H @ y) ** 2) / (w.sum() - np.trace(H)) ** 2
    found = kernax.selection.generalised_cross_validation(kernax.RBF(1.0), X, y, 0.3, weights=w)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("scale", [1, 1e-150 if X64 else 1e-15])
def test_generalised_cross_validation_does_not_see_the_target_of_a_removed_point(scale, data):
    """Catches squares of the others that underflow in units of its target: the score was zero."""
    X, y, _ = data
    y = np.asarray(y * scale, DTYPE)
    weights = np.ones(len(y), DTYPE)
    weights[3] = 0
    other = np.where(weights > 0, y, 1e200 if X64 else 1e25).astype(DTYPE)
    score = partial(kernax.selection.generalised_cross_validation, RBF)
    expected = score(X[weights > 0], y[weights > 0], 0.1)
    assert expected > 0
    np.testing.assert_allclose(score(X, other, 0.1, weights=weights), expected, rtol=SOLVE["rtol"])


@pytest.mark.parametrize("bias", [False, True])
def test_leave_one_out_residuals_do_not_see_the_target_of_a_removed_point(bias, data):
    """Catches targets of the others that underflow in units of its target: they were zero."""
    X, y, _ = data
    y = np.asarray(1e-10 * y, DTYPE)
    weights = np.ones(len(y), DTYPE)
    weights[3] = 0
    kept = weights > 0
    huge = np.asarray(1e308 if X64 else 1e30, DTYPE)
    expected = kernax.leave_one_out(RBF, X[kept], y[kept], 0.1, bias=bias)
    scale = np.max(np.abs(expected))
    given = {"weights": weights, "bias": bias}
    y = np.where(kept, y, huge)
    one = kernax.leave_one_out(RBF, X, y, 0.1, **given)
    path = kernax.selection.leave_one_out_path(RBF, X, y, np.asarray([0.1, 1], DTYPE), **given)
    for found in (one, path[:, 0]):
        found = np.asarray(found)
        np.testing.assert_allclose(found[kept] / scale, expected / scale, atol=SOLVE["rtol"])
        assert found[3] == huge


@needs_x64
def test_the_stats_say_which_solver_ran_and_why(data):
    X, y = data[:2]
    features = kernax.FeatureMap(kernax.bases.PolynomialBasis(2))
    ran = lambda *args, **options: kernax.kernel_ridge(*args, **options).stats["solver"]
    assert str(ran(kernax.RBF(), X, y, 0.1)).startswith("JitteredCholesky: the default")
    assert "explicit features" in ran(features, X, y, 0.1).reason
    assert ran(kernax.RBF(), X, y, 0.1, block_size=8).name == "ConjugateGradient"
    named = ran(features, X, y, 0.1, solver=kernax.solvers.JitteredCholesky())
    assert str(named) == "JitteredCholesky: it was requested"
    # It is no array: compiled functions return it as it is.
    solution = jax.jit(lambda y: kernax.kernel_ridge(kernax.RBF(), X, y, 0.1))(y)
    assert solution.stats["solver"].name == "JitteredCholesky"
