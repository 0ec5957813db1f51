"""FALKON: risks over centres, in memory that does not grow with n m: values, gradients, jit, vmap,
weights, traces, bad input, precision.
"""

import sys
import warnings
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import (
    DTYPE,
    OPTIMISED,
    X64,
    assert_close,
    marked,
    matrix,
    needs_x32,
    needs_x64,
    untyped,
)

import kernax
import kernax.scale.centres.fit_of_chunks as of_chunks
import kernax.scale.centres.preconditioner as preconditioner
import kernax.scale.centres.problem as problem_module
import kernax.scale.centres.row_sums as rows_module
import kernax.scale.centres.streamed as streamed
from kernax.errors import ConditionWarning, MaxStepsError
from kernax.losses import Absolute, Huber, Logistic, Poisson, Squared, SquaredHinge
from kernax.scale.centres.bands import upper_bands, whole_of_bands
from kernax.scale.centres.span import OfCentres

RNG = np.random.default_rng(0)
N, M = 300, 12
X = RNG.normal(size=(N, 2)).astype(DTYPE)
Z = X[:M] + DTYPE(0.01)
Y = (np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=N)).astype(DTYPE)
WEIGHTS = RNG.integers(0, 3, N).astype(DTYPE)
KERNEL = 1.3 * kernax.RBF(1.2)
NEW = RNG.normal(size=(5, 2)).astype(DTYPE)
RIDGE = 0.1
# Of values, whose square is what the residual bounds: measured 4e-10 and 7e-5.
VALUES = 1e-7 if X64 else 1e-3
module = sys.modules["kernax.scale.centres.falkon"]  # behind the function of that name


def targets_of(loss):
    if loss.targets == "signs":
        return np.sign(Y)
    return np.round(np.exp(Y)).astype(DTYPE) if loss.targets == "counts" else Y


def by_numpy(y, weights=None, ridge=RIDGE):
    """Of squares, the values at new points, by dense matrices."""
    w = np.ones(N) if weights is None else np.asarray(weights, float)
    K = matrix(KERNEL, X, Z)
    within = matrix(KERNEL, Z)
    a = np.linalg.solve(K.T @ (w[:, None] * K) + ridge * within, K.T @ (w * y))
    return matrix(KERNEL, NEW, Z) @ a


def step_left(solution, ridge, loss, y, weights=None):
    """The length of Newton's step from a solution, in the norm of the Hessian, relative to that of
    the targets, or of the function where that is longer, by NumPy.

    K_mm has the jitter that the solution reports.
    """
    w = np.ones(N) if weights is None else np.asarray(weights, float)
    f = solution.value
    K = matrix(f.kernel, X, f.points)
    within = matrix(f.kernel, f.points)
    within = within + float(solution.stats["jitter"]) * np.eye(len(within))
    a = np.asarray(f.coefficients, float)
    y = np.asarray(y, float)
    values = K @ a
    at = lambda function, f: np.asarray(function(jnp.asarray(y), jnp.asarray(f)), float)
    h = at(loss.curvature, values)
    h_at_zero = at(loss.curvature, np.zeros(N))
    penalty = np.sqrt(ridge) * np.linalg.cholesky(within).T
    root = np.asarray(
        np.linalg.qr(np.concatenate([np.sqrt(w * h)[:, None] * K, penalty]), mode="r")
    )
    gradient = K.T @ (w * at(loss.derivative, values)) + ridge * within @ a
    mean = np.sum(w * h_at_zero) / np.sum(w)
    targets = np.sqrt(np.sum(w * at(loss.derivative, np.zeros(N)) ** 2) / mean)
    size = max(targets, np.linalg.norm(root @ a))
    return np.linalg.norm(np.linalg.solve(root.T, gradient)) / size


@pytest.fixture(params=["all rows", "a sample"])
def rows(request, monkeypatch):
    """Tiles of which the last is not full; the Hessian of all rows, or of few."""
    sample = 60 if request.param == "a sample" else None
    monkeypatch.setattr(module, "rows_of_tile", lambda m: 128)
    if sample or X64:
        monkeypatch.setattr(module, "size_of_sample", lambda *_: sample)
    return request.param


@pytest.mark.nightly
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_of_squares_it_is_the_solution_of_the_normal_equations(rows, weights):
    found = kernax.falkon(KERNEL, X, Y, RIDGE, Z, weights=weights)
    assert_close(found.value.values(NEW), by_numpy(Y, weights), VALUES)
    # The Hessian of all rows is exact in float64, but for one step more.
    assert found.stats["products"] <= (40 if rows == "a sample" else 2 if X64 else 20)


@pytest.mark.nightly
@needs_x64
def test_it_is_ridge_regression_with_nystroms_kernel():
    found = kernax.falkon(KERNEL, X, Y, RIDGE, Z)
    same = kernax.kernel_ridge(kernax.nystrom(KERNEL, X, Z), X, Y, RIDGE)
    assert_close(found.value.values(NEW), same.value.values(NEW), VALUES)


FEATURES = kernax.random_fourier_features(KERNEL, 8, 2, key=jax.random.key(0))


