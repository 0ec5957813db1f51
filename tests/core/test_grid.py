"""Gaussian processes on grids and at regular times, by the structure of their matrices: the same
answers as by Cholesky's factor of the whole matrix.
"""

import contextlib
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, assert_close, marked, matrix, needs_x32, needs_x64
from references import process_by_numpy

import kernax
from kernax.core.base.compiled import compiled
from kernax.core.base.weights import PointWeights
from kernax.core.grid.grid import GridGram
from kernax.core.grid.grid_factor import GridFactor
from kernax.core.grid.gridding import grid_for
from kernax.core.grid.kronecker import KroneckerMatrix
from kernax.core.grid.toeplitz import PlaceOffsets, ToeplitzMatrix
from kernax.core.kernel.kernel import groups_of_columns
from kernax.core.linalg.factorisation import WeightedSystem
from kernax.core.linalg.linear_solvers import factorise
from kernax.errors import ConditionWarning
from kernax.solvers import Grid, JitteredCholesky, StateSpace

GRID = Grid()
DENSE = JitteredCholesky()
On = kernax.On
RBF = kernax.RBF
ON_A_GRID = {
    "one lengthscale for each column": 1.7 * RBF([0.7, 0.5, 2.0]),
    "a product": 0.5 * On(kernax.Matern52(1.1), 0) * On(RBF([0.5, 0.9]), [1, 2]) ** 2,
    "columns together": On(kernax.Matern32(1.2), [2, 0]) * On(kernax.Periodic(0.9, 3.1), 1),
    "a sum along a column": (On(RBF(), 0) + 0.3 * On(kernax.Linear(), 0)) * On(RBF(0.6), [1, 2]),
}
ALONG_A_COLUMN = {
    "rbf": RBF([0.4]),
    "rational quadratic": 2.0 * kernax.RationalQuadratic(0.5, 1.3) + 0.2,
    "spectral mixture": kernax.SpectralMixture([1.0, 0.5], [[0.0], [0.4]], [[0.2], [0.1]]),
    "a product": RBF(2.0) * kernax.kernels.Cosine(1.7) * kernax.Matern12(9.0),
}
RNG = np.random.default_rng(0)


def grid(*places):
    cells = np.stack(np.meshgrid(*places, indexing="ij"), -1).reshape(-1, len(places))
    return cells[RNG.permutation(len(cells))]


GAPS = [5, 17, 200, 211]  # rows that are not there
CELLS = grid(np.sort(RNG.uniform(0, 3, 5)), np.linspace(-1, 2, 6), RNG.normal(size=10))
TIMES = grid(3.0 + 0.1 * np.arange(300))
POINTS = {3: np.delete(CELLS, GAPS, 0), 1: np.delete(TIMES, GAPS, 0)}
N = len(POINTS[1])
Y = np.sin(POINTS[3].sum(1)) + 0.3 * RNG.normal(size=N)
WEIGHTS = np.ones(N)
WEIGHTS[[3, 50, 77]] = [0.5, 2, 3]
WEIGHTS[100:108] = 0
NEW = {3: grid([0.3, 1.9], [0.4], [-0.2, 0.1]), 1: grid([-0.3, 3.31, 9.2, 36.0])}
NEW = {dim: np.concatenate([new, POINTS[dim][[7, 100]]]) for dim, new in NEW.items()}
CASES = [(3, name) for name in ON_A_GRID] + [(1, name) for name in ALONG_A_COLUMN]


def kernel_of(dim, name):
    return ON_A_GRID[name] if dim == 3 else ALONG_A_COLUMN[name]


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize(
    ("dim", "name"),
    marked(
        pytest.mark.nightly,
        CASES,
        "3-one lengthscale for each column",
        "3-columns together",
        "3-a sum along a column",
        "1-rbf",
        "1-rational quadratic",
        "1-spectral mixture",
        "1-a product",
    ),
)
def test_a_grid_gives_the_answers_of_the_whole_matrix(dim, name):
    """Rows in no order, some missing, weights of 0, 1/2, 2 and 3, two outputs."""
    X, new = POINTS[dim], jnp.asarray(NEW[dim])
    y = np.stack([Y, np.cos(X[:, 0])], 1)

    @compiled
    def answers(kernel, noise, y):
        process = kernax.GaussianProcess(kernel, 0.2)
        solution = kernax.condition(process, X, y, noise, weights=WEIGHTS, solver=GRID)
        posterior = solution.value
        at = jax.vmap(lambda x: (posterior.mean(x), posterior.variance(x)))(new)
        return solution.stats["log_evidence"], *at, posterior.covariance(new[0], new[1])

    kernel = kernel_of(dim, name)
    evidence, means, variances, cross = answers(kernel, 0.05, y)
    K = matrix(kernel, np.concatenate([X, new]))
    expected = process_by_numpy(K, y, 0.05, WEIGHTS, 0.2)
    assert_close(evidence, expected[0], 1e-8)
    assert_close(means, expected[1], 1e-8)
    assert_close(variances, np.diagonal(expected[2]), 1e-8)
    assert_close(cross, expected[2][0, 1], 1e-8)


