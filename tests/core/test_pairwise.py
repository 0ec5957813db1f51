"""Sums over pairs in the registers of a GPU: their values, derivatives and programs.

On a CPU the kernel of the GPU runs in an interpreter.
"""

import sys
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64, assert_close, marked, needs_x64
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh
from jax.test_util import check_grads

import kernax
from kernax.core.base.boundary import cast
from kernax.core.base.stacks import points_at
from kernax.core.kernel.preparation import prepare
from kernax.core.operators.pairwise import pairwise_sum, product, triton_kernel
from kernax.core.operators.pairwise.pair_expression import NotArithmetic, in_order
from kernax.core.operators.pairwise.pair_expression import expressions as expressions_of
from kernax.core.operators.pairwise.pairwise_sum import is_arithmetic, sum_over_pairs

ON_GPU = jax.default_backend() == "gpu"
KERNELS = {
    "RBF": kernax.RBF(1.3),
    "ARD": kernax.RBF([0.7, 1.0, 2.0]),
    "Matern12": kernax.Matern12(1.3),
    "sum": 2.0 * kernax.Matern52(1.5) + 0.5 * kernax.Linear(),
    "RationalQuadratic": kernax.RationalQuadratic(1.0, 2.0),
    "Periodic": kernax.Periodic(1.0, 2.0),
}


def _product(kernel, X, Z, V):
    arrays = [None if a is None else jnp.asarray(a) for a in (X, Z, V)]
    return product.product_in_registers(cast(kernel, DTYPE), *arrays)


@pytest.fixture
def in_registers(monkeypatch):
    """Products are computed by the kernel of the GPU, or in its interpreter."""
    if not ON_GPU:
        monkeypatch.setattr(product, "mode", lambda: "interpreter")


def _term(static):
    def term(theta, x, column):
        z, v = column
        return eqx.combine(theta, static)(x, z) * v

    return term


def _parts(kernel, rng, n=40, m=50, d=3, p=2):
    parameters, static = eqx.partition(cast(kernel, DTYPE), eqx.is_array)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), DTYPE)
    return _term(static), parameters, draw(n, d), (draw(m, d), draw(m, p))


def _assert_trees_close(values, right, tolerance):
    for value, expected in zip(jax.tree.leaves(values), jax.tree.leaves(right), strict=True):
        assert_close(value, expected, tolerance)


def _dense(term, theta, rows, columns):
    values = jax.vmap(lambda x: jax.vmap(lambda column: term(theta, x, column))(columns))(rows)
    return jnp.sum(values, 1)


@pytest.mark.parametrize("name", KERNELS)
def test_a_product_in_registers_is_that_of_the_matrix(name, rng, in_registers):
    kernel = KERNELS[name]
    X = rng.normal(size=(150, 3)).astype(DTYPE)
    V = rng.normal(size=(150, 2)).astype(DTYPE)
    value = _product(kernel, X, None, V)
    right = np.asarray(kernax.gram(kernel, X), float) @ np.asarray(V, float)
    # Measured: 2e-7 in float32, 5e-16 in float64.
    bound = 1e-14 if X64 else 1e-6
    assert np.max(np.abs(value - right)) <= bound * np.max(np.abs(right))


# Blocks hold 1024 rows, chunks 256 columns, and columns are split from 1024 on.
@pytest.mark.parametrize(
    ("n", "m"),
    [(1, 1), (1024, 256), (1025, 257), pytest.param(1023, 1025, marks=pytest.mark.slow)],
)
def test_blocks_of_all_sizes_are_summed_whole(n, m, rng, in_registers):
    X, Z = (rng.uniform(size=(k, 1)).astype(DTYPE) for k in (n, m))
    V = np.ones((m, 1), DTYPE)
    value = _product(kernax.RBF(0.5), X, Z, V)
    right = np.exp(-2 * (X.astype(float) - Z[:, 0].astype(float)) ** 2).sum(1, keepdims=True)
    np.testing.assert_allclose(value, right, rtol=1e-13 if X64 else 1e-6)


@pytest.mark.parametrize("d", [3, 10])
def test_the_diagonal_is_exact_in_registers(d, rng, in_registers):
    # Far from the origin, where a distance multiplied out would not be zero.
    X = rng.normal(size=(60, d)).astype(DTYPE) + 100
    V = np.eye(60, 2, dtype=DTYPE)
    value = _product(kernax.RBF(0.01), X, None, V)
    np.testing.assert_array_equal(value, V)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["RBF", "Matern12", "sum"])
