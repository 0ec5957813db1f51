"""The seam of linear algebra: every way of holding K, every factor and every kind of weights answer
the same questions alike.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, marked, needs_x32, needs_x64

import kernax
from kernax.core.base.weights import AbstractWeights, PointWeights, UnitWeights
from kernax.core.grid import grid_factor
from kernax.core.grid.grid import GridGram
from kernax.core.grid.grid_factor import GridFactor
from kernax.core.grid.gridding import grid_for
from kernax.core.linalg.cholesky import CholeskyFactor
from kernax.core.linalg.density import factor_of, log_density, rounding_of_inverse
from kernax.core.linalg.factorisation import (
    AbstractCovarianceReduction,
    AbstractDirectFactor,
    AbstractFactor,
    WeightedSystem,
    row_at,
    solve_transposed,
)
from kernax.core.linalg.linear_solvers import (
    AbstractDirectSolver,
    JitteredCholesky,
    factor_by,
    factorise,
)
from kernax.core.linalg.low_rank import LowRankFactor, low_rank
from kernax.core.linalg.solves import solve_lower
from kernax.core.linalg.weighted_solve import weighted_solve, without_border
from kernax.core.line.kalman_factor import KalmanFactor
from kernax.core.line.line import LineGram, OrderAlongLine
from kernax.core.line.smoothing import line_gram
from kernax.core.operators.blocked import BlockedGram
from kernax.core.operators.feature_map import has_few_features
from kernax.core.operators.foreign import as_gram
from kernax.core.operators.gram import Layout, gram_operator, operator_of_prepared
from kernax.core.operators.operators import (
    AbstractCrossGram,
    AbstractGram,
    AbstractStructuredForm,
    DenseGram,
    LowRankGram,
    ScaledGram,
)
from kernax.errors import MemoryBudgetError, NonFiniteError

N = 12
RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(N, 3)), DTYPE)
X = X.at[5, 1].set(X[8, 1])  # two places along a line that are one
FEATURES = jnp.asarray(RNG.normal(size=(N, 4)), DTYPE)
REMAINDER = jnp.asarray(RNG.uniform(0.1, 1, N), DTYPE)
COLUMNS = jnp.asarray(RNG.normal(size=(N, 2)), DTYPE)
WEIGHTS = jnp.asarray(RNG.integers(0, 3, N), DTYPE)
PLACES = jnp.array([7, 0, 3])
LINEAR = kernax.FeatureMap(lambda x: jnp.append(x, 1.0))
DENSE = kernax.gram(LINEAR, X)
FOREIGN = lx.FunctionLinearOperator(
    lambda v: DENSE @ v, jax.ShapeDtypeStruct((N,), DTYPE), lx.positive_semidefinite_tag
)

CELLS = np.stack(np.meshgrid([0.0, 0.4, 1.0], [0.1, 0.2, 0.5, 0.9]), -1).reshape(-1, 2)


def grid_gram(kernel, points):
    points = points.astype(DTYPE)
    kernel = jax.tree.map(lambda leaf: leaf.astype(DTYPE), kernel)
    return GridGram(kernel, jnp.asarray(points), grid_for(kernel, points, None, 10, 10))


GRAMS = {
    "dense": DenseGram(DENSE),
    "blocked": BlockedGram(LINEAR, X, 5),
    "few features": operator_of_prepared(LINEAR, X, Layout(in_features=True)),
    "low rank and a diagonal": LowRankGram(FEATURES, REMAINDER),
    "along a line": LineGram(kernax.On(kernax.Matern32(), 1), X, OrderAlongLine.of(X, 1, 0)),
    "on a grid": grid_gram(kernax.RBF([0.7, 0.5]), CELLS),
    "at regular times": grid_gram(
        kernax.RBF(0.7), np.arange(13)[[5, 1, *range(6, 13), 4, 0, 3], None]
    ),
    "scaled": ScaledGram(DenseGram(DENSE), jnp.asarray(2.5, DTYPE)),
    "of lineax": as_gram(lx.MatrixLinearOperator(DENSE, lx.positive_semidefinite_tag)),
    "a function": as_gram(FOREIGN),
}


# Those with features, of which K has fewer than points.
OF_LOW_RANK = {"few features", "low rank and a diagonal"}


def close(a, b, tolerance=TOLERANCE["value"]):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * float(np.max(np.abs(b))))


TWICE = jnp.array([7, 0, 7])


@eqx.filter_jit
def answers(gram):
    """All that a Gram matrix is asked, in one program; and K."""
    v = COLUMNS[:, 0]
    return {
        "K": gram.as_matrix(),
        "product": gram.mv(v),
        "products": gram.mv(COLUMNS),
        "careful product": gram.compensated_mv(v),
        "squares": gram.squares_in_products(v),
        "diagonal": gram.diagonal(),
        "rows": gram.rows(PLACES),
        "product of columns": gram.columns_product(PLACES, v[:3]),
        "products of columns": gram.columns_product(PLACES, COLUMNS[:3]),
        "one column twice": gram.columns_product(TWICE, COLUMNS[:3]),
        "all columns": gram.columns_product(jnp.arange(N), COLUMNS),
        "submatrix": gram.submatrix(PLACES),
        "stored": gram.stored().as_matrix(),
        "diagonal of lineax": lx.diagonal(gram),
    }


@pytest.mark.parametrize("name", GRAMS)
def test_every_way_of_holding_a_gram_matrix_gives_the_same_answers(name):
    gram = GRAMS[name]
    found = answers(gram)
    K = np.asarray(found.pop("K"))
    v = COLUMNS[:, 0]
    expected = {
        "product": K @ v,
        "products": K @ COLUMNS,
        "careful product": K @ v,
        "squares": (K * np.asarray(v)) ** 2 @ np.ones(N),
        "diagonal": np.diagonal(K),
        "rows": K[PLACES],
        "product of columns": K[:, PLACES] @ v[:3],
        "products of columns": K[:, PLACES] @ COLUMNS[:3],
        "one column twice": K[:, TWICE] @ COLUMNS[:3],
        "all columns": K @ COLUMNS,
        "submatrix": K[np.ix_(PLACES, PLACES)],
        "stored": K,
        "diagonal of lineax": np.diagonal(K),
    }
    assert found.keys() == expected.keys()
    for what, value in expected.items():
        close(found[what], value)
    assert lx.is_positive_semidefinite(gram)
    assert gram.in_size() == gram.out_size() == N
    assert (gram.largest_rank < N) == (name in OF_LOW_RANK)


@needs_x64
@pytest.mark.parametrize("name", ["blocked", "along a line", "on a grid", "at regular times"])
def test_parts_of_a_matrix_free_operator_have_the_derivatives_of_the_matrix(name):
    """Of rows, of a submatrix and of all of it, in the kernel and the points."""
    given = GRAMS[name]

    def of_parts(kernel, points):
        gram = dataclasses.replace(given, kernel=kernel, points=points)
        return gram.rows(PLACES), gram.submatrix(PLACES), gram.as_matrix()

    def of_matrix(kernel, points):
        K = kernax.gram(kernel, points)
        return K[PLACES], K[PLACES[:, None], PLACES[None, :]], K

    def gradient(parts):
        total = lambda at: sum(jnp.sum(jnp.sin(part)) for part in parts(*at))
        return eqx.filter_jit(eqx.filter_grad(total))((given.kernel, given.points))

    for a, b in zip(*map(jax.tree.leaves, map(gradient, (of_parts, of_matrix)))):
        close(a, b, 1e-9)


@needs_x64
@pytest.mark.parametrize("name", ["blocked", "along a line", "on a grid"])
def test_a_matrix_that_is_not_held_is_refused_where_the_kernel_overflows(name):
    gram = dataclasses.replace(GRAMS[name], kernel=1e300 * (1e300 * kernax.RBF()))
    for part in (gram.as_matrix, partial(gram.rows, PLACES), partial(gram.submatrix, PLACES)):
        with pytest.raises(NonFiniteError, match="NaN or inf"):
            part()


@needs_x64
def test_a_matrix_along_a_line_that_does_not_fit_is_refused():
    many = jnp.zeros((300_000, 1))
    gram = LineGram(kernax.Matern32(), many, OrderAlongLine.of(many, 0, 0))
    for whole in (gram.as_matrix, gram.stored):
        with pytest.raises(MemoryBudgetError, match="300000"):
            whole()


@pytest.mark.parametrize("name", GRAMS)
@pytest.mark.parametrize("weights", [UnitWeights(N, DTYPE), PointWeights(WEIGHTS)])
def test_the_symmetric_form_is_the_matrix_between_roots_of_weights(name, weights):
    gram = GRAMS[name]
    shift = weights.shift_of(jnp.asarray(0.3, DTYPE))
    K, matrix, product, diagonal = of_symmetric_form(gram, weights, shift)
    roots = np.sqrt(np.asarray(weights.values))
    expected = roots[:, None] * np.asarray(K) * roots + np.diag(shift)
    close(matrix, expected)
    close(product, expected @ COLUMNS[:, 0])
    close(diagonal, np.diagonal(expected))


@eqx.filter_jit
def of_symmetric_form(gram, weights, shift):
    form = gram.symmetric_form(weights, shift)
    return gram.as_matrix(), form.as_matrix(), form.mv(COLUMNS[:, 0]), lx.diagonal(form)


@pytest.mark.parametrize("block_size", [None, 5])
def test_a_gram_operator_of_two_stacks_is_rectangular_and_has_a_transpose(block_size):
    Z = X[:7] + 1
    operator = gram_operator(kernax.RBF(), X, Z, block_size=block_size)
    K = kernax.gram(kernax.RBF(), X, Z)
    assert (operator.in_size(), operator.out_size()) == (7, N)
    assert not lx.is_positive_semidefinite(operator)
    close(operator.as_matrix(), K)
    close(operator.mv(COLUMNS[:7]), K @ COLUMNS[:7])
    close(operator.T.mv(COLUMNS[:, 0]), K.T @ COLUMNS[:, 0])
    assert isinstance(operator, AbstractCrossGram)
    close(operator.rows(PLACES), K[PLACES])
    with pytest.raises(ValueError, match="ridge goes with one batch"):
        gram_operator(kernax.RBF(), X, Z, ridge=1.0)


MATRIX = DenseGram(DENSE + 0.2 * jnp.eye(N, dtype=DTYPE))
PARAMETER = jnp.asarray(0.5, DTYPE)
WITH_REMOVED = np.ones(N, DTYPE)
WITH_REMOVED[[2, 7]] = 0, 2


class Factored(NamedTuple):
    """A factor, and the matrix that it is asked about.

    Attributes:
        kind: the class of the factor.
        gram: the Gram matrix of a parameter (a lengthscale, or a scale), for points with the
            weights `WITH_REMOVED` or, if False, of one.
        by_numpy: K of the parameter, by NumPy in double precision.
        allows_unlike_noise: whether the factor exists if the noise varies over the points. If not,
            it must say so by its status.
        has_slopes_in_weights: whether the density has derivatives in the weights. If not, functions
            refuse weights that are traced.
    """

    kind: type[AbstractFactor]
    gram: Callable[[Any, bool], AbstractGram]
    by_numpy: Callable[[Any], np.ndarray]
    allows_unlike_noise: bool = True
    has_slopes_in_weights: bool = True


def squared_distances(points, lengthscales):
    scaled = np.asarray(points, float) / lengthscales
    return np.sum((scaled[:, None] - scaled[None, :]) ** 2, -1)


def matern_of_a_column(lengthscale):
    q = np.sqrt(3 * squared_distances(X[:, 1:2], lengthscale))
    return (1 + q) * np.exp(-q)


def rbf(points):
    points = np.asarray(points, DTYPE)
    return lambda lengthscale: np.exp(-squared_distances(points, lengthscale) / 2)


def on_grid(points):
    """The Gram matrix of an RBF on the grid of the points, which is found before compilation."""
    points = jnp.asarray(points, DTYPE)
    kernel = kernax.RBF(PARAMETER)
    grids = [grid_for(kernel, points, weights, 20, 16) for weights in (None, WITH_REMOVED)]
    return lambda lengthscale, weighted: GridGram(kernax.RBF(lengthscale), points, grids[weighted])


TIMES = 0.4 * np.arange(13)[[5, 1, *range(6, 13), 4, 0, 3], None]
FACTORS = {
    "cholesky": Factored(
        CholeskyFactor,
        lambda scale, weighted: DenseGram(scale * DENSE),
        lambda scale: scale * np.asarray(DENSE, float),
    ),
    "low rank": Factored(
        LowRankFactor,
        lambda scale, weighted: LowRankGram(scale * FEATURES, REMAINDER / 10),
        lambda scale: (
            scale**2 * np.asarray(FEATURES, float) @ np.asarray(FEATURES, float).T
            + np.diag(np.asarray(REMAINDER / 10, float))
        ),
    ),
    "along a line": Factored(
        KalmanFactor,
        lambda lengthscale, weighted: LineGram(
            kernax.On(kernax.Matern32(lengthscale), 1), X, OrderAlongLine.of(X, 1, 0)
        ),
        matern_of_a_column,
    ),
    "on a grid": Factored(GridFactor, on_grid(CELLS), rbf(CELLS), False, False),
    "at regular times": Factored(GridFactor, on_grid(TIMES), rbf(TIMES), False, False),
}
SHIFTS = {"alike": np.full(N, 0.01), "unlike": RNG.uniform(0.003, 0.03, N)}


@pytest.mark.parametrize("weighted", [False, True], ids=["unit weights", "weights"])
@pytest.mark.parametrize(
    "name", marked(pytest.mark.slow, FACTORS, "along a line", "on a grid", "at regular times")
)
def test_every_factor_answers_as_the_dense_matrix_or_has_a_bad_status(name, weighted):
    """For noise that is alike at all points and noise that is not: never wrong numbers with a good
    status. A factor that does not exist answers NaN.
    """
    of = FACTORS[name]
    weights = PointWeights(jnp.asarray(WITH_REMOVED)) if weighted else UnitWeights(N, DTYPE)
    eps = float(jnp.finfo(DTYPE).eps)
    for noise, values in SHIFTS.items():
        shift = jnp.asarray(values, DTYPE)
        found = answers_of_a_factor(of, weights, shift)
        status = found.pop("status")
        assert found.pop("jitter") == 0
        if noise == "unlike" and not of.allows_unlike_noise:
            assert status != kernax.RESULTS.successful
            for what, value in found.items():
                # Of a factor on a grid this diagonal is NaN where weights are one.
                some = np.any if what == "diagonal of K P" else np.all
                assert some(np.isnan(value)), what
            continue
        assert status == kernax.RESULTS.successful
        rounding = float(found.pop("rounding"))
        of_inverse = float(found.pop("rounding of the inverse"))
        expected = answers_of_the_dense_matrix(of, weights, shift, found)
        for what, value in expected.items():
            # Measured: values 162 eps; the diagonal of K P 1.7e4 eps at a removed point; slopes 990
            # eps, in the scale of K by Cholesky 1.0e4 eps.
            tolerance = (3e4 if what.startswith(("slope", "diagonal of")) else 1e3) * eps
            np.testing.assert_allclose(
                found[what], value, rtol=0, atol=tolerance * np.max(np.abs(value)), err_msg=what
            )
        determinant = expected["log determinant"]
        off = abs(float(found["log determinant"]) - determinant)
        # At most 1.07 times the estimate, and 0.41 times it without the digits in which the
        # determinant itself is stored.
        assert off < rounding + 2 * eps * abs(determinant), (off / eps, rounding / eps)
        # Entries of M are rounded to eps, but the error of a determinant may vanish by chance.
        # Estimates are at most 116 eps n.
        assert eps < rounding < 1e3 * off + 300 * eps * N, (off / eps, rounding / eps)
        diagonal = expected["inverse diagonal"]
        off = float(np.max(np.abs(found["inverse diagonal"] - diagonal) / diagonal))
        # At most 1.1 times the estimate.
        assert off < 3 * of_inverse, (off / eps, of_inverse / eps)
        assert eps < of_inverse < 1e3 * off + 300 * eps * N, (off / eps, of_inverse / eps)


@eqx.filter_jit
def answers_of_a_factor(of, weights, shift):
    """A factor, and what it is asked, in one program."""
    system = WeightedSystem(of.gram(PARAMETER, weights.removes), weights, shift)
    factor, status, stats = factor_of(system)
    assert isinstance(factor, of.kind)
    white = factor.whitened(COLUMNS)
    products, diagonal = factor.products_and_diagonal(system, COLUMNS)
    inverse = factor.inverse_of(system)

    def density(arguments):
        given = PointWeights(arguments["weights"]) if "weights" in arguments else weights
        gram = of.gram(arguments["K"], weights.removes)
        return log_density(WeightedSystem(gram, given, arguments["noise"]), arguments["y"], factor)

    arguments = {"K": PARAMETER, "noise": shift, "y": COLUMNS}
    if weights.removes and of.has_slopes_in_weights:
        arguments["weights"] = weights.values
    value, slopes = jax.value_and_grad(density)(arguments)
    return {
        "status": status,
        "jitter": stats["jitter"],
        "rounding": stats["rounding"],
        "rounding of the inverse": rounding_of_inverse(system, factor),
        "solve": factor.solve(COLUMNS[:, 0]),  # of columns: the products
        "square of the whitened": white.T @ white,
        "inverse": factor.inverse(),
        "inverse diagonal": factor.inverse_diagonal(),
        "log determinant": factor.log_determinant(),
        "products": products,
        "diagonal": diagonal,
        "inverse of the system": inverse.as_matrix(),
        "transposed products": inverse.transposed_mv(COLUMNS),
        "diagonal of K P": inverse.diagonal_of_product(system),
        "trace": inverse.trace_with(system),
        "log density": value,
        **{f"slope in {what}": slope for what, slope in slopes.items()},
    }


def answers_of_the_dense_matrix(of, weights, shift, asked):
    """The same by NumPy, in double precision."""
    at = {"K": PARAMETER, "noise": shift, "weights": weights.values, "y": COLUMNS}
    at = {what: np.asarray(value, complex) for what, value in at.items()}

    def density(K, noise, weights, y):
        T = weights[:, None] * of.by_numpy(K) + np.diag(noise)
        phase, logarithm = np.linalg.slogdet(T)
        constant = np.sum(weights * np.log(2 * np.pi) - (1 - weights) * np.log(noise))
        square = np.sum(y * np.linalg.solve(T, weights[:, None] * y))
        return -(y.shape[1] * (logarithm + np.log(phase) + constant) + square) / 2

    def slope(what):
        # f(x + i h) is f(x) + i h f'(x) for an analytic function that is real on the reals.
        found = np.zeros(at[what].shape)
        for index in np.ndindex(found.shape):
            moved = at[what].copy()
            moved[index] += 1e-20j
            found[index] = density(**at | {what: moved}).imag / 1e-20
        return found

    w = np.real(at["weights"])
    y = np.real(at["y"])
    noise = np.diag(np.real(at["noise"]))
    K = of.by_numpy(float(PARAMETER))
    M = np.sqrt(w)[:, None] * K * np.sqrt(w) + noise
    inverse = np.linalg.inv(M)
    P = np.linalg.inv(w[:, None] * K + noise)
    slopes = {f"slope in {what}": what for what in at}
    return {
        "solve": inverse @ y[:, 0],
        "square of the whitened": y.T @ inverse @ y,
        "inverse": inverse,
        "inverse diagonal": np.diagonal(inverse),
        "log determinant": 2 * np.sum(np.log(np.diagonal(np.linalg.cholesky(M)))),
        "products": P.T @ y,
        "diagonal": np.diagonal(P),
        "inverse of the system": P,
        "transposed products": P.T @ y,
        "diagonal of K P": np.diagonal(K @ P),
        "trace": float(N),
        "log density": density(**at).real,
        **{name: slope(what) for name, what in slopes.items() if name in asked},
    }


class FormWithoutFactor(AbstractStructuredForm):
    gram: Any
    weights: AbstractWeights
    shift: jax.Array


def test_a_structured_form_without_a_registered_factor_is_refused():
    """Catches the Cholesky factor of n^2 numbers where an import is missing."""
    form = FormWithoutFactor(DenseGram(DENSE), UnitWeights(N, DTYPE), jnp.ones(N, DTYPE))
    with pytest.raises(TypeError, match=r"FormWithoutFactor: import the module that registers it"):
        factorise(form)


class HoldsAll(DenseGram):
    """A user's Gram matrix, whose symmetric form is one of another Gram matrix."""

    other: AbstractGram

    def symmetric_form(self, weights, shift) -> Any:
        return self.other.symmetric_form(weights, shift)