def evidence_of(X, solver, weights=None):
    def evidence(kernel, y, noise):
        return kernax.log_marginal_likelihood(kernel, X, y, noise, weights=weights, solver=solver)

    return evidence


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize(
    ("dim", "name", "weights"),
    [
        (*CASES[1], None),
        (*CASES[1], WEIGHTS),
        (*CASES[2], WEIGHTS),
        (*CASES[4], None),
        (*CASES[4], WEIGHTS),
        (*CASES[6], WEIGHTS),
    ],
)
def test_the_evidence_and_its_gradient_are_those_of_the_whole_matrix(dim, name, weights):
    """In the kernel, the targets and the noise."""
    arguments = kernel_of(dim, name), jnp.asarray(Y), jnp.asarray(0.05)

    def gradient(solver):
        of = evidence_of(POINTS[dim], solver, weights)
        both = eqx.filter_value_and_grad(lambda arguments: of(*arguments))
        return eqx.filter_jit(both)(arguments)

    found = jax.tree.leaves(gradient(GRID))
    expected = jax.tree.leaves(gradient(DENSE))
    assert len(found) >= 4
    for a, b in zip(found, expected):
        assert_close(a, b, 1e-6)


@needs_x64
def test_second_derivatives_of_the_evidence_are_refused_not_wrong():
    y = jnp.asarray(Y[:20], DTYPE)
    X = np.linspace(0, 1, 20, dtype=DTYPE)[:, None]
    of_noise = lambda noise: evidence_of(X, GRID)(RBF(), y, noise)
    with pytest.raises(ValueError, match="first derivatives only"):
        jax.hessian(of_noise)(jnp.asarray(0.1, DTYPE))


@pytest.mark.parametrize("where", [(0, 1), (0, 0), (1, -1), (1, 0, 1)])
def test_factors_over_columns_multiply_to_the_kernel_of_picked_columns(where):
    """Of a column picked twice the value was squared, and a fit with Grid was a success."""
    kernel = kernax.On(kernax.RBF(0.8), where)
    x, z = jnp.array([0.3, -0.4], DTYPE), jnp.array([1.0, 0.2], DTYPE)
    product = 1.0
    for factor in kernel.factors_over_columns(2):
        moves = np.isin(np.arange(2), list(factor.columns)).astype(DTYPE)
        product *= factor.kernel(x * moves, z * moves)
    assert_close(product, kernel(x, z), 1e-6)


@needs_x64
def test_groups_of_columns_are_those_that_no_factor_joins():
    kernel = On(RBF(), [0, 3]) * On(kernax.Matern32(), [1, 4]) * On(RBF(), [0]) + 0.0 * RBF()
    assert groups_of_columns(kernel, 5) == (frozenset(range(5)),)
    kernel = 2.0 * On(RBF([1.0, 2.0]), [0, 3]) * On(kernax.Matern32(), [1, 4])
    assert groups_of_columns(kernel, 6) == tuple(map(frozenset, ([0], [1, 4], [2], [3], [5])))


CELL = np.ones((6, 2), DTYPE)
EVEN = np.arange(6, dtype=DTYPE)[:, None]


