"""Gram matrices: exact, differentiable, within memory, refused where they cannot be built."""

from functools import partial

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, assert_close, marked, needs_x64, temporary_bytes

import kernax
from kernax.core.linalg.preconditioners import shift_of
from kernax.core.operators.pairs import pairs_at_once
from kernax.errors import MemoryBudgetError, NonFiniteError

KERNEL = 2.0 * kernax.RBF(1.5) + kernax.Linear()


@pytest.fixture
def stacks(rng):
    dtype = jnp.result_type(float)
    return rng.normal(size=(33, 3)).astype(dtype), rng.normal(size=(20, 3)).astype(dtype)


def test_gram_is_the_kernel_of_every_pair(stacks):
    X, Z = stacks
    K = kernax.gram(KERNEL, X, Z)
    assert K.shape == (33, 20)
    for i, j in ((0, 0), (32, 19), (5, 7)):
        np.testing.assert_allclose(
            K[i, j], KERNEL(X[i], Z[j]), rtol=TOLERANCE["value"], atol=TOLERANCE["value"]
        )


@pytest.mark.parametrize("d", [1, 3, 12, 65])
@pytest.mark.parametrize(
    "kernel", [kernax.RBF(2.0), kernax.Matern12(2.0), KERNEL], ids=["rbf", "matern12", "sum"]
)
def test_gram_is_symmetric_bitwise_with_the_exact_diagonal(kernel, d, rng):
    X = rng.normal(size=(101, d)).astype(jnp.result_type(float)) + 7
    K = kernax.gram(kernel, X)
    assert jnp.all(K == K.T)
    diagonal = kernax.gram_diagonal(kernel, X)
    np.testing.assert_allclose(jnp.diagonal(K), diagonal, rtol=4 * jnp.finfo(K.dtype).eps)
    if kernel.is_stationary:
        assert jnp.all(jnp.diagonal(K) == 1)
        assert jnp.all(diagonal == 1)


@pytest.mark.parametrize(("n", "d"), [(5, 5), (5, 6), (7, 7), (15, 4), (16, 4), (17, 5)])
def test_few_inner_products_are_symmetric_bitwise_as_many_are(n, d, rng):
    for _ in range(5):
        K = kernax.gram(kernax.Linear(), jnp.asarray(rng.normal(size=(n, d)), DTYPE))
        assert (K == K.T).all()


@pytest.mark.parametrize("block_size", [1, 7, 33, 64])
def test_blocks_change_nothing(block_size, stacks):
    X, Z = stacks
    for other in (None, Z):
        dense, blocked = (
            kernax.gram(KERNEL, X, other),
            kernax.gram(KERNEL, X, other, block_size=block_size),
        )
        np.testing.assert_allclose(blocked, dense, rtol=TOLERANCE["value"], atol=TOLERANCE["value"])


@needs_x64
def test_operators_multiply_like_the_matrix_and_carry_the_ridge(stacks, rng):
    X, _ = stacks
    v = jnp.asarray(rng.normal(size=33).astype(X.dtype))
    expected = kernax.gram(KERNEL, X) @ v + 0.3 * v
    for block_size in (None, 8):
        operator = kernax.gram_operator(KERNEL, X, ridge=0.3, block_size=block_size)
        assert lx.is_positive_semidefinite(operator)
        assert lx.is_symmetric(operator)
        np.testing.assert_array_equal(shift_of(operator), np.full(33, 0.3))  # for bounds
        figures = jax.jit(
            lambda v, operator=operator: (
                operator.mv(v),
                operator.as_matrix() @ v,
                lx.diagonal(operator),
            )
        )
        *products, diagonal = figures(v)
        for product in products:
            np.testing.assert_allclose(
                product, expected, rtol=1e2 * TOLERANCE["value"], atol=1e2 * TOLERANCE["value"]
            )
        np.testing.assert_allclose(diagonal, kernax.gram_diagonal(KERNEL, X) + 0.3, rtol=1e-5)


