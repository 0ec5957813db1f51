"""Which route to take: what is said of each against what its call does."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, FUSED, marked, needs_x64

import kernax
from kernax.scale.recommendation import (
    BLOCKS,
    CENTRES,
    FEATURES,
    GRID,
    INDUCING,
    LINE,
    PRODUCTS,
    RANDOM,
    WHOLE,
)
from kernax.types import Route

GIB = 2**30
MATERN = kernax.Matern32(0.5)
KEY = jax.random.key(0)


def recommended(kernel, n, d, **given):
    return kernax.recommend(kernel, n, d, **{"memory": 16 * GIB, **given})


def named(recommendation, name):
    (route,) = [route for route in recommendation.routes if route.name == name]
    return route


@needs_x64
def test_few_points_are_fitted_by_the_whole_matrix():
    assert recommended(MATERN, 1000, 3).best.name == WHOLE


@needs_x64
def test_a_line_is_taken_where_there_is_one():
    assert recommended(MATERN, 200_000, 1).best.name == LINE
    picked = kernax.On(MATERN, 1)
    assert recommended(picked, 200_000, 3).best.name == LINE
    assert "more than one column" in named(recommended(MATERN, 200_000, 3), LINE).impossible
    assert "no state-space model" in named(recommended(kernax.RBF(), 1000, 1), LINE).impossible


@needs_x64
def test_the_grid_of_one_column_is_offered_for_equal_steps():
    """Catches kernels of one column that are refused for not being products over columns."""
    route = named(recommended(kernax.RBF(0.5), 200_000, 1), GRID)
    assert route.impossible is None
    assert route.given == "X has equal steps along its column"
    assert "solver=kernax.solvers.Grid()" in route.call
    of_lines = named(recommended(kernax.Linear(), 200_000, 1), GRID)
    assert "Linear is not known to be stationary" in of_lines.impossible


@needs_x64
def test_many_points_are_fitted_over_centres_or_in_features():
    by_features = kernax.FeatureMap(jnp.asarray)
    assert recommended(by_features, 200_000, 3).best.name == FEATURES
    roomy = recommended(kernax.RBF(), 200_000, 8, accuracy=0.05)
    assert roomy.best.name in (INDUCING, CENTRES)
    tight = recommended(kernax.RBF(), 200_000, 8, accuracy=0.05, memory=GIB / 2)
    assert tight.best.name == CENTRES
    assert "holds" in named(tight, WHOLE).impossible


# What `benchmarks.many_points` measures on two cores: the most exact way within a minute.
MEASURED = {1000: WHOLE, 10_000: WHOLE, 100_000: INDUCING, 1_000_000: CENTRES}


@needs_x64
@pytest.mark.parametrize("n", MEASURED)
def test_the_rules_recommend_what_was_measured_to_take_less_than_a_minute(n):
    """Catches a method that is recommended for more points than it is for, and one that is exact
    and is not taken.
    """
    assert recommended(kernax.RBF(), n, 5, accuracy=0.05).best.name == MEASURED[n]


@needs_x64
def test_features_that_are_not_few_are_no_better_than_the_whole_matrix():
    few = kernax.FeatureMap(jnp.asarray)
    assert recommended(few, 400, 100).best.name == FEATURES
    many = recommended(few, 400, 101)
    assert many.best.name == WHOLE
    assert "slow if there are many features" in str(many)


@needs_x64
def test_an_error_that_is_not_allowed_leaves_out_what_makes_it():
    exact = recommended(kernax.RBF(), 20_000, 8, accuracy=1e-3, memory=4 * GIB)
    assert exact.best.name == PRODUCTS
    assert "1000000 centres" in named(exact, CENTRES).impossible
    slow = recommended(kernax.RBF(), 200_000, 8, accuracy=1e-3)
    assert slow.best.name == PRODUCTS
    assert slow.best.slow == "beyond some 20000 points"
    assert "conjugate gradients: " in str(slow)
    nothing = recommended(kernax.RBF(), 200_000, 8, accuracy=1e-15, memory=4 * GIB)
    with pytest.raises(ValueError, match="no method is possible"):
        _ = nothing.best


@needs_x64
def test_the_number_of_centres_and_frequencies_is_what_the_accuracy_asks_for():
    of_one_per_cent = recommended(kernax.RBF(), 200_000, 8, accuracy=0.01)
    assert "10000, key" in named(of_one_per_cent, CENTRES).call
    assert "(kernel, 400, 8, key" in named(recommended(MATERN, 9000, 8, accuracy=0.05), RANDOM).call


SUMS = {
    "one term": (MATERN, 2, 400),
    # One weighs nearly all, so that a half of the frequencies, which it has, must do.
    "two terms": (kernax.RBF(0.5) + 0.01 * MATERN, 2, 785),
    "equal terms": (kernax.RBF(0.5) + MATERN, 2, 400),
    "a fixed term": (MATERN + kernax.Constant(1.0), 2, 101),
    "harmonics": (kernax.Periodic(), 1, 25),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", marked(pytest.mark.nightly, SUMS, "one term", "a fixed term"))
def test_frequencies_of_sums_are_as_many_as_their_error_asks_for(name):
    """Catches calls that ask for fewer frequencies than there are terms, and errors of sums that
    are taken for those of one term. Root mean squares over pairs of points that are far apart are
    measured at 0.3 to 0.9 of what is said.
    """
    kernel, d, count = SUMS[name]
    route = named(recommended(kernel, 9000, d, accuracy=0.05), RANDOM)
    assert f"(kernel, {count}, {d}, key=key)" in route.call
    X = np.random.default_rng(0).uniform(0, 3, (200, d)).astype(DTYPE)
    features = kernax.random_fourier_features(kernel, count, d, key=KEY)
    K = np.asarray(kernax.gram(kernel, X))
    off = np.asarray(kernax.gram(features, X)) - K
    rounding = 1e3 * float(np.finfo(DTYPE).eps)
    assert np.sqrt(np.mean(off**2)) <= (route.relative + rounding) * K[0, 0]
    assert route.relative <= 0.05 * (1 + 1e-6)


def test_possible_routes_come_first_and_all_are_there():
    recommendation = recommended(kernax.RBF(), 30_000, 3)
    possible = [route.impossible is None for route in recommendation.routes]
    assert possible == sorted(possible, reverse=True)
    assert len({route.name for route in recommendation.routes}) == 9
    for route in recommendation.routes:
        if route.impossible is None:
            assert 0 < route.held <= recommendation.memory
            assert route.operations.startswith("O(n")


def test_it_prints_what_to_do_first():
    words = str(recommended(MATERN, 200_000, 1))
    head, first, call, *_ = words.splitlines()
    assert head.startswith("200000 points (1,), 16.0 GiB of memory, accuracy 0.02")
    assert first.startswith("-> state space:")
    assert first.endswith("exact to rounding")
    assert "solver=kernax.solvers.StateSpace()" in call
    assert repr(recommended(MATERN, 200_000, 1)) == words
    of_two_columns = str(recommended(MATERN, 200_000, 2))
    assert "not possible, Matern32 is not a product over columns" in of_two_columns


@needs_x64
def test_without_a_figure_the_device_is_asked_for_its_memory():
    recommendation = kernax.recommend(MATERN, 500, 1)
    assert recommendation.memory > GIB / 4
    assert recommendation.best.name in (WHOLE, LINE)


@needs_x64
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"n": 0}, "n must be a positive integer"),
        ({"d": 0}, "d must be a positive integer"),
        ({"accuracy": 0.0}, r"accuracy must be in \(0, 1\)"),
        ({"memory": -1}, "memory must be a positive number of bytes"),
        ({"memory": math.inf}, "memory must be a positive number of bytes, but is inf"),
        ({"dtype": jnp.float16}, "dtype must be float32 or float64, but is float16"),
        ({"kernel": kernax.RBF([1.0, 2.0]), "d": 3}, r"shape \(2,\).*shape \(3,\)"),
    ],
)
def test_bad_input_is_refused_by_name(given, words):
    arguments = {"kernel": MATERN, "n": 100, "d": 3} | given
    with pytest.raises(ValueError, match=words):
        kernax.recommend(**arguments)


def data(route: Route, n: int, d: int):
    """Points and targets for a route: a grid for that of grids."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (n, d))
    if route.name == GRID:
        side = round(n ** (1 / d))
        X = np.stack(np.meshgrid(*[np.linspace(0, 3, side)] * d), -1).reshape(-1, d)
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=len(X))
    return X.astype(DTYPE), y.astype(DTYPE)