@needs_x64
@pytest.mark.parametrize(
    ("kernel", "X", "solver", "words"),
    [
        (kernax.Matern32(), CELL, GRID, "Matern32 depends on all 2 together"),
        (RBF() + kernax.Linear(), CELL, GRID, "Sum depends on all 2 together"),
        (RBF(), CELL, GRID, "points 0 and 1 are the same"),
        (
            RBF(),
            np.diag(np.arange(1.0, 7)).astype(DTYPE),
            Grid(max_missing=5),
            "X is not a grid: 6 points",
        ),
        (kernax.Linear(), EVEN, GRID, "needs a stationary kernel"),
        (RBF(), EVEN**0.5, GRID, r"at equal distances.*StateSpace\(\)"),
        (
            RBF(),
            EVEN[[0, 1, 2, 5]],
            Grid(max_missing=1),
            r"4 of 6 equal steps.*Grid\(max_missing=\.\.\.\)",
        ),
        (RBF(), np.array([[0.0], [1e-10], [1e10]], DTYPE), GRID, r"3 of \d+ equal steps"),
        (RBF(), EVEN[:1], GRID, "two different points"),
    ],
)
def test_what_is_no_grid_is_refused_with_words(kernel, X, solver, words):
    with pytest.raises(ValueError, match=words):
        evidence_of(X, solver)(kernel, X[:, 0], 0.1)
    process = kernax.GaussianProcess(kernel)
    with pytest.raises(ValueError, match=words):
        kernax.condition(process, X, X[:, 0], 0.1, solver=solver, throw=False)


def test_points_off_equal_steps_by_rounding_are_taken_and_by_more_of_a_step_are_refused():
    # Where numbers are so large that the last digit of one is about sqrt(eps) of a step.
    start = 2**12 if np.float32 == DTYPE else 2**26
    X = start + np.arange(12, dtype=DTYPE)[:, None]
    last_digit = np.spacing(X[5, 0])
    y = np.cos(X[:, 0])
    X[5] += last_digit
    found = evidence_of(X, GRID)(RBF(), y, 0.1)
    assert_close(found, evidence_of(X, DENSE)(RBF(), y, 0.1), 4 * last_digit)
    X[5] += 2 * last_digit
    with pytest.raises(ValueError, match="too much for steps of 1: use the indices of the steps"):
        evidence_of(X, GRID)(RBF(), y, 0.1)
    # Steps of .625, of which two are .6875 and one .5.
    coarse = (1e6 + 0.0625 * np.array([0, 10, 21, 29, 40]))[:, None].astype(DTYPE)
    with pytest.raises(ValueError, match=r"off by up to|too much for steps"):
        evidence_of(coarse, GRID)(RBF(0.5), y[:5], 0.1)


def test_offsets_of_points_are_taken_to_first_order():
    """`K_ij = k(t_i - t_j)` with `t = i / 10 + o`: what is left is `o^2` in size, and `o` without
    the offsets or with those of another sign.
    """
    off = 1e-3 if np.float32 == DTYPE else 1e-6
    rng = np.random.default_rng(0)
    lags = np.arange(20) / 10
    offsets = off * rng.uniform(-1, 1, 20)
    slopes = -lags * np.exp(-(lags**2) / 2)
    matrix = ToeplitzMatrix(
        jnp.asarray(np.exp(-(lags**2) / 2), DTYPE),
        20,
        PlaceOffsets(jnp.asarray(offsets, DTYPE), jnp.asarray(slopes, DTYPE)),
    )
    t = lags + offsets
    K = np.exp(-((t[:, None] - t[None, :]) ** 2) / 2)
    V = rng.normal(size=(20, 2))
    without = np.exp(-((lags[:, None] - lags[None, :]) ** 2) / 2)
    assert np.max(abs(without @ V - K @ V)) > off / 2
    np.testing.assert_allclose(
        matrix.mv(jnp.asarray(V, DTYPE)), K @ V, atol=50 * max(off**2, float(jnp.finfo(DTYPE).eps))
    )


def test_offsets_of_a_grid_are_those_of_its_points():
    """The largest that are taken: the last digit of a number is nearly sqrt(eps) of a step."""
    start = 2**12 if np.float32 == DTYPE else 2**26
    X = start + np.arange(12, dtype=DTYPE)[:, None]
    off = np.spacing(X[5, 0])
    X[5] += off
    K = GridGram(RBF(), jnp.asarray(X), grid_for(RBF(), X, np.ones(12), 20, 400))
    t = X[:, 0].astype(np.longdouble)
    exact = np.exp(-((t[:, None] - t[None, :]) ** 2) / 2)
    found = np.asarray(K.whole().mv(jnp.eye(12, dtype=DTYPE)))
    np.testing.assert_allclose(found, exact.astype(float), rtol=0, atol=float(off) / 20)
    even = np.round(t - start)
    assert np.max(abs(np.exp(-((even[:, None] - even[None, :]) ** 2) / 2) - exact)) > off / 2