@pytest.mark.nightly
def test_without_centres_it_is_the_fit_in_all_features(rows):
    columns = np.stack([Y, np.cos(Y)], 1)
    found = kernax.falkon(FEATURES, X, columns, RIDGE, weights=WEIGHTS)
    same = kernax.kernel_ridge(FEATURES, X, columns, RIDGE, weights=WEIGHTS)
    assert_close(found.value.values(NEW), same.value.values(NEW), VALUES)
    assert_close(found.value(NEW[0]), found.value.values(NEW)[0])
    assert_close(found.value.norm, same.value.norm, VALUES)


@pytest.mark.nightly
def test_of_chunks_without_centres_it_is_the_same_fit():
    found = kernax.falkon(FEATURES, chunks_of(Y, WEIGHTS), None, RIDGE)
    same = kernax.falkon(FEATURES, X, Y, RIDGE, weights=WEIGHTS)
    assert_close(found.value.weights, same.value.weights, VALUES)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("rows", "loss"),
    [
        *(("all rows", loss) for loss in (Logistic(), Huber(0.3), SquaredHinge(), Poisson())),
        ("a sample", Huber(0.3)),  # whose curvature is zero at some rows
        ("a sample", Poisson()),  # whose curvature has no bound
    ],
    indirect=["rows"],
)
def test_of_other_losses_it_is_the_minimum(rows, loss):
    y = targets_of(loss)
    found = kernax.falkon(KERNEL, X, y, RIDGE, Z, loss=loss, weights=WEIGHTS)
    left = step_left(found, RIDGE, loss, y, WEIGHTS)
    assert left < (1e-8 if X64 else 1e-3)
    assert_is_residual(found, left)


# Of one that is computed with a Hessian of a sample, to a digit; and the rounding of f.
ROUNDING = 1e-12 if X64 else 1e-4


def assert_is_residual(found, left):
    """What is reported is what NumPy finds, from both sides."""
    reported = float(found.stats["residual"])
    assert reported / 2 - ROUNDING <= left <= 2 * reported + ROUNDING


HEAVY = np.where(np.arange(N) == 14, 1e6, 1.0).astype(DTYPE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "loss"),
    [("all rows", Logistic()), ("a sample", Squared())],
    indirect=["rows"],
)
def test_a_point_heavier_than_all_others_is_in_the_sample_and_in_the_residual(loss, rows):
    y = targets_of(loss)
    found = kernax.falkon(KERNEL, X, y, RIDGE, Z, loss=loss, weights=HEAVY)
    assert_is_residual(found, step_left(found, RIDGE, loss, y, HEAVY))


@pytest.mark.slow
def test_the_residual_is_that_of_the_hessian_and_not_of_a_sample_that_is_far_from_it(monkeypatch):
    """Catches success that is judged by the sample's norm, here of rows that say nothing.

    No other test has this tolerance, which is static: the program is its own.
    """
    monkeypatch.setattr(module, "size_of_sample", lambda *_: 60)
    few = lambda rows, size: rows.at(np.zeros(size, int), jnp.full(size, N / size, rows.y.dtype))
    monkeypatch.setattr(problem_module, "sampled", few)
    found = kernax.falkon(KERNEL, X, Y, RIDGE, Z, rtol=1e-2)
    left = step_left(found, RIDGE, Squared(), Y)
    assert left <= 1.2e-2
    assert_is_residual(found, left)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("loss", marked(pytest.mark.nightly, [Squared(), Logistic()], "Logistic"))
def test_the_residual_of_single_precision_is_that_of_the_coefficients_returned(loss):
    y = targets_of(loss)
    single = [array.astype(np.float32) for array in (X, y, Z)]
    found = kernax.falkon(KERNEL, single[0], single[1], 1e-3, single[2], loss=loss)
    left = step_left(found, 1e-3, loss, y)
    assert found.value.coefficients.dtype == np.float32
    assert left <= 2 * float(found.stats["residual"]) + 1e-4


@needs_x64
def test_a_hessian_is_made_of_all_rows_or_of_as_many_as_pay():
    size = preconditioner.size_of_sample
    double, single = jnp.dtype("float64"), jnp.dtype("float32")
    assert size(10**6, 4000, True, double) is None
    assert size(10**6, 300, False, double) is None
    assert size(10**6, 4001, True, double) == 24_993  # of two products
    assert size(10**6, 301, False, double) == 4816  # 16 a centre
    assert size(10**6, 300, True, single) == 4800
    assert size(50_000, 5000, True, single) == 20_000  # 4 a centre
    assert size(10_000, 100, True, single) == 4096
    assert size(4096, 100, True, single) == 4096
    assert size(300, 100, True, single) == 300