READERS = {
    "low rank and a diagonal": low_rank,
    "along a line": line_gram,
    "on a grid": grid_factor.grid_gram,
}


@pytest.mark.parametrize("name", READERS)
def test_a_form_of_another_gram_matrix_is_refused_by_name_where_its_factor_reads_it(name):
    """Catches an AttributeError of a factor that reads `system.gram` as its own class."""
    assert READERS[name](system(GRAMS[name], UnitWeights(N, DTYPE), 0.3)) is GRAMS[name]
    gram = HoldsAll(DENSE, GRAMS[name])
    given = system(gram, UnitWeights(N, DTYPE), 0.3)
    kind = type(gram.other).__name__
    words = rf"HoldsAll\.symmetric_form .* to be a {kind}: return an AbstractStructuredForm"
    with pytest.raises(TypeError, match=words):
        READERS[name](given)
    if name == "low rank and a diagonal":
        factor, *_ = eqx.filter_jit(factor_of)(given)
        with pytest.raises(TypeError, match=words):
            eqx.filter_grad(log_density)(given, COLUMNS, factor)


SCALES = np.array([1, 1e-2, 1e-3, 1], np.float32)


def in_double(features, y, noise):
    """The log evidence of features, by a least squares problem in double precision: the square of
    its residual is the quadratic form.
    """
    n, d = features.shape
    deviation = np.sqrt(float(noise))
    Q, R = np.linalg.qr(np.vstack([features / deviation, np.eye(d)]).astype(float))
    target = np.append(y / deviation, np.zeros(d))
    left = target - Q @ (Q.T @ target)
    determinant = 2 * np.log(np.abs(np.diagonal(R))).sum() + n * np.log(float(noise))
    return -(left @ left + determinant + n * np.log(2 * np.pi)) / 2