def test_arguments_that_must_be_known_or_one_number_are_refused_otherwise():
    y = jnp.asarray(EVEN[:, 0])
    with pytest.raises(ValueError, match="but X is traced"):
        jax.jit(lambda X: evidence_of(X, GRID)(RBF(), y, 0.1))(EVEN)
    with pytest.raises(ValueError, match="but weights is traced"):
        jax.jit(lambda weights: evidence_of(EVEN, GRID, weights)(RBF(), y, 0.1))(y)
    with pytest.raises(ValueError, match=r"one number for Grid\(\), but has shape \(6,\)"):
        evidence_of(EVEN, GRID)(RBF(), y, jnp.full(6, 0.1, DTYPE))
    with pytest.raises(ValueError, match="5 weighted: Grid"):
        evidence_of(EVEN, Grid(max_missing=3), y)(RBF(), y, 0.1)
    with pytest.raises(ValueError, match="at least one point of weight one"):
        evidence_of(EVEN, GRID, 2 * jnp.ones(6, DTYPE))(RBF(), y, 0.1)
    with pytest.raises(ValueError, match="with points on a grid"):
        kernax.kernel_ridge(RBF(), EVEN, y, 0.1, solver=GRID)
    with pytest.raises(ValueError, match="order must be a positive integer"):
        Grid(order=0)


LONG = 0.1 * np.arange(700)[:, None]


@pytest.mark.nightly
@needs_x64
def test_a_predictor_of_few_terms_is_as_good_as_one_of_all():
    y = np.sin(LONG[:, 0]) + 0.3 * RNG.normal(size=700)
    found = kernax.condition(kernax.GaussianProcess(RBF(0.6)), LONG, y, 0.1, solver=GRID)
    assert found.stats["order"] == 256
    expected = evidence_of(LONG, DENSE)(RBF(0.6), y, 0.1)
    assert_close(found.stats["log_evidence"], expected, 1e-10)


@pytest.mark.slow
def test_a_predictor_of_too_few_terms_fails_instead_of_being_slightly_wrong():
    X = LONG.astype(DTYPE)
    process = kernax.GaussianProcess(RBF(0.6))
    short = kernax.condition(process, X, np.sin(X[:, 0]), 0.1, solver=Grid(order=20), throw=False)
    assert short.result == kernax.RESULTS.max_steps_reached
    assert jnp.isnan(short.stats["log_evidence"])
    # A correlation that comes back long after it has gone.
    late = kernax.GaussianProcess(kernax.Periodic(0.05, 60.0))
    found = kernax.condition(late, X, np.sin(X[:, 0]), 0.1, solver=Grid(order=128), throw=False)
    assert found.result == kernax.RESULTS.max_steps_reached


@needs_x64
@pytest.mark.parametrize("what", ["image", "times"])
def test_memory_is_linear_in_the_number_of_points(what):
    places = np.linspace(0, 10, 100)
    X = grid(places, places) if what == "image" else np.arange(10_000.0)[:, None]
    y = jnp.sin(X[:, 0])

    def value(y, noise):
        return evidence_of(X, GRID)(RBF(), y, noise)

    analysis = jax.jit(jax.grad(value, (0, 1))).lower(y, 0.1).compile().memory_analysis()
    assert analysis.temp_size_in_bytes < 60 * 8 * len(X)


def test_times_too_close_for_their_noise_take_jitter_and_have_an_evidence():
    """Beyond a variance within rounding of zero the predictors of higher orders are noise, and that
    of the last order may seem sound.
    """
    kernel = RBF(0.9)  # far from the limit at which jitter no longer suffices in float32
    X = 0.05 * np.arange(100, dtype=DTYPE)[:, None]
    y = np.sin(5 * X[:, 0])
    with pytest.warns(ConditionWarning):
        close = kernax.condition(kernax.GaussianProcess(kernel), X, y, 0.0, solver=GRID)
    assert close.stats["jitter"] > 0
    evidence = close.stats["log_evidence"]
    assert jnp.isfinite(evidence)
    if np.float64 == DTYPE:
        assert_close(evidence, evidence_of(X, DENSE)(kernel, y, close.stats["jitter"]), 1e-2)


@pytest.mark.slow
@needs_x32
def test_jitter_is_tried_where_only_the_weighted_cells_are_singular():
    weights = np.ones(12, DTYPE)
    weights[[3, 4, 7]] = [2, 3, 1e6]
    X = np.arange(12, dtype=DTYPE)[:, None]
    jitters = []
    for lengthscale in np.linspace(1, 6, 40, dtype=DTYPE):
        process = kernax.GaussianProcess(RBF(lengthscale))
        with ignoring_conditions():
            solution = kernax.condition(
                process, X, X[:, 0], 1e-7, weights=weights, solver=GRID, throw=False
            )
        jitters.append(float(solution.stats["jitter"]))
        assert jitters[-1] > 0 or solution.result != kernax.RESULTS.not_psd
    assert min(jitters) == 0
    assert max(jitters) > 0