@pytest.mark.slow
@needs_x64
def test_a_sample_has_the_heavy_rows_and_the_weight_of_all():
    weights = jnp.asarray(np.where(np.arange(5000) % 1000 == 7, 1e4, 1.0), DTYPE)
    X = jnp.arange(5000)
    y = jnp.zeros((5000, 1), DTYPE)
    rows = rows_module.ArrayRows(OfCentres(KERNEL, Z), X, y, weights, tile=64)
    some = preconditioner.sampled(rows, 500)
    assert set(range(7, 5000, 1000)) <= set(np.asarray(some.X).tolist())
    assert len(set(np.asarray(some.X).tolist())) == 500
    assert_close(jnp.sum(some.weights), jnp.sum(weights), 0.02)
    assert preconditioner.sampled(rows, 5000) is rows
    none = rows.of(rows.X, rows.y, weights.at[100:].set(0))
    assert np.all(np.asarray(preconditioner.sampled(none, 500).weights[100:]) == 0)


@needs_x32
def test_a_sum_over_many_tiles_rounds_as_one_addition_does():
    """20000 tiles: a plain sum of them is off by 30 eps. One that overflows is infinite."""
    y = RNG.uniform(0.5, 1.5, (20_000, 1)).astype(DTYPE)
    weights = jnp.ones(len(y))
    X = jnp.zeros((len(y), 2))
    span = OfCentres(KERNEL, jnp.asarray(Z))
    rows = rows_module.ArrayRows(span, X, jnp.asarray(y), weights, tile=1)
    part = lambda tile, scale: scale * jnp.sum(tile.y)
    known = np.sum(y.astype(float))
    off = lambda found: abs(float(found) - known) / known / np.finfo(DTYPE).eps
    assert off(rows.total(part, jnp.asarray(1.0))) <= 1
    assert off(rows.rough_total(part, jnp.asarray(1.0))) > 5
    assert np.isposinf(rows.total(part, jnp.asarray(1e37)))
    assert abs(jax.grad(lambda scale: rows.total(part, scale))(1.0) - known) < 1e-5 * known


@pytest.mark.nightly
def test_targets_of_removed_points_change_no_derivative_however_large_they_are():
    # What numpy.ma fills in, or more.
    wrong = np.where(WEIGHTS == 0, 1e300 if X64 else 1e20, Y).astype(DTYPE)
    fit = lambda y: kernax.falkon(KERNEL, X, y, RIDGE, Z, weights=WEIGHTS, throw=False)
    slope = jax.jit(jax.grad(lambda y: fit(y).value(NEW[0])))
    assert_close(slope(wrong), slope(Y), VALUES)
    assert np.all(np.asarray(slope(wrong))[WEIGHTS == 0] == 0)


@pytest.mark.nightly
@pytest.mark.parametrize("unit", [1e-200, 1e120] if X64 else [1e-20, 1e15])
def test_a_loss_in_units_whose_squares_are_no_floats_has_the_same_fit(unit, rows):
    unit = DTYPE(unit)
    plain = kernax.falkon(KERNEL, X, Y, RIDGE, Z, loss=Huber(DTYPE(0.3)))
    found = kernax.falkon(KERNEL, X, unit * Y, RIDGE, Z, loss=Huber(DTYPE(0.3) * unit))
    assert_close(found.value.values(NEW) / unit, plain.value.values(NEW), VALUES)


@pytest.mark.nightly
@pytest.mark.parametrize("factor", [1e-300, 1e200] if X64 else [1e-30, 1e30])
def test_a_common_factor_of_weights_and_ridge_changes_nothing(factor):
    """Squares of gradients in such units are no floats."""
    factor = DTYPE(factor)
    plain = kernax.falkon(KERNEL, X, Y, RIDGE, Z, weights=WEIGHTS)
    found = kernax.falkon(KERNEL, X, Y, RIDGE * factor, Z, weights=WEIGHTS * factor)
    assert_close(found.value.values(NEW), plain.value.values(NEW), VALUES)


@pytest.mark.nightly
@needs_x64
def test_centres_are_drawn_among_points_that_are_not_removed():
    kernel = kernax.RBF(0.2)  # of which no matrix of so few points is singular
    kept = np.flatnonzero(np.arange(N) % 20 == 0)
    weights = np.zeros(N, DTYPE)
    weights[kept] = 1
    fit = lambda w: kernax.falkon(kernel, X, Y, RIDGE, M, weights=w, key=jax.random.key(0)).value
    for found in (fit(weights), jax.jit(fit)(jnp.asarray(weights))):
        assert len(found.coefficients) == M
        assert all((z == X[kept]).all(1).any() for z in np.asarray(found.points))
    with pytest.warns(ConditionWarning, match="20 centres for 15 points"):
        kernax.falkon(kernel, X, Y, RIDGE, 20, weights=weights, key=jax.random.key(0))


@pytest.mark.nightly
@needs_x64
def test_with_a_bias_it_is_the_fit_in_nystroms_features_with_one(rows):
    """A constant, whose penalty is 1e-4 of that of a function, is all but free."""
    level = Y + 30
    map_ = kernax.nystrom(KERNEL, X, Z)
    cases = [(Logistic(), np.sign(Y + 0.5)), (Squared(), level), (Huber(30.0), level)]
    for loss, y in cases[: 1 if rows == "a sample" else 3]:
        found = kernax.falkon(KERNEL, X, y, RIDGE, Z, loss=loss, weights=WEIGHTS, bias=True).value
        same = kernax.regularised_risk(
            map_, X, y, RIDGE, loss=loss, weights=WEIGHTS, bias=True
        ).value
        assert_close(found.values(NEW), same.values(NEW), 1e-6)
        assert abs(found.bias - same.bias) < 3e-5 * abs(same.bias)  # measured 1.2e-5