def in_single(features, y, noise):
    """The log evidence of features, and the rounding that it is estimated to have."""
    gram = LowRankGram(jnp.asarray(features), jnp.zeros(len(y), DTYPE))
    one = system(gram, UnitWeights(len(y), DTYPE), noise)
    factor, _, stats = jax.jit(factor_of)(one)
    return float(log_density(one, jnp.asarray(y)[:, None], factor)), float(stats["rounding"])


@needs_x32
@pytest.mark.parametrize("seed", [0, 1])
def test_the_evidence_of_features_of_unlike_scales_is_that_of_double_precision(seed):
    """Catches `I + R R^T` formed and then factorised, which loses the small features: 1.45 off."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(2000, 3)).astype(np.float32)
    y = (inputs @ np.array([1, -2, 0.5]) + 0.1 * rng.normal(size=2000)).astype(np.float32)
    features = SCALES * np.column_stack([inputs, np.ones(2000, np.float32)])
    ours, _ = in_single(features, y, np.float32(1e-2))
    expected = in_double(features, y, np.float32(1e-2))
    assert abs(ours - expected) < 0.1  # 0.002 and 0.061, of -38904


@needs_x32
@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6])
def test_the_rounding_of_a_few_features_is_as_estimated_for_likely_targets(noise):
    """Catches the product of targets with a solution, which cancels: 1 off at a noise of 1e-4."""
    noise = np.float32(noise)
    shares = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        features = SCALES * rng.normal(size=(2000, 4)).astype(np.float32)
        y = features @ rng.normal(size=4) + np.sqrt(noise) * rng.normal(size=2000)
        y = y.astype(np.float32)
        ours, rounding = in_single(features, y, noise)
        expected = in_double(features, y, noise)
        digits = abs(expected) * float(jnp.finfo(DTYPE).eps)
        # 1.6 times the estimate at most, of 12 draws.
        assert abs(ours - expected) < 3 * rounding + digits, (seed, ours, expected, rounding)
        shares.append(rounding / (abs(ours - expected) + digits))
    assert np.median(shares) < 10


class EigenFactor(AbstractDirectFactor):
    """`M = Q L Q^T`, as a user may write it."""

    values: jax.Array
    vectors: jax.Array
    jitter: jax.Array
    exists: jax.Array

    def solve(self, B):
        inside = self.vectors.T @ B.reshape(len(B), -1)
        return (self.vectors @ (inside / self.values[:, None])).reshape(B.shape)

    def solve_and_report(self, B):
        return self.solve(B), (self.result, {"jitter": self.jitter})

    def whitened(self, B):
        return self.vectors.T @ B / jnp.sqrt(self.values)[:, None]

    def inverse(self):
        return self.solve(jnp.eye(len(self.values), dtype=self.values.dtype))

    def inverse_diagonal(self):
        return jnp.diagonal(self.inverse())

    def log_determinant(self):
        return jnp.sum(jnp.log(self.values))

    def rounding(self, diagonal):
        return jnp.finfo(diagonal.dtype).eps * jnp.max(diagonal) / jnp.min(self.values)

    def rounding_of_inverse(self, diagonal):
        return self.rounding(diagonal)


class ConditioningEigenFactor(EigenFactor):
    def covariance_reduction(self, system):
        return EigenReduction(system.gram, system.weights.given, system.shift, self)


class EigenReduction(AbstractCovarianceReduction):
    gram: DenseGram
    weights: jax.Array | None
    shift: jax.Array
    factor: EigenFactor

    def own_factor(self):
        return self.factor

    def at(self, kernel, X, x, z):
        left, right = row_at(kernel, X, x), row_at(kernel, X, z)
        solved = solve_transposed(self.system, self.factor, right[:, None])
        return left @ self.system.weights.times(solved)[:, 0]


class Eigenvectors(AbstractDirectSolver):
    kind: type = eqx.field(static=True)

    def init(self, operator, options):
        values, vectors = jnp.linalg.eigh(operator.as_matrix())
        return self.kind(values, vectors, jnp.zeros_like(values[0]), values[0] > 0)


@pytest.mark.slow
@needs_x64
def test_a_solver_with_a_factor_of_ones_own_conditions_a_process():
    """Mean, variance, evidence and its gradient, with weights of 0, 1 and 2, by the methods that
    every factor has; without `covariance_reduction` the exception names it.
    """
    solver = Eigenvectors(ConditioningEigenFactor)
    y = COLUMNS[:, 0]

    def answers(solver):
        def evidence(lengthscale, weights):
            kernel = kernax.RBF(lengthscale)
            return kernax.log_marginal_likelihood(kernel, X, y, 0.1, weights=weights, solver=solver)

        process = kernax.GaussianProcess(kernax.RBF(0.8))
        posterior = kernax.condition(process, X, y, 0.1, weights=WEIGHTS, solver=solver).value
        slopes = jax.jit(jax.grad(evidence, (0, 1)))(jnp.asarray(0.8), WEIGHTS)
        held_out = X[0] + 0.3
        return [posterior.mean(held_out), posterior.variance(held_out), *slopes]

    for ours, usual in zip(answers(solver), answers(None), strict=True):
        close(ours, usual, 1e-9)
    with pytest.raises(ValueError, match="implement its method covariance_reduction"):
        kernax.condition(
            kernax.GaussianProcess(kernax.RBF()), X, y, 0.1, solver=Eigenvectors(EigenFactor)
        )


@needs_x64
@pytest.mark.parametrize("solver", [JitteredCholesky(), kernax.solvers.ConjugateGradient()])
def test_options_that_would_be_ignored_are_refused(solver):
    operator = kernax.gram_operator(LINEAR, X, ridge=1.0)
    with pytest.raises(ValueError, match="takes no options, but options has preconditioner"):
        kernax.solvers.solve(operator, COLUMNS, solver, options={"preconditioner": operator})


@needs_x32
def test_variances_of_features_that_are_nearly_alike_are_those_of_double_precision():
    """Catches `I + F^T F / noise` formed and then factorised, where the ones are lost."""
    noise = 1e-3
    inputs = (200 + np.linspace(-1, 1, 500))[:, None].astype(np.float32)
    process = kernax.GaussianProcess(kernax.FeatureMap(lambda x: jnp.append(x, 1.0)))

    def variance(y):  # under jit, where nothing warns
        posterior = kernax.condition(process, inputs, y, noise, throw=False).value
        return posterior.variance(jnp.asarray([203], DTYPE))

    ours = jax.jit(variance)(jnp.zeros(500, DTYPE))
    F = np.append(inputs.astype(float), np.ones((500, 1)), 1)
    at = np.array([203, 1.0])
    expected = at @ np.linalg.solve(np.eye(2) + F.T @ F / noise, at)
    np.testing.assert_allclose(ours, expected, rtol=1e-3)  # 1.4e-5; it was 0.28


@needs_x64
def test_a_solver_of_lineax_is_a_factor_that_only_solves_and_takes_its_options():
    operator = MATRIX
    solver = lx.CG(rtol=1e-6, atol=1e-6)
    factor = factor_by(solver, operator)
    close(factor.solve(COLUMNS), np.linalg.solve(operator.as_matrix(), COLUMNS), 1e-3)
    for asked in (factor.inverse, factor.inverse_diagonal, factor.log_determinant):
        with pytest.raises(ValueError, match=r"CG has no .*: use JitteredCholesky"):
            asked()
    preconditioner = lx.MatrixLinearOperator(
        jnp.asarray(np.linalg.inv(operator.as_matrix())), lx.positive_semidefinite_tag
    )
    helped = kernax.solvers.solve(
        operator, COLUMNS, solver, options={"preconditioner": preconditioner}
    )
    assert (
        helped.stats["num_steps"]
        < kernax.solvers.solve(operator, COLUMNS, solver).stats["num_steps"]
    )


@needs_x64
@pytest.mark.parametrize("border", [jnp.ones(N), jnp.asarray(RNG.uniform(0.5, 1, N))])
def test_the_bordered_solve_satisfies_both_of_its_equations(border):
    T = np.asarray(MATRIX.as_matrix()) * np.linspace(1, 2, N)[:, None]
    # With these numbers along.T^-1 border > 0, as it is in every problem of a learner.
    along = jnp.asarray(np.random.default_rng(0).uniform(0.5, 1, N))
    solved = jnp.linalg.solve(T, jnp.column_stack([COLUMNS, border]))
    assert along @ solved[:, -1] > 0
    total = jnp.array([0.0, 3.0])
    A, b = without_border(solved[:, :-1], solved[:, -1], total, along=along)
    np.testing.assert_allclose(T @ A + np.outer(border, b), COLUMNS, atol=1e-10)
    np.testing.assert_allclose(along @ A, total, atol=1e-10)


@needs_x64
def test_the_bordered_solve_of_columns_taken_together_satisfies_both_of_its_equations():
    """T maps all entries of A at once; the constant of each column has a column of the border."""
    c = 3
    T = RNG.normal(size=(N, c, N, c)) + np.einsum("ij,kl->ikjl", 9 * np.eye(N), np.eye(c))
    inverse = np.linalg.tensorinv(T, 2)
    rhs = RNG.normal(size=(N, c))
    border = RNG.normal(size=(N, c, c)) + np.eye(c)
    along = jnp.asarray(RNG.uniform(0.5, 1, N))
    total = jnp.array([0.0, 3.0, -1.0])
    of_rhs = jnp.asarray(np.tensordot(inverse, rhs, 2))
    of_border = jnp.asarray(np.tensordot(inverse, border, 2))
    A, b = without_border(of_rhs, of_border, total, along=along, bias_of=jnp.linalg.solve)
    np.testing.assert_allclose(np.tensordot(T, A, 2) + border @ b, rhs, atol=1e-10)
    np.testing.assert_allclose(along @ A, total, atol=1e-10)


def system(gram, weights, ridge):
    return WeightedSystem.of(gram, weights, jnp.asarray(ridge, DTYPE))


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("weighted", [False, True])
def test_density_and_inverse_of_few_features_are_those_of_the_dense_matrix(weighted):
    """Values, gradients and second derivatives, in the features, the noise and the weights: for a
    weight of zero as well, where the square root has none.
    """
    y = COLUMNS

    def of(gram, noise, weights):
        chosen = PointWeights(weights) if weighted else UnitWeights(N, DTYPE)
        system = WeightedSystem.of(gram, chosen, noise)
        factor, _, _ = factor_of(system)
        inverse = factor.inverse_of(system)
        return log_density(system, y, factor) + jnp.sum(jnp.sin(inverse.diagonal()))

    def narrow(features, noise, weights):
        return of(LowRankGram(features, REMAINDER), noise, weights)

    def dense(features, noise, weights):
        return of(DenseGram(features @ features.T + jnp.diag(REMAINDER)), noise, weights)

    arguments = FEATURES, jnp.asarray(0.3), WEIGHTS
    close(jax.jit(narrow)(*arguments), jax.jit(dense)(*arguments), 1e-10)
    for ours, theirs in zip(
        jax.jit(jax.grad(narrow, (0, 1, 2)))(*arguments),
        jax.jit(jax.grad(dense, (0, 1, 2)))(*arguments),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)
    second = [
        jax.jit(jax.hessian(function, (1, 2)))(*arguments)[1][1] for function in (narrow, dense)
    ]
    np.testing.assert_allclose(*second, rtol=1e-7, atol=1e-7)


@needs_x64
def test_products_of_the_inverse_are_those_of_the_dense_inverse():
    one = system(GRAMS["low rank and a diagonal"], PointWeights(WEIGHTS), 0.3)
    T = np.diag(WEIGHTS) @ np.asarray(one.gram.as_matrix()) + np.diag(one.shift)
    for gram in (one.gram, one.gram.stored(), DenseGram(one.gram.as_matrix())):
        other = system(gram, PointWeights(WEIGHTS), 0.3)
        product, transposed, diagonal, trace = of_inverse(other)
        close(product, np.linalg.solve(T, COLUMNS), 1e-10)
        close(transposed, np.linalg.solve(T.T, COLUMNS), 1e-10)
        close(diagonal, np.diagonal(np.linalg.inv(T)), 1e-10)
        close(trace, N, 1e-10)


@jax.jit
def of_inverse(one):
    P = factor_of(one)[0].inverse_of(one)
    return P.mv(COLUMNS), P.transposed_mv(COLUMNS), P.diagonal(), P.trace_with(one)


@needs_x64
def test_in_a_batch_the_inverse_is_right_with_removed_points_and_without():
    """Values and gradients in the matrix, the ridge and the weights, one of which is zero in every
    second member; against differences of NumPy's inverse.
    """
    rng = np.random.default_rng(5)
    roots = rng.normal(size=(4, 6, 6))
    grams = roots @ roots.transpose(0, 2, 1)
    weights = rng.uniform(0.5, 2, (4, 6))
    weights[::2, 1] = 0
    direction = rng.normal(size=(6, 6))

    def ours(K, ridge, w):
        one = WeightedSystem.of(DenseGram(K), PointWeights(w), ridge)
        inverse = factor_of(one)[0].inverse_of(one)
        return jnp.sum(direction * inverse.as_matrix())

    def theirs(K, ridge, w):
        return np.sum(direction * np.linalg.inv(w[:, None] * K + ridge * np.eye(6)))

    def slope(K, ridge, w, dK, dw):
        h = 1e-6
        up, down = (theirs(K + e * dK, ridge + e, w + e * dw) for e in (h, -h))
        return (up - down) / (2 * h)

    value_and_grad = jax.jit(jax.vmap(jax.value_and_grad(ours, (0, 1, 2)), (0, None, 0)))
    values, (in_K, in_ridge, in_w) = value_and_grad(grams, jnp.asarray(0.3), weights)
    for i in range(4):
        np.testing.assert_allclose(values[i], theirs(grams[i], 0.3, weights[i]), rtol=1e-9)
        dK = rng.normal(size=(6, 6))
        dK = dK + dK.T
        dw = rng.normal(size=6)
        found = np.sum(in_K[i] * dK) + in_ridge[i] + in_w[i] @ dw
        expected = slope(grams[i], 0.3, weights[i], dK, dw)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_features_of_sums_scales_parts_and_constants_are_known():
    kernels = (
        2.0 * LINEAR,
        LINEAR + 3.0,
        kernax.On(LINEAR, 1),
        2.0 * kernax.On(LINEAR, [0, 2]) + LINEAR,
    )
    for kernel in kernels:
        phi = kernel.explicit_features()
        assert phi is not None
        close(phi(X[0]) @ phi(X[1]), kernel(X[0], X[1]))
        assert has_few_features(kernel, X)
        y = X[:, 0]
        assert "features" in kernax.kernel_ridge(kernel, X, y, 0.5).stats
    for kernel in (kernax.RBF(), LINEAR + kernax.RBF(), 2.0 * kernax.RBF(), LINEAR * LINEAR):
        assert kernel.explicit_features() is None


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("weights", [None, pytest.param(WEIGHTS, marks=pytest.mark.nightly)])
def test_a_process_of_few_features_is_bayesian_linear_regression(weights):
    """Against the same kernel without known features: mean, variance, evidence, leave-one-out and
    their derivatives; and conditioned twice.
    """
    hidden = kernax.Custom(lambda _, x, z: x @ z + 1.0)
    y = X[:, 0] ** 2

    def figures(kernel, weights):
        process = kernax.condition(kernax.GaussianProcess(kernel), X, y, 0.3, weights=weights)
        again = kernax.condition(process.value, X[:3] + 1, y[:3], 0.5).value
        return jnp.concatenate(
            [
                jax.vmap(process.value.mean)(X[:2] - 1),
                jax.vmap(process.value.variance)(X[:2] - 1),
                jax.vmap(again.variance)(X[:2] - 1),
                kernax.log_marginal_likelihood(kernel, X, y, 0.3, weights=weights)[None],
                kernax.leave_one_out(kernel, X, y, 0.3, weights=weights, bias=True),
            ]
        )

    @partial(jax.jit, static_argnums=0)
    def with_derivatives(kernel, weights):
        if weights is None:
            return figures(kernel, weights), jnp.zeros(0)
        twice = lambda weights: 2 * (figures(kernel, weights),)
        derivatives, values = jax.jacrev(twice, has_aux=True)(weights)
        return values, derivatives

    ours, theirs = (with_derivatives(kernel, weights) for kernel in (LINEAR, hidden))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-7, atol=1e-9)


@needs_x64
def test_a_gram_of_ones_own_goes_through_the_solve_of_every_learner():
    """Catches a seam that asks for types: an operator that it has never seen, of products alone."""
    own = as_gram(FOREIGN)
    rhs = COLUMNS
    for weights in (UnitWeights(N, DTYPE), PointWeights(WEIGHTS)):
        W = np.diag(weights.values)
        expected = np.linalg.solve(W @ np.asarray(DENSE) + 0.3 * np.eye(N), rhs)
        solve = eqx.filter_jit(weighted_solve)
        A, result, _ = solve(system(own, weights, 0.3), rhs, JitteredCholesky())
        assert result == kernax.RESULTS.successful
        np.testing.assert_allclose(A, expected, rtol=1e-9)


@pytest.mark.parametrize("layout", [Layout(), Layout(block_size=5), Layout(in_features=True)])
def test_a_layout_decides_how_the_matrix_is_held_and_nothing_else(layout):
    gram = operator_of_prepared(LINEAR, X, layout)
    assert gram.is_dense == layout.is_dense
    close(gram.as_matrix(), DENSE)


class KeepsVariances(kernax.AbstractKernel):
    """The kernel by way of a few points, with its own variances on the diagonal (Snelson &
    Ghahramani 2006): features and a diagonal.
    """

    kernel: kernax.AbstractKernel
    inducing: jax.Array

    def __call__(self, x, z):
        return self.kernel(x, x) if z is x else jnp.sum(self.features(x) * self.features(z))

    def features(self, x):
        lower = jnp.linalg.cholesky(kernax.gram(self.kernel, self.inducing))
        row = jax.vmap(lambda u: self.kernel(u, x))(self.inducing)
        return solve_lower(lower, row)

    def explicit_features(self):
        return self.features

    def low_rank(self):
        def of_stack(X):
            features = jax.vmap(self.features)(X)
            variances = jax.vmap(lambda x: self.kernel(x, x))(X)
            return features, variances - jnp.sum(features**2, 1)

        return of_stack


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "of", [lambda k: k, lambda k: 2.5 * k, lambda k: k + 1.0, lambda k: kernax.On(k, np.array([0]))]
)
def test_a_diagonal_beside_features_is_kept_by_scales_sums_and_parts(of):
    """However K is held, it is one matrix."""
    kernel = of(KeepsVariances(kernax.RBF(0.8), X[::4, :1]))
    points = X[:, :1]
    held = eqx.filter_jit(operator_of_prepared)(kernel, points, Layout(in_features=True))
    assert isinstance(held, LowRankGram)
    assert jnp.max(held.remainder) > 0.1
    close(held.as_matrix(), kernax.gram(kernel, points))


@pytest.mark.nightly
@needs_x64
def test_a_kernel_of_features_and_a_diagonal_reaches_learners_by_its_registration():
    x = np.linspace(-2, 2, 24)
    X = jnp.asarray(x[:, None])
    y = jnp.asarray(np.sin(3 * x))
    inducing = X[::5]
    noise = 0.1

    def evidence(lengthscale):
        kernel = KeepsVariances(kernax.RBF(lengthscale), inducing)
        return kernax.log_marginal_likelihood(kernel, X, y, noise)

    def dense_evidence(lengthscale):
        kernel = kernax.RBF(lengthscale)
        K = kernax.gram(kernel, X)
        cross = kernax.gram(kernel, X, inducing)
        within = cross @ jnp.linalg.solve(kernax.gram(kernel, inducing), cross.T)
        C = within + jnp.diag(jnp.diagonal(K - within)) + noise * jnp.eye(len(y))
        quadratic = y @ jnp.linalg.solve(C, y)
        return -(quadratic + jnp.linalg.slogdet(C)[1] + len(y) * jnp.log(2 * jnp.pi)) / 2

    at = jnp.asarray(0.8)
    close(evidence(at), dense_evidence(at))
    for order in (jax.grad, jax.hessian):
        close(order(evidence)(at), order(dense_evidence)(at), TOLERANCE["gradient"])
    ridge = kernax.kernel_ridge(KeepsVariances(kernax.RBF(0.8), inducing), X, y, noise)
    assert int(ridge.stats["features"]) == len(inducing)