@pytest.mark.parametrize("block_size", [1, 7, 20])
def test_products_without_a_matrix_have_its_exact_diagonal(block_size, rng):
    """Above eight dimensions, in lengthscales so short that K is the identity: in value and in
    every derivative.

    Catches the distance of a point to itself in the rounding of a product over short lengthscales.
    """
    X, v = rng.normal(size=(20, 20)).astype(DTYPE) + 3, rng.normal(size=20).astype(DTYPE)

    def product(diagonal, lengthscale, X):
        kernel = diagonal * kernax.RBF(lengthscale)
        return kernax.gram_operator(kernel, X, block_size=block_size).mv(v)

    short = jnp.asarray([1e-7 if X64 else 1e-3, 1e-2], DTYPE)
    batch = jax.jit(jax.vmap(product, (None, 0, None)))
    np.testing.assert_array_equal(batch(jnp.asarray(2, DTYPE), short, X), 2 * np.stack([v, v]))
    slopes = jax.jit(jax.vmap(jax.jacrev(product, (0, 1)), (None, 0, None)))(
        jnp.asarray(2, DTYPE), short, X
    )
    np.testing.assert_array_equal(slopes[0], np.stack([v, v]))
    np.testing.assert_array_equal(slopes[1], 0)

    places = jnp.asarray([7, 0, 19, 4])
    operator = kernax.gram_operator(kernax.RBF(short[0]), X, block_size=block_size)
    expected = np.zeros(20, DTYPE)
    expected[np.asarray(places)] = v[:4]
    both = jax.jit(
        lambda places, v: (operator.columns_product(places, v), operator.submatrix(places))  # pyright: ignore[reportAttributeAccessIssue]
    )
    columns, part = both(places, v[:4])
    np.testing.assert_array_equal(columns, expected)
    np.testing.assert_array_equal(part, np.eye(4, dtype=DTYPE))


@needs_x64
def test_gram_passes_through_jit_vmap_and_grad_as_one_function(stacks):
    X, Z = stacks
    batch = jnp.stack([X[:20], Z])
    together = jax.jit(jax.vmap(lambda X: kernax.gram(KERNEL, X)))(batch)
    np.testing.assert_allclose(together[1], kernax.gram(KERNEL, Z), atol=1e2 * TOLERANCE["value"])
    kernels = eqx.filter_vmap(kernax.RBF)(jnp.array([0.5, 2.0]))
    each = eqx.filter_vmap(kernax.gram, in_axes=(eqx.if_array(0), None))(kernels, X)
    np.testing.assert_allclose(each[1], kernax.gram(kernax.RBF(2.0), X), atol=TOLERANCE["value"])
    assert jax.jit(kernax.gram)(kernax.RBF(), X).shape == (33, 33)