@pytest.mark.nightly
@needs_x64
def test_several_outputs_are_one_fit():
    both = np.stack([Y, -2 * Y], 1)
    found = kernax.falkon(KERNEL, X, both, RIDGE, Z).value
    assert found.coefficients.shape == (M, 2)
    alone = kernax.falkon(KERNEL, X, Y, RIDGE, Z).value
    assert_close(
        found.values(NEW), np.stack([alone.values(NEW), -2 * alone.values(NEW)], 1), VALUES
    )


def dense(arguments, loss):
    """The mean square at new points, of the minimum by dense matrices; differentiable."""
    scale, ridge, X, Z, y, w = arguments
    kernel = kernax.RBF(scale)
    K, within = kernax.gram(kernel, X, Z), kernax.gram(kernel, Z)

    def moved(a, _):
        f = K @ a
        gradient = K.T @ (w * loss.derivative(y, f)) + ridge * within @ a
        H = K.T @ ((w * loss.curvature(y, f))[:, None] * K) + ridge * within
        return a - jnp.linalg.solve(H, gradient), None

    steps = 1 if isinstance(loss, Squared) else 10
    a, _ = jax.lax.scan(moved, jnp.zeros(M), length=steps)
    return jnp.mean((kernax.gram(kernel, NEW, Z) @ a) ** 2)


def fitted(arguments, loss):
    scale, ridge, X, Z, y, w = arguments
    kernel = kernax.RBF(scale)
    found = kernax.falkon(kernel, X, y, ridge, Z, weights=w, loss=loss, throw=False).value
    return jnp.mean(found.values(NEW) ** 2)


@pytest.mark.nightly
@needs_x64
def test_the_gradient_does_not_hang_on_when_the_fit_stops(monkeypatch):
    """Catches a derivative of few steps; where its system is not solved it is NaN."""
    monkeypatch.setattr(module, "size_of_sample", lambda *_: 30)
    fit = lambda y, options: kernax.falkon(KERNEL, X, y, RIDGE, Z, throw=False, **options).value
    slope = lambda **options: jax.jit(jax.grad(lambda y: fit(y, options)(NEW[0])))(Y)
    assert_close(slope(rtol=0.5, max_steps=4), slope(), 1e-6)
    monkeypatch.setattr(module, "_MOST_FOR_DERIVATIVE", 1)
    jax.clear_caches()  # of which the program of another number is one
    assert np.all(np.isnan(slope()))
    jax.clear_caches()


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    ("rows", "loss"),
    marked(
        pytest.mark.nightly,
        [("all rows", Squared()), ("all rows", Logistic()), ("a sample", Logistic())],
        "all rows-Squared",
        "a sample",
    ),
    indirect=["rows"],
)
def test_the_gradient_is_that_of_dense_matrices_in_all_arguments(rows, loss):
    """Weights of zero as well; and of a batch, and the second derivative in the lengthscale."""
    arrays = (X, Z, targets_of(loss), WEIGHTS)
    arguments = (jnp.asarray(1.2), jnp.asarray(RIDGE), *map(jnp.asarray, arrays))
    gradient = jax.jit(jax.grad(fitted), static_argnums=1)
    expected = jax.jit(jax.grad(dense), static_argnums=1)(arguments, loss)
    for a, b in zip(gradient(arguments, loss), expected):
        assert_close(a, b, 1e-6)  # of the root's tolerance, 1e-9, in a system of condition 1e3
    if rows == "all rows" and isinstance(loss, Squared):
        of_scale = lambda scale, f: f((scale, *arguments[1:]), loss)
        scales = jnp.array([0.9, 1.2])
        batch = jax.jit(jax.vmap(jax.grad(lambda scale: of_scale(scale, fitted))))(scales)
        assert_close(batch[1], expected[0], 1e-6)
        slope = jax.jit(jax.grad(lambda scale: of_scale(scale, fitted)))
        second = jax.jit(jax.grad(jax.grad(lambda scale: of_scale(scale, fitted))))(scales[0])
        assert_close(second, (slope(0.9 + 1e-4) - slope(0.9 - 1e-4)) / 2e-4, 1e-5)


@pytest.mark.nightly
@needs_x64
def test_memory_does_not_grow_with_the_product_of_points_and_centres():
    n, m = 100_000, 100
    points = jnp.zeros((n, 2), DTYPE)

    def value(y):
        return kernax.falkon(KERNEL, points, y, RIDGE, points[:m], throw=False).value(points[0])

    analysis = jax.jit(jax.grad(value)).lower(points[:, 0]).compile().memory_analysis()
    assert analysis.temp_size_in_bytes < 0.4 * n * m * np.dtype(DTYPE).itemsize