def test_derivatives_of_a_sum_over_pairs_are_those_of_the_dense_sum(name, rng):
    term, theta, rows, columns = _parts(KERNELS[name], rng)
    losses = [
        lambda *a: jnp.sum(jnp.sin(sum_over_pairs(term, *a))),
        lambda *a: jnp.sum(jnp.sin(_dense(term, *a))),
    ]
    values, dense = [
        jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(theta, rows, columns) for loss in losses
    ]
    _assert_trees_close(values, dense, 1e-12 if X64 else 2e-5)
    tangents = jax.tree.map(jnp.ones_like, (theta, rows, columns))
    forward, expected = [
        jax.jit(lambda *a, loss=loss: jax.jvp(jax.grad(loss), a, tangents))(theta, rows, columns)
        for loss in losses
    ]
    _assert_trees_close(forward, expected, 1e-11 if X64 else 2e-4)


@pytest.mark.slow
def test_a_batch_of_gradients_is_each_of_them(rng):
    term, theta, rows, columns = _parts(KERNELS["RBF"], rng)
    gradient = jax.grad(lambda s, rows: jnp.sum(sum_over_pairs(term, s, rows, columns) ** 2))
    scales = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), theta)
    together = jax.jit(jax.vmap(gradient, (0, None)))(scales, rows)
    for i in range(2):
        alone = gradient(points_at(scales, i), rows)
        _assert_trees_close(points_at(together, i), alone, 1e-12 if X64 else 2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["RBF", "Matern12"])
def test_gradients_in_registers_are_those_of_the_matrix(name, rng):
    term, theta, rows, columns = _parts(KERNELS[name], rng)
    interpret = not ON_GPU
    losses = [
        lambda *a: jnp.sum(jnp.sin(sum_over_pairs(term, *a, interpret=interpret))),
        lambda *a: jnp.sum(jnp.sin(_dense(term, *a))),
    ]
    values, dense = [jax.jit(jax.grad(loss, (0, 1, 2)))(theta, rows, columns) for loss in losses]
    _assert_trees_close(values, dense, 1e-12 if X64 else 2e-5)


@pytest.mark.nightly
def test_second_derivatives_agree_with_differences(rng):
    if not X64:
        pytest.skip("differences need float64")
    term, theta, rows, columns = _parts(KERNELS["Matern12"], rng, n=5, m=6, d=2, p=1)
    function = lambda *a: sum_over_pairs(term, *a)
    check_grads(function, (theta, rows, columns), order=2, rtol=1e-5)


def test_an_rbf_of_three_coordinates_takes_nine_operations_for_a_pair():
    # (x - z) thrice, two squares added to the first, the lengthscale, 2^s, and the sum with v: a
    # power of two of the lengthscale is in the points, so that differences stay exact.
    term = _term(eqx.partition(kernax.RBF(1.0), eqx.is_array)[1])
    floats = lambda *shape: jax.ShapeDtypeStruct(shape, DTYPE)
    counted = []

    def trace(theta, X, Z, V):
        pair = jax.make_jaxpr(term)(theta, X[0], (Z[0], V[0]))
        numbers = expressions_of(pair, jax.tree.leaves(theta), [X], [Z, V])
        steps = [n.operation for n in in_order(numbers) if n.operation not in ("leaf", "constant")]
        counted.extend(steps)
        return 0

    theta = eqx.filter(cast(kernax.RBF(1.0), DTYPE), eqx.is_array)
    theta = jax.tree.map(lambda leaf: floats(*leaf.shape), theta)
    jax.eval_shape(trace, theta, floats(4, 3), floats(5, 3), floats(5))
    right = ["exp2_of_negative", *["fma"] * 2, *["mul"] * 3, *["sub"] * 3]
    assert sorted(counted) == right