def costly(parameters, x, z):
    """A table of 64 x 64 numbers per pair, as a string kernel has."""
    table = jnp.tanh(
        parameters * jnp.outer(jnp.repeat(x, 64 // len(x)), jnp.repeat(z, 64 // len(z)))
    )
    return jnp.sum(table**2) + jnp.sum(table @ table)


@needs_x64
def test_a_costly_kernel_is_blocked_by_what_its_trace_shows_and_a_plain_one_is_not():
    X = jnp.ones((2000, 64))
    assert pairs_at_once(kernax.RBF(), X, X) == 2000**2
    assert pairs_at_once(KERNEL * kernax.Matern32(), X[:, :3], X[:, :3]) == 2000**2
    pairs = pairs_at_once(kernax.Custom(costly, jnp.array(0.1)), X, X)
    assert 1 <= pairs <= 3 * 2**14 // (64 * 64) + 1


@pytest.mark.slow
def test_a_matrix_in_tiles_is_the_matrix_and_so_is_its_derivative():
    """Tiles of 11 of 40 points, the last of them not full; those below the diagonal are
    transposes.
    """
    X = np.random.default_rng(0).normal(size=(40, 4)).astype(DTYPE)

    def total(block_size, parameter, X):
        kernel = kernax.Custom(costly, parameter)
        return jnp.sum(jnp.sin(kernax.gram(kernel, X, block_size=block_size) / 1e4))

    whole, tiles = (jax.jit(jax.value_and_grad(partial(total, size), (0, 1))) for size in (40, 3))
    for a, b in zip(
        jax.tree.leaves(tiles(jnp.array(0.1, DTYPE), X)),
        jax.tree.leaves(whole(jnp.array(0.1, DTYPE), X)),
    ):
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE["value"] * np.max(np.abs(b)))


@needs_x64
def test_features_of_points_are_no_reason_to_make_tiles():
    """One histogram a string, however long, is not recomputed for each pair; unless all of them are
    too many to be held.
    """
    X = jax.tree.map(jnp.asarray, kernax.strings.encode(["ACGT" * 5, "TTGA"] * 20, "ACGT"))
    assert pairs_at_once(kernax.Spectrum(7), X, X) == 40**2
    many = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((100000, *leaf.shape[1:]), leaf.dtype), X)
    assert pairs_at_once(kernax.Spectrum(7), many, many) == (2**26 // 4**7) ** 2


@pytest.mark.slow
def test_kernels_that_round_a_pair_differently_either_way_have_symmetric_matrices():
    X = kernax.strings.encode(["ACGTAC", "TTGACA", "CCATGG", "TACATA", "GATTACA"], "ACGT")
    for kernel in (
        kernax.Subsequence(3, 0.7),
        kernax.Normalised(kernax.kernels.AllSubstrings(0.7)),
    ):
        assert not kernel.is_mirrored
        K = kernax.gram(kernel, X)
        assert jnp.all(K == K.T)
    assert (2.0 * kernax.RBF() + kernax.Linear() ** 2).is_mirrored


ROUGH = (kernax.Matern12, kernax.kernels.GammaExponential)


@needs_x64
@pytest.mark.parametrize("make", [kernax.RBF, kernax.Matern52, kernax.RationalQuadratic, *ROUGH])
def test_gradients_hold_a_few_matrices_not_one_per_dimension(make):
    """At most 3 n^2 floats of temporary memory, 5 for kernels that are not smooth at zero, in 64
    lengthscales and in X.
    """
    n, d = 600, 64
    shapes = jax.ShapeDtypeStruct((d,), jnp.float32), jax.ShapeDtypeStruct((n, d), jnp.float32)
    loss = lambda lengthscale, X: jnp.sum(kernax.gram(make(lengthscale), X) ** 2)
    floats = 5 if make in ROUGH else 3
    for argument in (0, 1):
        # the n d numbers of a stack are counted beside n^2, since n is small here
        assert temporary_bytes(jax.grad(loss, argument), *shapes) <= 4 * (
            floats * n * n + 6 * n * d
        )


@pytest.mark.parametrize(
    ("kernel", "matrices"),
    [
        (kernax.RBF(0.9), 0),
        (kernax.RBF(0.9) ** 2, 0),
        (kernax.Matern12([0.9, 1.1]), 1),
        (2.0 * kernax.RBF(0.9), 1),
        (kernax.RBF(0.9) + 0.5, 1),
        (kernax.RationalQuadratic(), 3),
    ],
)
def test_gradients_in_numbers_of_a_kernel_hold_few_matrices(kernel, matrices, rng):
    """XLA would store the factors of a sum over all pairs, two to ten matrices."""
    n = 500
    X = jnp.asarray(rng.normal(size=(n, 2)), DTYPE)
    squares = lambda kernel: jnp.sum(kernax.gram(kernel, X) ** 2)
    most = (matrices + 0.1) * n**2 * X.dtype.itemsize
    assert temporary_bytes(jax.grad(squares), kernel) < most


@pytest.mark.parametrize("ones", [1.0, np.ones(3)])
def test_the_derivative_in_a_lengthscale_is_exact_however_far_the_points_reach(ones, rng):
    """Expanded around an origin, the derivative of a squared distance would lose `eps reach^2`."""
    near = rng.normal(size=(2, 40, 3))
    X = np.concatenate([near[0], near[0] + 1e-3 * near[1]]).astype(np.float32)
    v = rng.normal(size=80)
    scales = jnp.asarray(ones, DTYPE)
    slope = lambda length, X: kernax.gram(kernax.Matern52(length * scales), X) @ v.astype(DTYPE)
    slopes = jax.jacfwd(slope)(jnp.asarray(1e-3, DTYPE), jnp.asarray(X, DTYPE))
    # d (K v)_i / dl, with K = (1 + r + r^2 / 3) exp(-r), r = sqrt(5) |x - z| / l.
    r = np.sqrt(5) * np.linalg.norm(X[:, None].astype(float) - X[None], axis=-1) / 1e-3
    expected = (r**2 * (1 + r) / 3 * np.exp(-r)) @ v / 1e-3
    assert_close(slopes / np.abs(expected).max(), expected / np.abs(expected).max())


WAYS = {
    "both stacks": lambda k, X, Z: jax.vmap(lambda x: jax.vmap(lambda z: k(x, z))(Z))(X),
    "columns first": lambda k, X, Z: jax.vmap(lambda z: jax.vmap(lambda x: k(x, z))(X))(Z).T,
    "rows in a loop": lambda k, X, Z: jax.lax.map(lambda x: jax.vmap(lambda z: k(x, z))(Z), X),
    "pairs": lambda k, X, Z: jax.vmap(k)(
        jnp.repeat(X, len(Z), axis=0), jnp.tile(Z, (len(X), 1))
    ).reshape(len(X), len(Z)),
    "gram": lambda k, X, Z: kernax.gram(k, X, Z),
}


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "kernel",
    [
        2.0 * kernax.RBF(0.9) + 0.5,
        kernax.RationalQuadratic([0.8, 1.2, 0.5], 1.3),
        kernax.kernels.GammaExponential(0.7, 1.4),
        kernax.Polynomial(3, 0.4),
    ],
    ids=["sum", "rational", "gamma", "polynomial"],
)
def test_derivatives_in_numbers_are_those_of_each_pair_however_pairs_are_batched(kernel, rng):
    """First and second ones, for a batch of kernels and of data sets."""
    X, Z, v = (jnp.asarray(rng.normal(size=shape)) for shape in ((2, 4, 3), (2, 3, 3), (2, 4, 3)))
    factors = jnp.array([1.0, 1.1])
    numbers, structure = jax.flatten_util.ravel_pytree(kernel)
    of_pair = lambda numbers, x, z: structure(numbers)(x, z)
    derivatives_of = lambda f: (jax.jit(jax.grad(f)), jax.jit(jax.hessian(f)))

    def of_pairs(derivative, j):
        return sum(
            v[j, a, b] * derivative(factors[j] * numbers, X[j, a], Z[j, b])
            for a in range(4)
            for b in range(3)
        )

    expected = [[of_pairs(d, j) for j in range(2)] for d in derivatives_of(of_pair)]
    for way in WAYS.values():
        total = lambda numbers, X, Z, v, way=way: jnp.sum(way(structure(numbers), X, Z) * v)
        for derivative, right in zip(derivatives_of(total), expected):
            values = jax.jit(jax.vmap(derivative))(jnp.outer(factors, numbers), X, Z, v)
            np.testing.assert_allclose(values, jnp.stack(right), rtol=1e-9, atol=1e-10)