@pytest.mark.slow
def test_centres_that_coincide_take_jitter_and_are_right():
    with pytest.warns(ConditionWarning):
        found = kernax.falkon(KERNEL, X, Y, RIDGE, np.concatenate([Z, Z]))
    assert_close(found.value.values(NEW), by_numpy(Y), 1e-6 if X64 else 3e-3)


def minimum_by_eigenvalues(kernel, points, y, centres, ridge):
    """The least logistic risk over the eigenvectors of K_mm above rounding, by Newton's method."""
    values, vectors = np.linalg.eigh(matrix(kernel, centres))
    kept = values > 1e-14 * values[-1]
    features = matrix(kernel, points, centres) @ (vectors[:, kept] / np.sqrt(values[kept]))
    risk = lambda b: np.sum(np.logaddexp(0, -y * (features @ b))) + ridge / 2 * b @ b
    b = np.zeros(features.shape[1])
    for _ in range(50):
        wrong = 1 / (1 + np.exp(y * (features @ b)))
        hessian = (features.T * (wrong * (1 - wrong))) @ features + ridge * np.eye(len(b))
        b = b - np.linalg.solve(hessian, ridge * b - features.T @ (y * wrong))
    return risk(b)


@pytest.mark.nightly
@needs_x64
def test_success_says_how_far_jitter_holds_the_objective_above_the_minimum():
    """Of centres that nearly coincide, whose minimum is 4 % below what has to be solved."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200, 1))
    y = np.sign(np.sin(3 * points[:, 0]) + 0.5 * rng.normal(size=200))
    centres = points[:5].repeat(6, 0) + 0.03 * rng.normal(size=(30, 1))
    kernel = kernax.RBF(1.0)
    with pytest.warns(ConditionWarning, match=r"the objective, .* is at least .* above its min"):
        found = kernax.falkon(kernel, points, y, 0.01, centres, loss=Logistic(), bias=False)
    objective, penalty = (float(found.stats[name]) for name in ("objective", "jitter_penalty"))
    minimum = minimum_by_eigenvalues(kernel, points, y, centres, 0.01)
    assert penalty > 1e-3 * objective
    assert objective - minimum >= penalty
    a = np.asarray(found.value.coefficients)
    assert_close(penalty, 0.01 / 2 * float(found.stats["jitter"]) * a @ a)
    # Without jitter there is no penalty, and the minimum is that of the eigenvectors.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sound = kernax.falkon(kernax.RBF(0.02), points, y, 0.01, points[:30], loss=Logistic())
    assert sound.stats["jitter_penalty"] == 0
    least = minimum_by_eigenvalues(kernax.RBF(0.02), points, y, points[:30], 0.01)
    assert_close(sound.stats["objective"], least, 1e-9)


@pytest.mark.nightly
@needs_x64
def test_the_penalty_of_jitter_is_in_units_of_the_targets_and_leaves_out_a_bias():
    twice = np.concatenate([Z, Z])
    with pytest.warns(ConditionWarning):
        found = kernax.falkon(KERNEL, X, 1e3 * Y + 5e4, RIDGE, twice, bias=True)
    a = np.asarray(found.value.coefficients)
    penalty = RIDGE / 2 * float(found.stats["jitter"]) * a @ a
    assert_close(found.stats["jitter_penalty"], penalty, 1e-9)


@pytest.mark.nightly
@needs_x64
@pytest.mark.filterwarnings("ignore::kernax.errors.ConditionWarning")
def test_jitter_is_there_where_rounding_exceeds_the_ridge_in_memory_and_in_chunks(monkeypatch):
    """From both sides of the ridge at which it begins, under a batch of gradients as well."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(800, 5))
    targets = np.sin(points[:, 0])
    kernel, centres = kernax.RBF(3.0), points[:60]
    inverse = np.linalg.inv(np.linalg.cholesky(matrix(kernel, centres)))
    begins = 4 * np.finfo(float).eps * len(points) * np.sum(inverse**2)
    ridges = begins * jnp.asarray([0.7, 1.4])

    def fitted(ridge):
        solution = kernax.falkon(kernel, points, targets, ridge, centres, throw=False)
        return solution.value(points[0]), solution.stats["jitter"]

    slope_of = jax.jit(jax.grad(fitted, has_aux=True))
    slopes, jitter = jax.jit(jax.vmap(slope_of))(ridges)
    assert jitter[0] > 0
    assert jitter[1] == 0
    for ridge, slope in zip(ridges, slopes):
        np.testing.assert_allclose(slope, slope_of(ridge)[0], rtol=1e-4)

    monkeypatch.setattr(of_chunks, "LEAST_ROWS", 100)
    monkeypatch.setattr(of_chunks, "MOST_ROWS_A_CENTRE", 1)
    chunks = kernax.scale.Chunks([(points[:400], targets[:400]), (points[400:], targets[400:])])
    for ridge, of_arrays in zip(ridges, jitter):
        found = kernax.falkon(kernel, chunks, None, ridge, centres, throw=False)
        assert found.stats["jitter"] == of_arrays