def mean_of(value):
    """The mean of a process, or a function itself."""
    return value.mean if isinstance(value, kernax.GaussianProcess) else value


# Each route, a kernel and a number of columns that has it.
CALLS = {
    WHOLE: (MATERN, 2),
    FEATURES: (kernax.FeatureMap(jnp.asarray) + kernax.Constant(1.0), 2),
    LINE: (MATERN, 1),
    GRID: (kernax.RBF(0.5), 2),
    PRODUCTS: (MATERN, 2),
    BLOCKS: (MATERN, 2),
    INDUCING: (MATERN, 2),
    CENTRES: (MATERN, 2),
    RANDOM: (MATERN, 2),
}
N = 1024


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    marked(
        pytest.mark.nightly,
        CALLS,
        "explicit features",
        "state space",
        "conjugate gradients",
        "sketch and project",
        "inducing points",
        "falkon",
        "random features",
    ),
)
def test_a_recommended_call_works_and_holds_what_was_said(name):
    """Catches a call that is none, a fit that is wrong, and sizes that are not those of programs:
    measured from 0.80 (falkon) to 1.0 of what is said at n = 10000 and 40000, and here, where tiles
    and blocks are large beside n, up to twice.
    """
    kernel, d = CALLS[name]
    route = named(recommended(kernel, N, d, accuracy=0.15), name)
    assert route.impossible is None
    X, y = data(route, N, d)
    known = {"kernax": kernax, "kernel": kernel, "noise": 0.1, "key": KEY}
    value = eval(route.call, known | {"X": X, "y": y}).value
    exact = kernax.kernel_ridge(kernel, X, y, 0.1).value
    off = jax.vmap(mean_of(value))(X[:64]) - jax.vmap(exact)(X[:64])
    tolerance = max(route.relative, 10 * float(np.finfo(DTYPE).eps) ** (2 / 3))
    assert float(jnp.linalg.norm(off)) <= tolerance * float(jnp.linalg.norm(y[:64]))
    if name == GRID:
        return  # whose points must be known
    called = lambda X, y: eval(route.call.replace("y, noise", "y, 0.1"), known | {"X": X, "y": y})
    assert allocated(called, X, y) <= 2.0 * route.held + 2**23


def allocated(call, *args):
    """Bytes that a compiled program holds beside its arguments."""
    lowered = jax.jit(lambda *args: eqx.filter(call(*args), eqx.is_array)).lower(*args)
    figures = lowered.compile(compiler_options=FUSED).memory_analysis()
    return figures.temp_size_in_bytes + figures.output_size_in_bytes