@needs_x64
@pytest.mark.parametrize(("n", "d"), [(15, 8), (16, 8), (16, 9)])
def test_gradients_of_gram_matrices_agree_on_both_sides_of_bounds(n, d, rng):
    """Of sixteen points, from which on matrices are not symmetrised, and of eight columns, up to
    which derivatives in lengthscales are sums over differences.
    """
    X = jnp.asarray(rng.normal(size=(2, n, d)))
    v = jnp.asarray(rng.normal(size=(n, n)))
    scales = jnp.asarray(rng.uniform(1, 2, size=(2, d)))
    total = lambda scale, X: jnp.sum(v * kernax.gram(kernax.RBF(scale), X))
    plain = lambda scale, X: jnp.sum(
        v * jnp.exp(-jnp.sum(((X[:, None] - X[None]) / scale[None, None]) ** 2, axis=-1) / 2)
    )
    for argument in (0, 1, (0, 1)):
        values, right = (
            jax.jit(jax.vmap(jax.grad(f, argument)))(scales, X) for f in (total, plain)
        )
        for value, expected in zip(jax.tree.leaves(values), jax.tree.leaves(right)):
            np.testing.assert_allclose(value, expected, rtol=0, atol=1e-12 * n)


@pytest.mark.slow
@needs_x64
def test_matrix_free_products_and_their_gradients_stay_within_four_megabytes():
    """J03."""

    def product(lengthscale, X, v):
        return kernax.gram_operator(kernax.RBF(lengthscale), X, block_size=32).mv(v)

    def form(lengthscale, X, v):
        return v @ product(lengthscale, X, v)

    for n, d, megabytes in ((4096, 8, 4), (20000, 8, 16), (100_000, 10, 64)):
        shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((), (n, d), (n,))]
        assert temporary_bytes(product, *shapes) <= megabytes * 2**20
        assert temporary_bytes(jax.grad(form), *shapes) <= megabytes * 2**20
        assert temporary_bytes(jax.grad(form, 1), *shapes) <= megabytes * 2**20