@pytest.mark.parametrize(
    ("name", "d", "steps"),
    [("RBF", 3, (9, 19, 14)), ("RBF", 10, (16, 76, 37)), ("Matern12", 3, (12, 24, 28))],
)
def test_gradients_take_few_operations_for_a_pair(name, d, steps, rng, monkeypatch):
    """A distance or an exponential that is computed twice, derivatives expanded around an origin,
    or factors of all pairs that multiply each of them.
    """
    counted = []

    def count(outputs, n, m, dtype, *, interpret):
        numbers = [triton_kernel._without_factors(x)[0] for o in outputs for x in o.ravel()]
        order = in_order([np.array(numbers, object)])
        counted.append(sum(x.operation not in ("leaf", "constant") for x in order))
        return [jnp.zeros((n, *output.shape), dtype) for output in outputs]

    monkeypatch.setattr(pairwise_sum, "sums_of", count)
    term, *arguments = _parts(KERNELS[name], rng, d=d, p=1)
    loss = lambda *a: jnp.sum(jnp.sin(sum_over_pairs(term, *a, interpret=True)))
    jax.jit(jax.grad(loss, (0, 1, 2))).lower(*arguments)
    assert tuple(counted) == steps


@pytest.mark.parametrize(
    "kernel", [kernax.Matern(1.7), kernax.Precomputed(np.eye(3)), kernax.Spectrum(2)]
)
def test_kernels_that_are_no_arithmetic_keep_their_tiles(kernel, in_registers):
    X = np.arange(3) if isinstance(kernel, kernax.Precomputed) else np.eye(3, dtype=DTYPE)
    if isinstance(kernel, kernax.Spectrum):
        X = kernax.strings.encode(["ab", "ba", "bb"])
    kernel, X = prepare(kernel, X)
    assert product.product_in_registers(kernel, X, None, jnp.eye(3, dtype=DTYPE)) is None


NO_ARITHMETIC = {
    "loop": lambda theta, x, z: jax.lax.while_loop(lambda s: s[0] < 3, lambda s: s + z, x),
    "condition": lambda theta, x, z: x > z,
    "larger condition": lambda theta, x, z: jnp.maximum(x[0] > z[0], x[1] > z[1]).astype(DTYPE),
    "sum of nothing": lambda theta, x, z: jnp.sum((x - z)[:0]),
    "long loop": lambda theta, x, z: jax.lax.fori_loop(0, 65, lambda i, s: s + z * s, x),
    "whole numbers": lambda theta, x, z: jnp.sum(x - z).astype(int).astype(DTYPE),
}


@pytest.mark.parametrize("name", NO_ARITHMETIC)
def test_what_is_no_arithmetic_is_told_from_what_is(name):
    x = jnp.ones((2, 2), DTYPE)
    assert not is_arithmetic(NO_ARITHMETIC[name], None, x, x)
    short_loop = lambda theta, x, z: jax.lax.fori_loop(0, 64, lambda i, s: s + z * s, x)
    assert is_arithmetic(short_loop, None, x, x)


@pytest.mark.slow
def test_choices_and_constants_have_the_values_of_the_dense_sum(rng):
    def odd(theta, x, z):
        conditions = jnp.stack([x[0] > 0, x[0] > z[0]]) & jnp.stack([x[1] > 0, x[1] > z[1]])
        chosen = jnp.where(np.array([True, False]), jnp.stack([x[0], x[0] - z[0]]), 0.5)
        return [
            # Infinite or NaN where it is not taken.
            jnp.where(x[0] > 0, jnp.log(x[0] * jnp.exp(z[0] - x[1])), 0.0),
            jnp.where(x[0] > 0, 1 / (jnp.maximum(x[0], 0) * (1 + (z[0] - x[1]) ** 2)), 0.0),
            jnp.sum(jnp.where(x[1] > 0, jnp.stack([x[0], x[0] - z[0]]), 2.0) + x[2]),
            jnp.sum(jnp.where(~conditions, chosen, theta)),
            jnp.stack([np.array(False), x[0] > z[0]]).astype(DTYPE) * (x[1] - z[1]),
            jnp.isfinite(x[0] / jnp.maximum(z[0] - x[0], 0)).astype(DTYPE),
            jax.lax.pad(jnp.flip(x - z), jnp.zeros((), DTYPE), ((-1, 2, 1),)) ** 5,
            (x - z) ** -2 + jnp.prod(x * z) ** 0,
            jnp.exp(x[0] * z[0]) + jnp.tanh(x[2] - z[2]),
        ]

    theta = jnp.asarray(0.3, DTYPE)
    x, z = (jnp.asarray(rng.normal(size=(n, 3)), DTYPE) for n in (5, 6))
    assert is_arithmetic(odd, theta, x, z)
    sums = sum_over_pairs(odd, theta, x, z, interpret=not ON_GPU)
    values = jax.vmap(lambda x: jax.vmap(lambda z: odd(theta, x, z))(z))(x)
    _assert_trees_close(sums, [jnp.sum(v, 1) for v in values], 1e-12 if X64 else 1e-5)