@pytest.mark.slow
@needs_x64
def test_memory_of_what_is_known_of_missing_cells_is_linear_where_the_first_axis_is_short():
    sizes = [2, 60, 60]
    factor = KroneckerMatrix(tuple(jnp.eye(size, dtype=DTYPE) for size in sizes)).prepared()
    cells = jnp.arange(100)

    def known(noise):
        return factor.factorised(noise).inverse_at(cells)

    assert_close(known(jnp.asarray(1.0, DTYPE)), np.eye(100) / 2)
    analysis = jax.jit(known).lower(jnp.ones((), DTYPE)).compile().memory_analysis()
    # By the first axis it is 50 numbers for each cell.
    assert analysis.temp_size_in_bytes < 12 * factor.values[0].itemsize * np.prod(sizes)


def ignoring_conditions():
    return warnings.catch_warnings(action="ignore", category=ConditionWarning)


def squares_between(x, lengthscale):
    x = x.astype(float)
    return ((x[:, None] - x[None, :]) / lengthscale) ** 2


GRIDS = {1: grid(0.05 * np.arange(400)), 2: grid(0.1 * np.arange(20), 0.1 * np.arange(20))}
GRIDS = {dim: X.astype(np.float32) for dim, X in GRIDS.items()}


def errors_of_evidence(X, lengthscale, noise, weights=None):
    """The root mean square error of the log evidence of likely targets, and what the rounding said;
    None where a solve failed or took jitter.
    """
    rng = np.random.default_rng(0)
    n = len(X)
    K = np.exp(-sum(squares_between(column, lengthscale) for column in X.T) / 2)
    w = np.ones(n) if weights is None else weights.astype(float)
    process = kernax.GaussianProcess(RBF(np.float32(lengthscale)))
    covariance = K + noise * np.diag(1 / np.where(w > 0, w, 1))
    errors = []
    stats = {}
    expected = np.nan
    for y in rng.multivariate_normal(np.zeros(n), covariance, 4).astype(np.float32):
        with ignoring_conditions():
            solution = kernax.condition(
                process, X, y, noise, weights=weights, solver=GRID, throw=False
            )
        stats = solution.stats
        if solution.result != kernax.RESULTS.successful or stats["jitter"] > 0:
            return None
        expected, *_ = process_by_numpy(K, y[:, None].astype(float), float(np.float32(noise)), w)
        errors.append(float(stats["log_evidence"]) - expected)
    return np.sqrt(np.mean(np.square(errors))), float(stats["rounding"]), 1e-6 * abs(expected)


@pytest.mark.slow
@needs_x32
@pytest.mark.parametrize(
    "noise", [1e-1, *(pytest.param(noise, marks=pytest.mark.slow) for noise in (1e-2, 1e-3))]
)
@pytest.mark.parametrize("lengthscale", [0.2, 1.0])
@pytest.mark.parametrize("with_others", [False, True])
@pytest.mark.parametrize("dim", [1, 2])
def test_in_single_precision_the_rounding_says_how_far_the_evidence_may_be_off(
    dim, with_others, lengthscale, noise
):
    """With cells that are missing and weighted, and without."""
    X = GRIDS[dim]
    weights = None
    if with_others:
        X = np.delete(X, GAPS, 0)
        weights = np.ones(len(X), np.float32)
        weights[[3, 50, 77, 78, 200]] = [0.5, 2, 30, 100, 0]
    errors = errors_of_evidence(X, lengthscale, noise, weights)
    # Where there are other cells, C of a predictor has too few digits for so little noise.
    assert (errors is None) == (dim == 1 and with_others and noise == 1e-3)
    if errors is not None:
        off, rounding, slight = errors
        assert off <= 3 * rounding + slight
        assert rounding <= 150 * max(off, slight)