@needs_x64
def test_a_matrix_that_cannot_fit_is_refused_with_the_way_out():
    """J04."""
    X = np.zeros((200_000, 2), np.float32)
    kernax.gram(kernax.RBF(), X[:2])
    for call, words in (
        (
            lambda: kernax.gram(kernax.RBF(), X),
            "149 GiB needed by gram .* available; use kernax.gram_operator.*, or take fewer points",
        ),
        (
            lambda: kernax.kernel_ridge(kernax.RBF(), X, X[:, 0], 1.0),
            r"536 GiB .* kernel_ridge .*; use block_size=\.\.\.",
        ),
        (
            lambda: kernax.bases.eigenpairs(kernax.RBF(), X, 2),
            r"313 GiB .* eigenpairs for 2\.1 dense \(200000, 200000\) matrices",
        ),
        (lambda: kernax.bases.empirical_features(kernax.RBF(), X), "462 GiB .* empirical_features"),
        (
            lambda: kernax.calibration.isotonic(X[:, 0], np.tile([-1.0, 1.0], 100_000)),
            "477 GiB .* isotonic",
        ),
        (
            lambda: kernax.GaussianProcess(kernax.RBF()).sample(X, key=jax.random.key(0)),
            "507 GiB .* sample",
        ),
    ):
        with pytest.raises(MemoryBudgetError, match=words):
            call()