def test_an_infinite_sum_is_infinite(rng):
    x, z = jnp.ones((1, 1), DTYPE), jnp.zeros((600, 1), DTYPE).at[0].set(1000.0)
    term = lambda theta, x, z: jnp.sum(jnp.exp(x * z))
    assert jnp.isposinf(sum_over_pairs(term, None, x, z, interpret=not ON_GPU))[0]


def test_a_function_of_traced_arrays_from_outside_is_refused():
    x = jnp.ones((2, 1), DTYPE)

    @jax.jit
    def closes_over(theta):
        return sum_over_pairs(lambda _, x, z: jnp.sum(theta * x * z), None, x, x)

    with pytest.raises(ValueError, match="pass it in theta"):
        closes_over(1.0)


def test_what_suits_registers_ends_where_it_says():
    shaped = lambda *shape: jax.ShapeDtypeStruct(shape, DTYPE)
    ones = lambda *shape: jnp.ones(shape, DTYPE)
    one = jnp.ones((), DTYPE)
    suits = product._suit
    # Vectors; coordinates with parameters; and points, which floats must number exactly.
    assert suits(one, shaped(5, 2), shaped(5, 2), ones(5, 8))
    assert not suits(one, shaped(5, 2), shaped(5, 2), ones(5, 9))
    assert suits(one, shaped(5, 127), shaped(5, 127), ones(5, 1))
    assert not suits(one, shaped(5, 128), shaped(5, 128), ones(5, 1))
    most = 2**30 // 9 if X64 else 2**24 - 1
    assert suits(one, shaped(most, 1), shaped(5, 1), ones(5, 1))
    assert not suits(one, shaped(most + 1, 1), shaped(5, 1), ones(5, 1))


def test_a_graph_may_have_as_many_steps_as_it_says(rng):
    term, theta, rows, columns = _parts(KERNELS["RBF"], rng)
    pair = jax.make_jaxpr(term)(theta, rows[0], points_at(columns, 0))
    arguments = (pair, jax.tree.leaves(theta), [rows], list(columns))
    n_steps = len(in_order(expressions_of(*arguments)))
    assert len(in_order(expressions_of(*arguments, most_steps=n_steps))) == n_steps
    with pytest.raises(NotArithmetic, match="more than"):
        expressions_of(*arguments, most_steps=n_steps - 1)


# Blocks of 8 threads hold 64 rows; columns come in chunks of 8, and are split from 32 on.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "m"),
    marked(
        pytest.mark.nightly,
        [(63, 7), (64, 8), (65, 9), (64, 31), (64, 33)],
        "65-9",
        "64-33",
        others=True,
    ),
)
def test_a_batch_of_gradients_is_right_on_both_sides_of_a_block(n, m, rng, monkeypatch):
    if not ON_GPU:
        for name, size in (("_THREADS", 8), ("_CHUNK", 8), ("_LEAST_COLUMNS", 16)):
            monkeypatch.setattr(triton_kernel, name, size)
    term, theta, rows, columns = _parts(kernax.RBF(0.7), rng, n=n, m=m, d=1, p=1)
    registers = lambda *a: sum_over_pairs(term, *a, interpret=not ON_GPU)
    stretched = jnp.stack([rows, 2 * rows])
    gradients = [
        jax.jit(jax.vmap(jax.grad(lambda *a, s=s: jnp.sum(s(*a) ** 2), (0, 1, 2)), (None, 0, None)))
        for s in (registers, lambda *a: _dense(term, *a))
    ]
    values, right = (gradient(theta, stretched, columns) for gradient in gradients)
    _assert_trees_close(values, right, 1e-12 if X64 else 2e-5)


def test_points_and_vectors_that_do_not_suit_keep_their_tiles(in_registers):
    ones = lambda *shape: jnp.ones(shape, DTYPE)
    kernel = cast(kernax.RBF(1.0), DTYPE)
    for X, Z, V in (
        (ones(5, 784), None, ones(5, 1)),
        (ones(5, 2), None, ones(5, 9)),
        (ones(5, 2), None, ones(5, 0)),
        (ones(0, 2), ones(5, 2), ones(5, 1)),
        (ones(5, 2), ones(0, 2), ones(0, 1)),
        (ones(5, 2).astype(jnp.float16), None, ones(5, 1)),
    ):
        assert product.product_in_registers(kernel, X, Z, V) is None