@pytest.mark.slow
@needs_x64
def test_of_many_centres_and_a_smooth_kernel_the_rounding_of_the_hessian_is_less_than_the_ridge():
    """K_mm has a factor without jitter, by which that of the Hessian has none."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(800, 5))
    targets = np.sin(points[:, 0]) + 0.1 * rng.normal(size=800)
    weights = np.full(800, 100.0)
    with pytest.warns(ConditionWarning, match="was added to its diagonal"):
        solution = kernax.falkon(
            kernax.RBF(3.0), points, targets, 0.09, points[:500], weights=weights
        )
    off = np.asarray(jax.vmap(solution.value)(points)) - np.sin(points[:, 0])
    assert np.sqrt(np.mean(off**2)) < 0.1


@pytest.mark.slow
def test_too_few_steps_fail_and_say_so(monkeypatch):
    monkeypatch.setattr(module, "size_of_sample", lambda *_: 30)
    with pytest.raises(MaxStepsError, match="falkon"):
        kernax.falkon(KERNEL, X, Y, 1e-3, Z, max_steps=1)


@needs_x64
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ridge": 0.0}, "ridge must be in"),
        ({"loss": Absolute()}, "loss must be smooth"),
        ({"loss": "squares"}, "loss must be smooth"),
        ({"centres": 5}, "pass key="),
        ({"centres": None}, "Scaled has no known explicit features"),
        ({"y": np.stack([np.sign(Y)] * 2, 1), "loss": Logistic()}, "one fit for each column"),
        ({"rtol": 0.0}, "rtol must be"),
        ({"max_steps": 0}, "max_steps must be"),
        ({"progress": True}, "passes over chunks"),
    ],
)
def test_bad_arguments_are_refused_with_words(changed, words):
    arguments = {"y": Y, "ridge": RIDGE, "centres": Z} | changed
    with pytest.raises(ValueError, match=words):
        untyped(kernax.falkon)(KERNEL, X, **arguments)


def chunks_of(y, weights=None):
    """Of 70 rows, the last one smaller."""
    return kernax.scale.Chunks.of_arrays(X, y, weights, chunk_size=70)


@pytest.mark.slow
@pytest.mark.parametrize("loss", marked(pytest.mark.nightly, [Squared(), Logistic()], "Logistic"))
def test_of_chunks_it_is_the_same_fit_with_a_bias(rows, loss, monkeypatch):
    monkeypatch.setattr(of_chunks, "LEAST_ROWS", 60)
    monkeypatch.setattr(of_chunks, "MOST_ROWS_A_CENTRE", 1)
    y = targets_of(loss)
    chunks = chunks_of(y, WEIGHTS)
    found = kernax.falkon(KERNEL, chunks, None, RIDGE, Z, loss=loss, bias=True)
    same = kernax.falkon(KERNEL, X, y, RIDGE, Z, loss=loss, weights=WEIGHTS, bias=True)
    assert found.stats["points"] == N
    assert_close(found.value.values(NEW), same.value.values(NEW), VALUES)
    assert_close(found.stats["objective"], same.stats["objective"], 10 * VALUES)


@pytest.mark.nightly
@needs_x64
def test_chunks_of_several_outputs_a_list_and_a_function_and_centres_that_are_drawn():
    both = np.stack([Y, -2 * Y], 1)
    parts = [(X[start : start + 70], both[start : start + 70]) for start in range(0, N, 70)]
    found = kernax.falkon(KERNEL, kernax.scale.Chunks(parts), None, RIDGE, Z).value
    same = kernax.falkon(KERNEL, X, both, RIDGE, Z).value
    assert_close(found.values(NEW), same.values(NEW), VALUES)
    made = kernax.scale.Chunks(lambda: (part for part in parts))
    drawn = kernax.falkon(KERNEL, made, None, RIDGE, M, key=jax.random.key(0)).value
    places = [int(np.flatnonzero((z == X).all(1))[0]) for z in np.asarray(drawn.points)]
    assert len(set(places)) == M


@pytest.mark.nightly
@needs_x64
def test_of_chunks_centres_are_drawn_among_points_that_are_not_removed():
    weights = (np.arange(N) % 20 == 0).astype(DTYPE)
    chunks = chunks_of(np.where(weights > 0, Y, 1e20), weights)
    fit = lambda m: kernax.falkon(KERNEL, chunks, None, RIDGE, m, key=jax.random.key(0)).value
    found = fit(np.int64(M))
    assert len(found.coefficients) == M
    assert all((z == X[weights > 0]).all(1).any() for z in np.asarray(found.points))
    assert np.max(np.abs(found.values(NEW))) > 1e-3  # and the other targets have no part


@needs_x64
def test_a_stream_that_alternates_shows_both_kinds_to_the_sample():
    """Catches rows that are kept by their number alone."""
    kind = np.arange(N) % 2
    columns = X * np.array([[1.0, 1.0]], DTYPE) + 9 * kind[:, None].astype(DTYPE)
    found = streamed.survey(
        kernax.scale.Chunks.of_arrays(columns, Y, chunk_size=70), KERNEL, check_numbers, 40, no_bar
    )
    rows = np.asarray(found.sample_of(40)[0])
    assert 15 <= np.sum(rows[:, 0] > 4.5) <= 25


def check_numbers(y, n, dtype, weights):
    return jnp.asarray(y, dtype)


def no_bar(done, total):
    """Shows nothing."""


@pytest.mark.slow
@needs_x64
def test_chunks_may_grow_and_more_centres_than_rows_are_warned_of():
    parts = [(X[:20], Y[:20]), (X[20:220], Y[20:220]), (X[220:], Y[220:])]
    found = kernax.falkon(KERNEL, kernax.scale.Chunks(parts), None, RIDGE, Z)
    assert_close(found.value.values(NEW), by_numpy(Y), VALUES)
    few = kernax.scale.Chunks([(X[:9], Y[:9])])
    with pytest.warns(ConditionWarning, match="12 centres for 9 points"):
        kernax.falkon(KERNEL, few, None, RIDGE, Z)
    with pytest.warns(ConditionWarning, match="12 centres for 9 points"):
        of_chunks._span(few, KERNEL, check_numbers, M, KEY)


@pytest.mark.slow
@needs_x64
def test_a_memory_map_is_read_in_parts(tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    chunks = kernax.scale.Chunks.of_arrays(mapped, Y, chunk_size=70)
    assert [len(part[0]) for part in chunks] == [70, 70, 70, 70, 20]
    found = kernax.falkon(KERNEL, chunks, None, RIDGE, Z).value
    assert_close(found.values(NEW), by_numpy(Y), VALUES)


@pytest.mark.slow
@needs_x64
def test_a_parquet_file_is_read_in_parts(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    from pyarrow import table

    columns = {"a": X[:, 0], "b": X[:, 1], "y": Y, "w": WEIGHTS, "name": ["x"] * N, "age": Y}
    parquet.write_table(table(columns), tmp_path / "rows.parquet", row_group_size=130)
    read = kernax.scale.Chunks.of_parquet
    path = tmp_path / "rows.parquet"
    chunks = read(path, ["a", "b"], "y", "w", chunk_size=70, dtype=DTYPE)
    found = kernax.falkon(KERNEL, chunks, None, RIDGE, Z).value
    assert_close(found.values(NEW), by_numpy(Y, WEIGHTS), VALUES)
    first = next(iter(read(path, "age", "y", chunk_size=70, dtype=DTYPE)))[0]
    np.testing.assert_array_equal(first, Y[: len(first), None])
    with pytest.raises(ValueError, match="no column c: it has a, b, y"):
        read(path, ["a", "c"], "y")
    with pytest.raises(ValueError, match="column name must hold numbers"):
        next(iter(read(path, ["a", "name"], "y")))


@needs_x64
def test_texts_of_digits_and_dates_in_a_parquet_file_are_no_numbers(tmp_path):
    """NumPy would convert them: a day to the days since 1970, a time to any unit of the file."""
    parquet = pytest.importorskip("pyarrow.parquet")
    from pyarrow import table

    path = tmp_path / "rows.parquet"
    days = np.array(["2020-01-01", "2020-01-02"], "datetime64[D]")
    others = {
        "digits": ["1", "2"],
        "day": days,
        "time": days.astype("datetime64[us]"),
        "step": np.diff(days, prepend=days[:1]).astype("timedelta64[us]"),
    }
    numbers = {"x": [1.0, 2.0], "whole": [1, None], "sign": [True, None], "price": [Decimal(2)] * 2}
    parquet.write_table(table(numbers | others), path)
    for name in others:
        with pytest.raises(ValueError, match=f"column {name} must hold numbers, but holds"):
            kernax.scale.ParquetRows(path, name)[:2]
        with pytest.raises(ValueError, match=f"column {name} must hold numbers, but holds"):
            next(iter(kernax.scale.Chunks.of_parquet(path, ["x"], name)))
    read = kernax.scale.ParquetRows(path, list(numbers))[:2]
    np.testing.assert_array_equal(read, [[1, 1, 1, 2], [2, np.nan, np.nan, 2]])


@needs_x64
def test_parquet_without_pyarrow_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        kernax.scale.Chunks.of_parquet("rows.parquet", ["a"], "y")


@pytest.mark.slow
@needs_x64
def test_a_pass_over_chunks_compiles_once(monkeypatch):
    """Chunks of one size, and a last one that is filled up."""
    traces = []
    fold = rows_module.ArrayRows.fold

    def counted(self, *arguments):
        traces.append(len(self.y))
        return fold(self, *arguments)

    monkeypatch.setattr(rows_module.ArrayRows, "fold", counted)
    kernel = 1.3 * kernax.RBF([1.2, 1.2])  # which no other test has
    solution = kernax.falkon(kernel, chunks_of(Y), None, RIDGE, Z)
    assert solution.stats["points"] == N
    assert set(traces) <= {70, N, 75}
    assert len(traces) <= 5  # sizes, gradients, products, squares: one program each


@pytest.mark.slow
@needs_x64
def test_the_passes_are_shown(capsys):
    kernax.falkon(KERNEL, chunks_of(Y), None, RIDGE, Z, progress=True)
    assert "5/5" in capsys.readouterr().err


@needs_x64
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kernax.scale.Chunks(part for part in [(X, Y)]), "a generator can be read only"),
        (lambda: kernax.scale.Chunks(5), "source must be an iterable"),
        (lambda: kernax.scale.Chunks.of_arrays(X, Y[:-1]), "one length"),
        (lambda: fit_of(part for part in [(X, Y)]), "X must be an array .* generator"),
        (lambda: fit_of(kernax.scale.Chunks([])), "no chunk"),
        (lambda: fit_of(kernax.scale.Chunks([X])), "a chunk must be"),
        (lambda: fit_of(once()), "300 rows in the first pass and 0 in this one"),
        (lambda: fit_of(of_two_kinds()), "of one kind"),
        (lambda: fit_of(kernax.scale.Chunks([(X, Y), (X * np.nan, Y)])), "chunk 2: X holds NaN"),
        (lambda: fit_of(chunks_of(np.ones(N)), loss=Logistic()), "one class only"),
        (lambda: fit_of(kernax.scale.Chunks([X]), centres=5, key=KEY), "chunk 1: a chunk must be"),
        (lambda: fit_of(kernax.scale.Chunks([]), centres=5, key=KEY), "no chunk"),
        (lambda: fit_of(of_two_kinds(), centres=5, key=KEY), "chunk 2: chunks must have rows of"),
        (lambda: fit_of(chunks_of(Y, np.zeros(N))), "weights must not all be zero"),
        (lambda: fit_of(chunks_of(Y, np.ones((N, 1)))), r"chunk 1: weights .* \(70,\), one per"),
        (lambda: fit_of(chunks_of(np.sign(X)), loss=Logistic()), "make one fit for each column"),
        (lambda: fit_of(chunks_of(Y), Y), "y must be None"),
        (lambda: fit_of(kernax.scale.Chunks(list), ridge=0.0), "ridge must be in"),
        (lambda: fit_of(chunks_of(Y), centres=5), "pass key="),
        (lambda: jax.jit(lambda ridge: fit_of(chunks_of(Y), ridge=ridge))(0.1), "outside of jit"),
    ],
)
def test_what_cannot_be_read_is_refused_with_words(call, words):
    with pytest.raises(ValueError, match=words):
        call()


KEY = jax.random.key(0)


def of_two_kinds():
    """Chunks of which the second has fewer columns."""
    return kernax.scale.Chunks([(X, Y), (X[:, :1], Y)])


def once():
    """Chunks whose function does not begin anew."""
    left = iter([(X, Y)])
    return kernax.scale.Chunks(lambda: left)


def fit_of(X, y=None, ridge=RIDGE, centres=Z, **options):
    return untyped(kernax.falkon)(KERNEL, X, y, ridge, centres, **options)


@pytest.mark.slow
@needs_x64
def test_single_precision_data_have_their_small_matrices_in_double():
    single = [array.astype(np.float32) for array in (X, Y, Z)]
    found = kernax.falkon(KERNEL, single[0], single[1], 1e-3, single[2])
    assert found.value.coefficients.dtype == np.float32
    exact = by_numpy(Y, ridge=1e-3)
    assert_close(found.value.values(NEW.astype(np.float32)), exact, 1e-3)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "m",
    marked(
        pytest.mark.nightly,
        [1, 127, 255, 256, 257, 1023, 1024, 1100],
        "1024",
        "1100",
        "1023",
        "127",
    ),
)
def test_a_symmetric_product_in_bands_is_the_whole_one(m, rng):
    """Of one band, of two, and of the most there are."""
    A = jnp.asarray(rng.normal(size=(m, 5)))
    weights = jnp.asarray(rng.uniform(size=5))
    bands = upper_bands(A @ jnp.diag(weights), A.T)
    assert len(bands) == max(1, min(8, m // 128))
    assert_close(whole_of_bands(bands), A @ jnp.diag(weights) @ A.T, 1e-12)

    def first_entries(v):
        by_bands = whole_of_bands(upper_bands(A[:, :1] @ v[None, :], v[:, None] @ A[:, :1].T))
        return jnp.sum(by_bands[: len(v)] ** 2)

    def whole_entries(v):
        return jnp.sum((A[:, :1] @ v[None, :] @ v[:, None] @ A[:, :1].T)[: len(v)] ** 2)

    vectors = jnp.asarray(rng.normal(size=(2, 3)))
    slopes = jax.vmap(jax.grad(first_entries))(vectors)
    assert_close(slopes, jax.vmap(jax.grad(whole_entries))(vectors), 1e-10)


@needs_x64
@pytest.mark.nightly
def test_many_centres_compile_as_users_compile_them(rng):
    """With bands joined in place jaxlib 0.10.2 did not end; with the suite's flags it did."""
    points = jnp.asarray(rng.normal(size=(2048, 18)))
    targets = jnp.sin(points[:, 0])

    def fitted(points, targets):
        solution = kernax.falkon(kernax.RBF(4.0), points, targets, 0.1, points[:1024], throw=False)
        return solution.value.coefficients, solution.stats["residual"]

    program = jax.jit(fitted).lower(points, targets).compile(compiler_options=OPTIMISED)
    _, residual = program(points, targets)
    assert residual < 1e-8