@needs_x64
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kernax.gram(kernax.RBF(), np.ones((0, 3))), "at least one|n >= 1"),
        (
            lambda: kernax.gram(kernax.RBF(), (np.ones((4, 3)), np.ones((5, 3)))),
            "same leading axis",
        ),
        (
            lambda: kernax.gram(kernax.RBF(), (np.ones((4, 3)), np.ones((4, 2)))),
            r"On\(kernel, where\)",
        ),
        (
            lambda: kernax.gram(kernax.RBF(), np.array([[1.0], [np.nan]])),
            "X holds NaN or inf, first in row 1",
        ),
        (
            lambda: kernax.gram(kernax.RBF(), np.ones((4, 3)), block_size=0),
            "block_size must be a positive integer",
        ),
        (lambda: kernax.gram(kernax.RBF(), np.array([["a"], ["b"]])), "arrays of real numbers"),
        (
            lambda: kernax.gram_operator(kernax.RBF(), np.ones((4, 3)), ridge=-1.0),
            "ridge must be in",
        ),
    ],
)
def test_bad_input_is_refused_with_what_came_and_what_to_pass(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@needs_x64
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_bad_pair_anywhere_is_an_error(bad, stacks):
    """Catches a check of the diagonal and one row and column only, also of a kernel between two
    stacks and in tiles.
    """
    X, Z = stacks
    X[20], X[11], Z[7] = 2, 3, 3

    def pair(_, x, z):
        return jnp.where(x[0] * z[0] == 6, jnp.asarray(bad, x.dtype), jnp.dot(x, z))

    kernel = kernax.Custom(pair)
    for arguments in ((X,), (X, Z)):
        for block_size in (None, 7):
            with pytest.raises(NonFiniteError, match="Custom is NaN or inf"):
                kernax.gram(kernel, *arguments, block_size=block_size)
    large = kernax.gram(kernax.Constant(0.9 * float(jnp.finfo(DTYPE).max)), X)
    assert jnp.all(jnp.isfinite(large))


@needs_x64
def test_half_precision_is_computed_in_float32_and_mixed_stacks_in_the_wider(rng):
    X = rng.normal(size=(5, 2))
    assert kernax.gram(kernax.RBF(), X.astype(np.float16)).dtype == jnp.float32
    assert kernax.gram(kernax.RBF(), X.astype(np.float32), X).dtype == jnp.float64


def test_the_dtype_is_that_of_the_data():
    assert kernax.gram(KERNEL, np.ones((3, 2), np.float32)).dtype == jnp.float32
    assert kernax.gram(KERNEL, [[1, 2], [3, 4]]).dtype == (jnp.float64 if X64 else jnp.float32)


@needs_x64
def test_a_matrix_that_is_made_symmetric_holds_no_transposition():
    """XLA takes minutes to compile one, fused with what follows, for 1000 points in a user's
    `jit`.
    """
    kernel, X = kernax.Custom(lambda _, x, z: jnp.sum(jnp.tanh(x + z))), jnp.ones((5, 3), DTYPE)
    lowered = jax.jit(lambda X: kernax.gram(kernel, X)).lower(X).as_text()
    assert "maximum" in lowered
    assert "transpose" not in lowered


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    ("n", "block_size"),
    marked(
        pytest.mark.nightly, [(8, 2), (9, 2), (7, 2), (13, 4), (7, 14)], "8-2", "9-2", others=True
    ),
)
def test_tiles_that_fit_and_tiles_that_are_filled_give_the_dense_product(n, block_size, rng):
    """A batch of gradients in the lengthscale, the points and the vectors: with the last tile whole
    or filled up, and an even or an odd number of tiles above the diagonal.
    """
    X, V = rng.normal(size=(n, 3)), rng.normal(size=(n, 2))

    def total(lengthscale, X, V, block_size):
        operator = kernax.gram_operator(kernax.RBF(lengthscale), X, block_size=block_size)
        return jnp.sum(jnp.sin(operator.mv(V)))

    def gradients(block_size):
        gradient = jax.value_and_grad(total, (0, 1, 2))
        batch = jax.vmap(lambda scale: gradient(scale, X, V, block_size))
        return jax.jit(batch)(jnp.asarray([0.7, 1.5]))

    for a, b in zip(*map(jax.tree.leaves, (gradients(block_size), gradients(None)))):
        assert_close(a, b, 1e-10)