def _lowered_for_gpu(function, *arguments):
    """The program for an NVIDIA GPU, which from version 0.11 on JAX asks a mesh about if no GPU is
    there.
    """
    device = AbstractDevice("NVIDIA H100", num_cores=None, platform="gpu")
    axis = {"axis_types": (AxisType.Auto,), "abstract_device": device}
    with use_abstract_mesh(AbstractMesh((1,), ("gpu",), **axis)):
        return jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("name", ["RBF", "Matern12"])
def test_products_lower_for_a_gpu_as_one_kernel_and_gradients_as_three(name, rng):
    """Also on a mesh of devices, where the trace has steps that place arrays on it."""
    term, theta, rows, columns = _parts(KERNELS[name], rng)
    function = lambda *a: jnp.sum(jnp.sin(sum_over_pairs(term, *a)))
    for count, wanted in ((1, function), (3, jax.grad(function, (0, 1, 2)))):
        text = _lowered_for_gpu(wanted, theta, rows, columns)
        assert text.count("xla.gpu.triton") == count


@needs_x64
def test_a_kernel_that_the_gpu_does_not_compile_names_the_switch(rng, monkeypatch):
    term, *arguments = _parts(KERNELS["RBF"], rng)
    sorted_instead = lambda number, interpret: lambda *values: jnp.sort(values[0])
    monkeypatch.setattr(triton_kernel, "_operation", sorted_instead)
    with pytest.raises(RuntimeError, match=r"sort.*KERNAX_PAIRS_IN_REGISTERS=0"):
        _lowered_for_gpu(lambda *a: sum_over_pairs(term, *a), *arguments)


@pytest.fixture
def new_gpu(monkeypatch):
    """JAX says that its device is a new GPU of NVIDIA."""
    client = SimpleNamespace(platform_version="PJRT C API\ncuda 13000")
    device = SimpleNamespace(compute_capability="9.0", client=client)
    monkeypatch.setattr(product, "_compiles_for", product._compiles_for.__wrapped__)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [device])


@pytest.mark.parametrize(
    "module",
    [None, SimpleNamespace(CompilerParams=object)],
    ids=["not there", "without the instructions"],
)
def test_without_triton_products_are_in_tiles_with_the_same_numbers(
    module, rng, monkeypatch, new_gpu
):
    X = rng.normal(size=(40, 3)).astype(DTYPE)
    v = rng.normal(size=40).astype(DTYPE)
    assert product.mode() == "registers"
    monkeypatch.setitem(sys.modules, "jax.experimental.pallas.triton", module)
    assert product.mode() == "tiles"
    assert _product(KERNELS["RBF"], X, None, v[:, None]) is None
    value = kernax.gram_operator(KERNELS["RBF"], X, block_size=16).mv(v)
    assert_close(value, kernax.gram(KERNELS["RBF"], X) @ v)


@pytest.mark.parametrize(
    ("capability", "platform", "expected"),
    [
        ("9.0", "PJRT C API\ncuda 13000", "registers"),
        ("7.5", "PJRT C API\ncuda 13000", "tiles"),
        ("9.0", "PJRT C API\nrocm 60000", "tiles"),
    ],
)
def test_registers_are_those_of_gpus_that_triton_compiles_for(
    capability, platform, expected, monkeypatch
):
    client = SimpleNamespace(platform_version=platform)
    device = SimpleNamespace(compute_capability=capability, client=client)
    monkeypatch.setattr(product, "_compiles_for", product._compiles_for.__wrapped__)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert product.mode() == expected
    monkeypatch.setenv("KERNAX_PAIRS_IN_REGISTERS", "0")
    assert product.mode() == "tiles"


def test_few_rows_split_their_columns_among_programs():
    shape = triton_kernel._Shape.of(2000, 10**6, 3, 1)
    assert shape.splits > 1000
    assert shape.splits * shape.columns >= 10**6 > (shape.splits - 1) * shape.columns
    assert triton_kernel._Shape.of(10**6, 10**6, 3, 1).rows == 1024
    assert triton_kernel._Shape.of(10**6, 10**6, 12, 1).rows == 1024
    # Of many numbers a row a thread holds fewer rows.
    assert triton_kernel._Shape.of(10**6, 10**6, 30, 30).rows == 256