@pytest.mark.slow
@needs_x32
@pytest.mark.parametrize("dim", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_rounding_counts_what_cancels_at_cells_of_large_weights(dim):
    """Noise of 1e4 beside a variance of one, which at some neighbours is 0.01."""
    X = GRIDS[dim]
    values = np.ones(400, np.float32)
    values[np.argsort(X[:, 0])[50:60]] = 1e6
    weights = PointWeights(jnp.asarray(values))
    gram = GridGram(RBF(0.2), jnp.asarray(X), grid_for(RBF(0.2), X, values, 20, 400))
    form = gram.symmetric_form(weights, weights.shift_of(jnp.asarray(1e4, np.float32)))
    factor = factorise(form)
    assert isinstance(factor, GridFactor)
    assert factor.exists
    K = np.exp(-sum(squares_between(column, 0.2) for column in X.T) / 2)
    roots = np.sqrt(values.astype(float))
    A = roots[:, None] * K * roots + 1e4 * np.eye(400)
    off = abs(float(factor.log_determinant()) - np.linalg.slogdet(A)[1])
    rounding = float(factor.rounding(form.diagonal()))
    assert off <= 3 * rounding
    assert off > 3 * float(factor.whole.rounding())
    assert rounding <= 200 * off


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 2])
def test_where_there_is_no_factor_no_diagonal_is_a_number(dim):
    """Each point has its own noise, where the factor needs one for all."""
    X = jnp.asarray(grid(*[np.arange(12.0)] * dim), DTYPE)
    values = np.ones(len(X), DTYPE)
    values[[3, 5]] = [0, 2]
    weights = PointWeights(jnp.asarray(values))
    gram = GridGram(RBF(0.2), X, grid_for(RBF(0.2), X, values, 12, len(X)))
    system = WeightedSystem.of(gram, weights, jnp.linspace(1, 2, len(X), dtype=DTYPE))
    factor = factorise(gram.symmetric_form(weights, system.shift))
    assert not factor.exists
    inverse = factor.inverse_of(system)
    assert jnp.isnan(inverse.diagonal()).all()
    assert jnp.isnan(inverse.diagonal_of_product(system)).all()


def points_and_problem(rng, dim):
    """Points at steps, from zero or from anywhere, and the lengthscale, variance and noise."""
    step, first, scale, relative, absolute = 10 ** rng.uniform(
        [-3, -3, -3, -16, -6], [3, 6, 6, 0, 0]
    )
    places = np.arange(144 if dim == 1 else 12) * step + rng.choice([0, first])
    lengthscale = step * 10 ** rng.uniform(-1, 2.5)
    noise = rng.choice([0, absolute, scale * relative])
    return grid(*[places.astype(DTYPE)] * dim), np.asarray([lengthscale, scale, noise], DTYPE)


@pytest.mark.slow
@pytest.mark.parametrize("dim", marked(pytest.mark.nightly, [1, 2], "1"))
def test_no_solve_is_called_a_success_whose_residual_is_large(dim):
    """Over places, lengthscales, variances and noises of many orders of magnitude; by the matrix of
    the places as they are.
    """
    rng = np.random.default_rng(1)
    eps = np.finfo(DTYPE).eps
    few = Grid(order=64)
    statuses = []
    for _ in range(60):
        X, (lengthscale, scale, noise) = points_and_problem(rng, dim)
        y = rng.normal(size=144).astype(DTYPE)
        process = kernax.GaussianProcess(scale * RBF(lengthscale))
        solution = None  # where places are too close for the digits of their numbers
        with contextlib.suppress(ValueError), ignoring_conditions():
            solution = kernax.condition(process, X, y, noise, solver=few, throw=False)
        if solution is None:
            continue
        statuses.append(str(solution.result))
        if solution.result != kernax.RESULTS.successful:
            continue
        K = float(scale) * np.exp(-sum(squares_between(x, float(lengthscale)) for x in X.T) / 2)
        a = np.asarray(solution.value.mean.coefficients, float)
        off = K @ a + (float(noise) + float(solution.stats["jitter"])) * a - y
        # Entries of K are rounded.
        rounding = 4 * eps * np.linalg.norm(K @ np.abs(a))
        assert np.linalg.norm(off) < 2 * eps ** (1 / 3) * np.linalg.norm(y) + rounding
    assert statuses.count(str(kernax.RESULTS.successful)) > 15
    assert len({*statuses}) > 1


@needs_x64
def test_a_line_with_states_and_one_by_its_predictor_agree():
    y = np.sin(LONG[:, 0])
    kernel = kernax.Matern52(0.6)
    found = evidence_of(LONG, GRID)(kernel, y, 0.1)
    assert_close(found, evidence_of(LONG, StateSpace())(kernel, y, 0.1), 1e-9)