@pytest.mark.nightly
def test_products_of_a_costly_kernel_without_a_matrix_hold_few_pairs_at_a_time():
    """Tiles as small as the kernel needs, in value and gradient; and rows in programs that are
    compiled only.
    """
    X, V = (np.random.default_rng(0).normal(size=(40, p)).astype(DTYPE) for p in (4, 2))

    def total(block_size, parameter, X, V):
        kernel = kernax.Custom(costly, parameter)
        operator = kernax.gram_operator(kernel, X, block_size=block_size)
        return jnp.sum(jnp.sin(operator.mv(V) / 1e5))

    arguments = (jnp.array(0.1, DTYPE), X, V)
    whole, tiles = (
        jax.jit(jax.value_and_grad(partial(total, size), (0, 1, 2)))(*arguments)
        for size in (None, 20)
    )
    for a, b in zip(jax.tree.leaves(tiles), jax.tree.leaves(whole)):
        assert_close(a, b)

    def operators(X):
        kernel = kernax.Custom(costly, jnp.array(0.1, DTYPE))
        return [kernax.gram_operator(kernel, X, Z, block_size=128) for Z in (None, X[:50])]

    table = 64 * 64 * np.dtype(DTYPE).itemsize
    many = jax.ShapeDtypeStruct((1000, 4), DTYPE), jax.ShapeDtypeStruct((1000,), DTYPE)
    for product in (
        lambda X, v: operators(X)[0].columns_product(jnp.arange(50), v[:50]),  # pyright: ignore[reportAttributeAccessIssue]
        lambda X, v: operators(X)[0].squares_in_products(v)[:2],  # pyright: ignore[reportAttributeAccessIssue]
        lambda X, v: operators(X)[1].mv(v[:50]),
        lambda X, v: operators(X)[0].mv(v),
    ):
        assert temporary_bytes(product, *many) < 4 * 1000 * table


def test_the_program_of_a_product_does_not_grow_with_the_number_of_its_tiles():
    """A kernel that is computed for one pair at a time."""
    kernel = kernax.Custom(lambda _, x, z: jnp.sum(jnp.tanh(jnp.outer(x, z))))
    X, v = jax.ShapeDtypeStruct((2000, 200), DTYPE), jax.ShapeDtypeStruct((2000,), DTYPE)
    product = lambda X, v: kernax.gram_operator(kernel, X, block_size=128).mv(v)
    assert len(jax.jit(product).lower(X, v).as_text()) < 50_000


def test_products_without_a_matrix_are_compiled_once():
    """Also where nothing else is: called as they are, with other points and vectors."""
    traced = []

    def formula(_, x, z):
        traced.append(x)
        return jnp.exp(-jnp.sum((x - z) ** 2))

    kernel = kernax.Custom(formula)
    rng = np.random.default_rng(0)

    def products():
        X, v = rng.normal(size=(9, 2)).astype(DTYPE), rng.normal(size=9).astype(DTYPE)
        one = kernax.gram_operator(kernel, X, block_size=4)
        two = kernax.gram_operator(kernel, X, X[:5], block_size=4)
        one.mv(v)
        two.mv(v[:5])
        one.columns_product(jnp.asarray([5, 2]), v[:2])  # pyright: ignore[reportAttributeAccessIssue]
        one.squares_in_products(v)  # pyright: ignore[reportAttributeAccessIssue]

    products()
    first = len(traced)
    products()
    assert len(traced) == first > 0


@needs_x64
def test_vectors_of_another_type_are_multiplied_in_the_wider_one(stacks):
    X, _ = stacks
    with jax.numpy_dtype_promotion("standard"):
        for block_size in (None, 8):
            operator = kernax.gram_operator(KERNEL, X, block_size=block_size)
            for v in (np.arange(33), np.linspace(-1, 1, 33).astype(np.float32)):
                product = operator.mv(jnp.asarray(v))
                assert product.dtype == jnp.float64
                assert_close(product, operator.as_matrix() @ v.astype(float), 1e-12)
            narrow = kernax.gram_operator(KERNEL, X.astype(np.float32), block_size=block_size)
            wide = jnp.linspace(-1, 1, 33)
            assert narrow.mv(wide).dtype == jnp.float64
            assert_close(narrow.mv(wide), operator.mv(wide), 1e-5)
